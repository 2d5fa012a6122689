"""Many simulations, each in its own process, and their totals."""

import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from chaos.simulation.simulation import Report, simulate

IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # logs are files; no disk is needed


@dataclass(slots=True)
class Total:
    simulations: int = 0
    bad: int = 0
    hours: float = 0.0
    writes: int = 0
    acknowledged: int = 0
    committed: int = 0
    troubles: int = 0
    messages: int = 0
    slowest_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        self.simulations += 1
        self.bad += bool(report.problem)
        self.hours += report.hours
        self.writes += report.writes
        self.acknowledged += report.acknowledged
        self.committed += report.committed
        self.troubles += report.troubles
        self.messages += report.messages
        self.slowest_s = max(self.slowest_s, report.slowest_s)
        self.faults.update(report.faults)

    def progress(self, wanted: int) -> str:
        """One line while the others of these simulations still run."""
        return (
            f"{self.simulations:,} of {wanted:,} simulations, {self.hours:.1f} simulated hours, "
            f"{sum(self.faults.values()):,} faults; broke a guarantee: {self.bad}"
        )

    @property
    def summary(self) -> str:
        faults = ", ".join(f"{name} {count:,}" for name, count in self.faults.most_common())
        return (
            f"{self.simulations:,} simulations, {self.hours:.1f} simulated hours, "
            f"{self.messages:,} messages between brokers, {self.writes:,} writes of which "
            f"{self.acknowledged:,} were acknowledged by all replicas, "
            f"{self.committed:,} records committed, {self.troubles:,} periods with "
            f"{sum(self.faults.values()):,} faults ({faults}). In calm the slowest acknowledgement took "
            f"{self.slowest_s * 1000:.0f} ms. Simulations that broke a guarantee: {self.bad}."
        )


def simulate_all(seeds: Iterable[int], seconds: float, workers: int) -> Iterator[Report]:
    """Yield the reports as the simulations end."""
    one = partial(_simulate, seconds)
    if workers == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(one, seeds)


def _simulate(seconds: float, seed: int) -> Report:
    with tempfile.TemporaryDirectory(prefix="moldau-simulated-", dir=IN_MEMORY, ignore_cleanup_errors=True) as home:
        return simulate(Path(home), seed, seconds)
