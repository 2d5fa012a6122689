"""Hours of steady load on one broker, to find growth of memory, open files or CPU per record."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import drive, topics
from benchmarks.jars import Jars
from benchmarks.measures import MIB, PARTITIONS
from benchmarks.peers import Kind, running

RATE = 20_000
RETENTION = {"retention.bytes": str(64 * MIB), "segment.bytes": str(16 * MIB), "retention.ms": "60000"}


@dataclass(frozen=True, slots=True)
class Sample:
    """The broker after a period of load, and the producer's p99 in it."""

    minutes: float
    records: int
    rss_mb: float
    open_files: int
    cpu_us_per_record: float
    p99_ms: float


def soak(kind: Kind, workdir: Path, jars: Jars | None, *, minutes: float, stretch_s: float) -> Iterator[Sample]:
    """Stretches of steady produce to one lasting topic, and with each a second topic made, filled, read and deleted."""
    records = 0
    with running(kind, workdir, "soak") as peer:
        lasting = topics.create(peer, PARTITIONS, RETENTION)
        began = time.monotonic()
        while time.monotonic() - began < minutes * 60:
            count = int(RATE * stretch_s)
            before = peer.cpu_seconds()
            result = drive.produce(jars, peer, lasting, drive.ProduceLoad(count, 100, throughput=RATE))
            with topics.topic(peer, PARTITIONS) as passing:
                filled = topics.fill(peer, passing, records=count // 10, value_size=100, batch_records=100)
                drive.consume(peer, passing, filled)
            done = count + filled
            records += done
            yield Sample(
                (time.monotonic() - began) / 60, records, peer.rss_bytes() / MIB, peer.open_files(),
                (peer.cpu_seconds() - before) / done * 1e6, result.p99_ms,
            )  # fmt: skip
