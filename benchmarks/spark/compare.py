"""Comparison of our Spark connector with Spark's own, on one Moldau broker: warm-up, then alternating rounds.

A failure is noted and costs only its round. Returns a plain results value after every workload.
"""

import contextlib
import datetime
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.compare import machine
from benchmarks.measures import Figures, Measure
from benchmarks.peers import Moldau, Peer
from benchmarks.peers import running as broker_running
from benchmarks.spark.measures import Bench, Sizes, Workload, workloads_of
from benchmarks.spark.sides import MASTER, SPARK, Flavour, Side, running
from benchmarks.stats import summarise

Say = Callable[[str], None]
Results = dict[str, Any]
Taken = dict[str, dict[str, list[Figures]]]


def compare(
    flavours: list[Flavour], measures: list[Measure], sizes: Sizes, workdir: Path, *, rounds: int, say: Say,
    keep: Callable[[Results], None],
) -> Results:  # fmt: skip
    """Runs every needed workload `rounds` times on each side, in turn; `keep` gets what there is so far."""
    taken: Taken = {}
    failures: list[str] = []
    results: Results = {}
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(broker_running(Moldau(), workdir, "broker"))
        sides = []
        for flavour in flavours:
            say(f"starting {flavour.name}")
            sides.append(stack.enter_context(running(flavour, workdir)))
        bench = Bench(broker, sizes, workdir, reader=sides[-1])
        for workload in workloads_of(measures):
            taken[workload.name] = _run(bench, sides, workload, rounds, failures, say)
            results = _results(flavours, measures, taken, failures, rounds=rounds, sizes=sizes, broker=broker)
            keep(results)
    return results


def _run(
    bench: Bench, sides: list[Side], workload: Workload, rounds: int, failures: list[str], say: Say
) -> dict[str, list[Figures]]:
    taken: dict[str, list[Figures]] = {side.label: [] for side in sides}
    _check(bench, sides, workload, failures, say)
    for number in range(0 if workload.warm else 1, rounds + 1):
        # The order alternates, so that neither always goes second.
        found: dict[str, Figures] = {}
        for side in sides if number % 2 else reversed(sides):
            say(f"{workload.name}, {f'round {number} of {rounds}' if number else 'warming'}: {side.label}")
            try:
                found[side.label] = workload.run(bench, side)
            except Exception as failure:  # noqa: BLE001 - one round is lost, the others are not
                failures.append(f"{workload.name}, {side.label}: {failure}")
                say(f"  failed: {failure}")
        if number and len(found) == len(sides):
            for label, figures in found.items():
                taken[label].append(figures)
    return taken


def _check(bench: Bench, sides: list[Side], workload: Workload, failures: list[str], say: Say) -> None:
    """Both must have read or written the same; it also warms them."""
    if workload.check is None:
        return
    found = []
    for side in sides:
        say(f"{workload.name}, checking: {side.label}")
        try:
            found.append(workload.check(bench, side))
        except Exception as failure:  # noqa: BLE001 - as above
            failures.append(f"{workload.name}, checking {side.label}: {failure}")
            say(f"  failed: {failure}")
    if any(each != found[0] for each in found):
        failures.append(f"{workload.name}: the sides differ: {found}")
        say(f"  the sides differ: {found}")


def _results(
    flavours: list[Flavour], measures: list[Measure], taken: Taken, failures: list[str], *, rounds: int, sizes: Sizes,
    broker: Peer,
) -> Results:  # fmt: skip
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(None),
        "ours": flavours[0].name,
        "theirs": flavours[1].name if len(flavours) > 1 else None,
        "broker": f"{broker.kind.name} {broker.kind.version}",
        "spark": {"master": MASTER, **SPARK},
        "rounds": rounds,
        "sizes": asdict(sizes),
        "measures": [summarise(measure, taken[measure.workload]) for measure in measures if measure.workload in taken],
        "figures": taken,
        "failures": failures,
    }
