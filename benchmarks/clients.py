"""Moldau's Python client beside confluent-kafka, aiokafka and kafka-python, on one broker, in alternating rounds."""

import json
import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.client_loads import LOADS, Figures
from benchmarks.peers import Kind, Peer, running
from benchmarks.topics import fill, topic

PARTITIONS = 5
BATCH_RECORDS = 150
LIMIT_S = 600.0
SLOWER = 5  # aiokafka and kafka-python get this part of the records: a round of theirs takes as long as one of ours
SLOW = ("aiokafka", "kafka-python")
LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Extent:
    records: int
    rounds: int
    rate: int = 2_000
    paced: int = 10_000  # records of a round that measures latency


FULL = Extent(1_000_000, 3)
QUICK = Extent(20_000, 1, paced=500)


@dataclass(slots=True)
class Row:
    """One load of one client: the figures of its rounds."""

    load: str
    client: str
    rounds: list[Figures] = field(default_factory=list)

    def median(self, figure: str) -> float:
        return statistics.median(float(each[figure]) for each in self.rounds)


def study(kind: Kind, extent: Extent, only: Sequence[str], scratch: Path, say: Callable[[str], None]) -> list[Row]:
    """The rounds of every load, the order of clients turned around each time."""
    rows = [Row(load, client) for load in LOADS if not only or load in only for client in LOADS[load]]
    with running(kind, scratch, "clients") as peer:
        for number in range(extent.rounds):
            for row in rows if number % 2 == 0 else reversed(rows):
                say(f"round {number + 1} of {extent.rounds}: {row.load} with {row.client}")
                row.rounds.append(_run(peer, row, extent))
    return rows


def _run(peer: Peer, row: Row, extent: Extent) -> Figures:
    records = extent.records // (SLOWER if row.client in SLOW else 1)
    with topic(peer, PARTITIONS) as target:
        if row.load.startswith("consume"):
            records = fill(peer, target, records=records, value_size=100, batch_records=BATCH_RECORDS)
        job = {
            "bootstrap": peer.bootstrap,
            "topic": target.name,
            "group": uuid.uuid4().hex,
            "records": extent.paced if row.load == LATENCY else records,
            "rate": extent.rate,
        }
        command = [sys.executable, "-m", "benchmarks.client_loads", row.client, row.load, json.dumps(job)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures
