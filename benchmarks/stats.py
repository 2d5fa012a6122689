"""Medians, ranges and ratios of rounds. Plain arithmetic on lists of figures; knows nothing of brokers."""

import math
import statistics
from typing import Any

from benchmarks.measures import Figures, Measure


def ratio(ours: float, theirs: float) -> float:
    """Ours to theirs; two zeros (below the resolution of a tool) are equal."""
    if theirs == 0:
        return 1.0 if ours == 0 else math.inf
    return ours / theirs


def reached(measure: Measure, value: float) -> bool | None:
    """Whether a ratio is on the right side of the floor; None if there is no floor."""
    if measure.floor is None:
        return None
    return value >= measure.floor if measure.better == "higher" else value <= measure.floor


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def summarise(measure: Measure, rounds: dict[str, list[Figures]]) -> dict[str, Any]:
    """One measure: medians and ranges of each side, the ratio of the medians, and the range of the rounds' ratios."""
    sides = {
        label: [figures[measure.figure] for figures in taken if not math.isnan(figures.get(measure.figure, math.nan))]
        for label, taken in rounds.items()
    }
    row: dict[str, Any] = {
        "name": measure.name,
        "title": measure.title,
        "unit": measure.unit,
        "better": measure.better,
        "floor": measure.floor,
        "shown": measure.shown,
        **{label: spread(values) if values else None for label, values in sides.items()},
    }
    ours, theirs = sides.get("ours"), sides.get("theirs")
    if ours and theirs:
        value = ratio(statistics.median(ours), statistics.median(theirs))
        pairs = [ratio(one, other) for one, other in zip(ours, theirs, strict=True)]
        row |= {"ratio": value, "ratio_least": min(pairs), "ratio_most": max(pairs), "reached": reached(measure, value)}
    return row
