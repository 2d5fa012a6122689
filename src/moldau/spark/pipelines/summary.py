"""Spark's progress of a query, in the few numbers that people look at. Pure: JSON in, values out."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def summarize(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The latest batch of a query: rates, lag (None if its sources do not tell), times, rows of state."""
    operators = progress.get("stateOperators") or []
    durations = progress.get("durationMs") or {}
    return {
        "id": progress.get("id"),
        "run_id": progress.get("runId"),
        "batch": progress.get("batchId"),
        "rows": progress.get("numInputRows"),
        "rows_per_second": _rate(progress.get("inputRowsPerSecond")),
        "processed_per_second": _rate(progress.get("processedRowsPerSecond")),
        "batch_ms": durations.get("triggerExecution", progress.get("batchDuration")),
        "lag": total_lag(progress.get("sources") or []),
        "state_rows": sum(each.get("numRowsTotal") or 0 for each in operators) if operators else None,
        "watermark": (progress.get("eventTime") or {}).get("watermark"),
        "at_ms": _moment_ms(progress.get("timestamp")),
    }


def total_lag(sources: list[Mapping[str, Any]]) -> int | None:
    """How many records the sources are behind, as far as they tell: where they are, and where the end is."""
    behind = [_lag(each.get("endOffset"), each.get("latestOffset")) for each in sources]
    known = [each for each in behind if each is not None]
    return sum(known) if known else None


def _lag(end: Any, latest: Any) -> int | None:
    """From offsets by partition, by topic: Spark's own form and ours."""
    ends, latests = _by_partition(end), _by_partition(latest)
    if not latests:
        return None
    return sum(max(0, offset - ends.get(place, 0)) for place, offset in latests.items())


def _by_partition(offset: Any) -> dict[tuple[str, str], int]:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, Mapping):
        return {}
    offset = offset.get("offsets", offset) if "cuts" in offset else offset  # ours has more to tell
    found = {}
    for topic, row in offset.items():
        if isinstance(row, Mapping):
            found.update({(topic, number): place for number, place in row.items() if isinstance(place, int)})
    return found


def _rate(value: Any) -> float | None:
    """Spark says NaN or infinity where it does not know."""
    if not isinstance(value, int | float) or value != value or value in (float("inf"), float("-inf")):
        return None
    return round(float(value), 1)


def _moment_ms(text: Any) -> int | None:
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return None
