"""Interference on one broker: append cost in a large log, start-up with many partitions, and a producer's p99 beside
metadata requests, cold reads, fsyncs, a producer that sends all it can, and the cleaner."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import drive, frames, topics
from benchmarks.beside_cleaner import beside_cleaner
from benchmarks.findings import Finding, p99
from benchmarks.measures import PARTITIONS
from benchmarks.peers import ApacheKafka, Kind, Peer, running
from benchmarks.saturation_measures import CONNECTIONS
from benchmarks.topics import IN_FLIGHT, Topic

GB = 10**9
MB = 10**6
FSYNC_PROBE_S = 1.0
BIG_BATCH_RECORDS = 90
BIG_RECORD = 10_000


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes of logs and numbers of partitions; `--full` is for published figures."""

    large_log_bytes: int
    cold_bytes: int
    partitions: int
    probe_s: float
    pairs: int
    appends: int


FULL = Extent(large_log_bytes=10 * GB, cold_bytes=5 * GB, partitions=2_000, probe_s=20, pairs=3, appends=20_000)
NORMAL = Extent(large_log_bytes=2 * GB, cold_bytes=2 * GB, partitions=2_000, probe_s=8, pairs=3, appends=10_000)
QUICK = Extent(large_log_bytes=50 * MB, cold_bytes=50 * MB, partitions=50, probe_s=3, pairs=1, appends=300)


Say = Callable[[str], None]


def append_cost(kind: Kind, workdir: Path, extent: Extent, say: Say) -> list[Finding]:
    """CPU and time of the same appends to one partition, first while its log is small, then when it is large."""
    small = frames.batch(150, 100)
    with running(kind, workdir, "append") as peer:
        topic = topics.create(peer, 1, {"retention.ms": "-1"})
        request = frames.produce(topic.id, [(0, small)])
        _append(peer, request, extent.appends // 4)
        _append(peer, request, MB // len(small) + 1)
        os.sync()
        first = _append(peer, request, extent.appends)
        say(f"filling a log with {extent.large_log_bytes / GB:.1f} GB")
        _fill_bytes(peer, topic, extent.large_log_bytes)
        os.sync()
        second = _append(peer, request, extent.appends)
        note = f"{extent.appends} batches of {len(small) // 1000} KB; at {extent.large_log_bytes / GB:.1f} GB"
    return [
        Finding("append-cpu", "CPU per append, small and large log", first[0], second[0], "µs", "1.0", note),
        Finding("append-time", "time per append, small and large log", first[1], second[1], "µs", "1.0", note),
    ]


def _append(peer: Peer, request: bytes, count: int) -> tuple[float, float]:
    """Broker CPU and elapsed microseconds per request."""
    with frames.Connection(peer.address) as connection:
        before, began = peer.cpu_seconds(), time.perf_counter()
        for number in range(count + IN_FLIGHT):
            if number < count:
                connection.send(request)
            if number >= IN_FLIGHT:
                frames.check_produced(connection.receive(), 1)
        return (peer.cpu_seconds() - before) / count * 1e6, (time.perf_counter() - began) / count * 1e6


def _fill_bytes(peer: Peer, topic: Topic, size: int) -> int:
    return topics.fill(peer, topic, records=size // BIG_RECORD, value_size=BIG_RECORD, batch_records=BIG_BATCH_RECORDS)


def start_up(kind: Kind, workdir: Path, extent: Extent, say: Say) -> list[Finding]:
    """From the start of the process after a clean stop until it answers, and until the last partition gives records."""
    taken = []
    for partitions in (1, extent.partitions):
        say(f"start-up with {partitions} partitions")
        with running(kind, workdir, "startup") as peer:
            topic = topics.create(peer, partitions)
            topics.fill(peer, topic, records=partitions * 10, value_size=100, batch_records=10)
            peer.stop()
            began = time.perf_counter()
            ready = peer.start()
            _first_read(peer, topic, partitions - 1)
            taken.append((ready, time.perf_counter() - began))
    (ready_one, read_one), (ready_many, read_many) = taken
    note = f"1 and {extent.partitions} partitions"
    return [
        Finding("start-ready", "ready after a clean stop", ready_one, ready_many, "s", "< 2 s", note),
        Finding("start-read", "first records after a clean stop", read_one, read_many, "s", "< 2 s", note),
    ]


def _first_read(peer: Peer, topic: Topic, partition: int) -> None:
    request = frames.fetch(topic.id, [(partition, 0)], partition_bytes=1, wait_ms=0)
    deadline = time.monotonic() + topics.LIMIT_S
    with frames.Connection(peer.address) as connection:
        while True:
            with contextlib.suppress(frames.RefusedError):
                if frames.check_fetched(connection.ask(request)).records_size:
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"partition {partition} gave no records after the restart of {peer.label}")
            time.sleep(0.005)


def disturbances(kind: Kind, workdir: Path, extent: Extent, say: Say) -> list[Finding]:
    """A producer's p99 alone and beside each disturbance, in turn."""
    with running(kind, workdir, "disturbed") as peer:
        probe = topics.create(peer, PARTITIONS)
        topics.create(peer, extent.partitions)
        cold = topics.create(peer, PARTITIONS, {"retention.ms": "-1"})
        flushed = topics.create(peer, 1, {"flush.messages": "1"})
        say(f"writing {extent.cold_bytes / GB:.1f} GB to read back cold")
        records = _fill_bytes(peer, cold, extent.cold_bytes)
        os.sync()
        p99(peer, probe, min(extent.probe_s, 5))  # warm up both ends
        where = {"host": peer.address[0], "port": peer.address[1]}
        reading = {
            "topic": cold.name, "topic_id": str(cold.id), "data": str(peer.data), "partitions": PARTITIONS,
            "end_offset": records // PARTITIONS, "batch_records": BIG_BATCH_RECORDS,
            "batch_bytes": len(frames.batch(BIG_BATCH_RECORDS, BIG_RECORD)),
        }  # fmt: skip
        cases: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
            ("metadata", f"metadata of {extent.partitions} partitions is asked for", "ask-metadata", where),
            ("cold", "a reader pulls cold log", "read-cold", {**where, **reading}),
            ("fsync", "fsync runs", "append-one-by-one", {**where, "topic_id": str(flushed.id)}),
        )
        return [_beside(peer, probe, extent, case, say) for case in cases]


def saturated(kind: Kind, workdir: Path, extent: Extent, say: Say) -> list[Finding]:
    """A producer's p99 alone and beside one that sends batches as fast as they are answered, to another topic."""
    alone, beside, rates = [], [], []
    with running(kind, workdir, "saturated") as peer:
        probe = topics.create(peer, PARTITIONS)
        p99(peer, probe, min(extent.probe_s, 5))  # warm up both ends
        for number in range(extent.pairs):
            say(f"p99 alone, and beside a saturating producer: {number + 1} of {extent.pairs}")
            alone.append(p99(peer, probe, extent.probe_s))
            with topics.topic(peer, CONNECTIONS) as flooded:
                where = {"host": peer.address[0], "port": peer.address[1], "topic_id": str(flooded.id)}
                with drive.disturbing("produce-all", **where) as did:
                    beside.append(p99(peer, probe, extent.probe_s))
            rates.append(did["bytes"] / did["seconds"] / MB)
    note = f"{median(rates):.0f} MB/s in batches of 150 × 100 B, {CONNECTIONS} connections"
    title = "p99 while another producer sends all it can"
    return [Finding("p99-saturated", title, median(alone), median(beside), "ms", "≤ 2.0", note)]


def cleaned(kind: Kind, workdir: Path, extent: Extent, say: Say) -> list[Finding]:
    if isinstance(kind, ApacheKafka):
        say("the cleaner of Apache Kafka is a thread, which cannot be watched: left out")
        return []
    return [beside_cleaner(kind, workdir, extent.probe_s, extent.pairs, say)]


def _beside(peer: Peer, probe: Topic, extent: Extent, case: tuple[str, str, str, dict[str, Any]], say: Say) -> Finding:
    """The probe alone and disturbed, in pairs, because a shared machine changes from minute to minute."""
    name, title, job, arguments = case
    alone, beside, disk_before = [], [], peer.disk_read_bytes()
    for number in range(extent.pairs):
        say(f"p99 alone, and while {title}: {number + 1} of {extent.pairs}")
        alone.append(p99(peer, probe, extent.probe_s))
        with drive.disturbing(job, **arguments) as did:
            beside.append(p99(peer, probe, extent.probe_s))
    per_s = did["rounds"] / did["seconds"]
    note = f"{per_s:.0f}/s, {did['bytes'] / did['seconds'] / MB:.0f} MB/s"
    if name == "fsync":
        note += f"; {_fsync_note(peer.home, per_s)}"
    if name == "cold":
        note += f", {(peer.disk_read_bytes() - disk_before) / MB:.0f} MB from disk"
    return Finding(f"p99-{name}", f"p99 while {title}", median(alone), median(beside), "ms", "≤ 2.0", note)


def _fsync_note(directory: Path, seen_per_s: float) -> str:
    """One append after the other cannot be answered faster than the disk syncs, unless they do not wait for it."""
    with tempfile.TemporaryFile(dir=directory) as file:
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < FSYNC_PROBE_S:
            os.write(file.fileno(), bytes(10_000))
            os.fsync(file.fileno())
            count += 1
    alone = count / FSYNC_PROBE_S
    verdict = ": answered WITHOUT waiting for fsync" if seen_per_s > 1.5 * alone else ""
    return f"the disk alone syncs {alone:.0f}/s{verdict}"


STUDIES: dict[str, Callable[[Kind, Path, Extent, Say], list[Finding]]] = {
    "append": append_cost,
    "start-up": start_up,
    "disturbances": disturbances,
    "saturated": saturated,
    "cleaner": cleaned,
}


def study(kind: Kind, workdir: Path, extent: Extent, only: list[str], say: Say) -> list[dict[str, Any]]:
    chosen = [run for name, run in STUDIES.items() if not only or name in only]
    return [finding.as_row() for run in chosen for finding in run(kind, workdir, extent, say)]
