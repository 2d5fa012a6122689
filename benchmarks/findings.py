"""A finding of a study, and the producer whose p99 most of them look at."""

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import drive
from benchmarks.peers import Peer
from benchmarks.topics import Topic

RATE = 2_000  # records per second of the producer


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure alone and disturbed (or small and large), and their ratio."""

    name: str
    title: str
    base: float
    other: float
    unit: str
    aim: str
    note: str = ""

    def as_row(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.other / self.base if self.base else 0.0}


def p99(peer: Peer, topic: Topic, seconds: float) -> float:
    """In milliseconds, of a producer at a steady rate."""
    return drive.latency(peer, topic, rate=RATE, seconds=seconds)["p99_ms"]
