"""Many lives, in processes of their own, and what they come to."""

import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from chaos.simulation.life import Report, live

IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # logs are files; no disk is needed


@dataclass(slots=True)
class Total:
    lives: int = 0
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
        self.lives += 1
        self.bad += bool(report.problem)
        self.hours += report.hours
        self.writes += report.writes
        self.acknowledged += report.acknowledged
        self.committed += report.committed
        self.troubles += report.troubles
        self.messages += report.messages
        self.slowest_s = max(self.slowest_s, report.slowest_s)
        self.faults.update(report.faults)

    @property
    def summary(self) -> str:
        faults = ", ".join(f"{name} {count:,}" for name, count in self.faults.most_common())
        return (
            f"{self.lives:,} lives, {self.hours:.1f} simulated hours, {self.messages:,} messages between brokers, "
            f"{self.writes:,} writes of which {self.acknowledged:,} were acknowledged by all replicas, "
            f"{self.committed:,} records committed, {self.troubles:,} times of trouble with "
            f"{sum(self.faults.values()):,} faults ({faults}). In calm the slowest acknowledgement took "
            f"{self.slowest_s * 1000:.0f} ms. Lives that broke a promise: {self.bad}."
        )


def live_all(seeds: Iterable[int], seconds: float, workers: int) -> Iterator[Report]:
    """In the order in which they end."""
    one = partial(_live, seconds)
    if workers == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(one, seeds)


def _live(seconds: float, seed: int) -> Report:
    with tempfile.TemporaryDirectory(prefix="moldau-simulated-", dir=IN_MEMORY, ignore_cleanup_errors=True) as home:
        return live(Path(home), seed, seconds)
