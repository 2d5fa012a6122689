"""What is measured of Spark: a table of workloads (one round on one side) and of measures (figures from them).

From the time and the CPU of every job those of a job are taken off that moves as many rows without Kafka, on the same
Spark: so two versions of Spark are compared by what source and sink cost. Knows nothing of printing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import drive, topics
from benchmarks.measures import BATCH_RECORDS_100, Figures, Measure
from benchmarks.peers import Peer
from benchmarks.spark.sides import Side, running
from benchmarks.topics import Topic

PARTITIONS = 4
BATCH_RECORDS = {100: BATCH_RECORDS_100, 1_000: 16}  # in 16 KB, the clients' default
COPY_PARTITIONS = 2
COPY_RATE = 200
LEAST_S = 0.001  # minimum after subtracting the base


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of records; `--quick` only checks that everything runs."""

    read: dict[int, int]  # by size of the value
    write: dict[int, int]
    latency_s: float
    latency_warm_up_s: float
    idle_s: float


FULL = Sizes(
    read={100: 5_000_000, 1_000: 1_000_000},
    write={100: 2_000_000, 1_000: 500_000},
    latency_s=15,
    latency_warm_up_s=10,
    idle_s=10,
)
QUICK = Sizes(
    read={100: 200_000, 1_000: 40_000},
    write={100: 100_000, 1_000: 20_000},
    latency_s=4,
    latency_warm_up_s=2,
    idle_s=2,
)


def scaled(sizes: Sizes, scale: float) -> Sizes:
    read, write = ({size: int(count * scale) for size, count in each.items()} for each in (sizes.read, sizes.write))
    return replace(sizes, read=read, write=write)


@dataclass(slots=True)
class Bench:
    """What workloads need beside the side that they load: the broker, and topics that are filled once and only read."""

    broker: Peer
    sizes: Sizes
    workdir: Path
    reader: Side | None = None  # the one that reads what sinks wrote
    filled: dict[tuple[int, int], tuple[Topic, int]] = field(default_factory=dict)

    def source(self, size: int, partitions: int) -> tuple[Topic, int]:
        """A full topic and how many records it has."""
        if (size, partitions) not in self.filled:
            topic = topics.create(self.broker, partitions, {"retention.ms": "-1"})
            count = topics.fill(
                self.broker, topic, records=self.sizes.read[size], value_size=size, batch_records=BATCH_RECORDS[size]
            )
            self.filled[size, partitions] = topic, count
        return self.filled[size, partitions]


Run = Callable[[Bench, Side], Figures]
Check = Callable[[Bench, Side], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Workload:
    """`check` gives a value that must be the same for both sides."""

    name: str
    says: str
    run: Run
    check: Check | None = None
    warm: bool = True  # one round goes ahead and is not counted


def _reading(size: int, partitions: int, *, stream: bool) -> tuple[Run, Check]:
    def run(bench: Bench, side: Side) -> Figures:
        topic, count = bench.source(size, partitions)
        base = side.run("read_base", records=count, size=size, stream=stream)
        before = bench.broker.cpu_seconds()
        found = side.run("read", bootstrap=bench.broker.bootstrap, topic=topic.name, stream=stream)
        return _figures(count, base, found, bench.broker.cpu_seconds() - before)

    def check(bench: Bench, side: Side) -> dict[str, Any]:
        topic, count = bench.source(size, partitions)
        found = side.run("check_read", bootstrap=bench.broker.bootstrap, topic=topic.name, stream=stream)
        return _checked(found, count, count * size)

    return run, check


def _writing(size: int, *, stream: bool) -> tuple[Run, Check]:
    def write(bench: Bench, side: Side, topic: Topic) -> dict[str, Any]:
        given = {"records": bench.sizes.write[size], "size": size, "stream": stream}
        return side.run("write", bootstrap=bench.broker.bootstrap, topic=topic.name, **given)

    def run(bench: Bench, side: Side) -> Figures:
        count = bench.sizes.write[size]
        base = side.run("write_base", records=count, size=size, stream=stream)
        with topics.topic(bench.broker, PARTITIONS) as topic:
            before = bench.broker.cpu_seconds()
            found = write(bench, side, topic)
            return _figures(count, base, found, bench.broker.cpu_seconds() - before)

    def check(bench: Bench, side: Side) -> dict[str, Any]:
        count = bench.sizes.write[size]
        with topics.topic(bench.broker, PARTITIONS) as topic:
            write(bench, side, topic)
            reader = bench.reader or side
            found = reader.run("check_written", bootstrap=bench.broker.bootstrap, topic=topic.name)
        return _checked(found, count, count * size)

    return run, check


def _checked(found: dict[str, Any], records: int, size: int) -> dict[str, Any]:
    """The sums; raises where they are not those of what was written, so that a side alone is checked too."""
    if (found.get("records"), found.get("bytes")) != (records, size):
        raise RuntimeError(f"{records} records of {size} bytes were expected, not {found}")
    return {name: found[name] for name in ("records", "bytes", "digest")}


def _figures(count: int, base: dict[str, Any], found: dict[str, Any], broker_cpu_s: float) -> Figures:
    if found.get("records", count) != count:
        raise RuntimeError(f"{found['records']} records instead of {count}")
    seconds = max(LEAST_S, found["seconds"] - base["seconds"])
    cpu_s = max(LEAST_S, found["cpu_s"] - base["cpu_s"])
    return {
        "records_per_s": count / seconds,
        "records_per_cpu_s": count / cpu_s,
        "cpu_us_per_record": cpu_s / count * 1e6,
        "whole_records_per_s": count / found["seconds"],
        "seconds": found["seconds"],
        "cpu_s": found["cpu_s"],
        "base_seconds": base["seconds"],
        "base_cpu_s": base["cpu_s"],
        "broker_cpu_s": broker_cpu_s,
    }


def _latency(bench: Bench, side: Side) -> Figures:
    """A query copies one topic to another, batch after batch without a pause between them."""
    given: dict[str, Any] = {"bootstrap": bench.broker.bootstrap}
    with topics.topic(bench.broker, COPY_PARTITIONS) as topic, topics.topic(bench.broker, COPY_PARTITIONS) as target:
        given |= {"topic": topic.name, "target": target.name}
        side.run("copy", **given)
        before, began = side.cpu_seconds(), time.perf_counter()
        try:
            taken = drive.work(
                "passage", **given, partitions=COPY_PARTITIONS, rate=COPY_RATE, size=100,
                seconds=bench.sizes.latency_s, warm_up_s=bench.sizes.latency_warm_up_s,
            )  # fmt: skip
            cores = (side.cpu_seconds() - before) / (time.perf_counter() - began)
        finally:
            ended = side.run("end_copy")
    figures = {"cpu_share": cores, "batches": ended["batches"], "batch_ms": ended["batch_ms"]}
    return {**taken, **figures}


def _idle(bench: Bench, side: Side) -> Figures:
    """The same query without records, in a session of its own: what it costs to wait."""
    given: dict[str, Any] = {"bootstrap": bench.broker.bootstrap}
    with (
        topics.topic(bench.broker, COPY_PARTITIONS) as topic,
        topics.topic(bench.broker, COPY_PARTITIONS) as target,
        running(side.flavour, bench.workdir) as fresh,
    ):
        given |= {"topic": topic.name, "target": target.name}
        fresh.run("copy", **given)
        drive.work(
            "passage", **given, partitions=COPY_PARTITIONS, rate=COPY_RATE, size=100, seconds=1, warm_up_s=1,
        )  # fmt: skip
        time.sleep(bench.sizes.idle_s / 2)
        processes, memory_mb = fresh.python_processes(), fresh.memory_mb()
        before, began = fresh.cpu_seconds(), time.perf_counter()
        time.sleep(bench.sizes.idle_s)
        cores = (fresh.cpu_seconds() - before) / (time.perf_counter() - began)
        fresh.run("end_copy")
    return {"idle_cores": cores, "python_processes": processes, "query_mb": memory_mb}


def _floor(bench: Bench, side: Side) -> Figures:
    """Spark's own part of a batch."""
    return {"floor_ms": side.run("floor", seconds=bench.sizes.latency_s)["batch_ms"]}


def _fresh(bench: Bench, side: Side) -> Figures:
    """A session of its own: the time to its first result, and its memory while it reads a topic."""
    topic, count = bench.source(100, PARTITIONS)
    with running(side.flavour, bench.workdir) as fresh:
        start_cpu_s, idle_mb = fresh.cpu_seconds(), fresh.memory_mb()
        with fresh.watched() as samples:
            first = fresh.run("read", bootstrap=bench.broker.bootstrap, topic=topic.name, stream=False)
        return {
            "start_s": fresh.start_s,
            "start_cpu_s": start_cpu_s,
            "idle_mb": idle_mb,
            "peak_mb": max(samples),
            "cold_records_per_s": count / first["seconds"],
        }


def _read_says(size: str, partitions: str, how: str) -> str:
    return (
        f"{how} of a topic with {partitions}, values of {size} without keys in batches of 16 KB, all columns, to noop"
    )


WORKLOADS = (
    Workload("batch-100", _read_says("100 B", "4 partitions", "read"), *_reading(100, PARTITIONS, stream=False)),
    Workload("batch-1k", _read_says("1 KB", "4 partitions", "read"), *_reading(1_000, PARTITIONS, stream=False)),
    Workload("batch-100-one", _read_says("100 B", "one partition", "read"), *_reading(100, 1, stream=False)),
    Workload("batch-1k-one", _read_says("1 KB", "one partition", "read"), *_reading(1_000, 1, stream=False)),
    Workload("stream-100", _read_says("100 B", "4 partitions", "readStream"), *_reading(100, PARTITIONS, stream=True)),
    Workload("stream-1k", _read_says("1 KB", "4 partitions", "readStream"), *_reading(1_000, PARTITIONS, stream=True)),
    Workload("stream-100-one", _read_says("100 B", "one partition", "readStream"), *_reading(100, 1, stream=True)),
    Workload("stream-1k-one", _read_says("1 KB", "one partition", "readStream"), *_reading(1_000, 1, stream=True)),
    Workload("sink-100", "write with keys, values of 100 B, from range, 4 partitions", *_writing(100, stream=False)),
    Workload("sink-1k", "write with keys, values of 1 KB, from range, 4 partitions", *_writing(1_000, stream=False)),
    Workload("sink-stream-100", "writeStream of the same, from rate-micro-batch", *_writing(100, stream=True)),
    Workload("sink-stream-1k", "writeStream of the same, from rate-micro-batch", *_writing(1_000, stream=True)),
    Workload(
        "latency",
        f"a query copies topic to topic at a trigger of 0 s, {COPY_RATE} records/s, {COPY_PARTITIONS} partitions",
        _latency,
        warm=False,
    ),
    Workload("idle", "the same query in a session of its own, without records", _idle, warm=False),
    Workload("floor", "100 rows from rate-micro-batch to noop at a trigger of 0 s", _floor, warm=False),
    Workload("fresh", "a session of its own, then batch-100 in it", _fresh, warm=False),
)


def _pair(workload: str, title: str, floor: float) -> tuple[Measure, Measure]:
    """A rate by time and by CPU."""
    return (
        Measure(workload, title, workload, "records_per_s", "records/s", "higher", floor),
        Measure(f"cpu-{workload}", f"{title}, by CPU", workload, "records_per_cpu_s", "records/CPU s", "higher", floor),
    )


MEASURES = (
    *_pair("batch-100", "batch read, 100 B", 1.5),
    *_pair("batch-1k", "batch read, 1 KB", 1.5),
    *_pair("batch-100-one", "batch read, 100 B, one partition", 1.5),
    *_pair("batch-1k-one", "batch read, 1 KB, one partition", 1.5),
    *_pair("stream-100", "stream read, 100 B", 1.1),
    *_pair("stream-1k", "stream read, 1 KB", 1.0),
    *_pair("stream-100-one", "stream read, 100 B, one partition", 1.1),
    *_pair("stream-1k-one", "stream read, 1 KB, one partition", 1.0),
    *_pair("sink-100", "batch write, 100 B", 1.0),
    *_pair("sink-1k", "batch write, 1 KB", 1.0),
    *_pair("sink-stream-100", "stream write, 100 B", 1.0),
    *_pair("sink-stream-1k", "stream write, 1 KB", 1.0),
    Measure("latency-p50", "topic to topic, p50", "latency", "p50_ms", "ms", "lower", None),
    Measure("latency-p99", "topic to topic, p99", "latency", "p99_ms", "ms", "lower", None),
    Measure("latency-cpu", "topic to topic, cores in use", "latency", "cpu_share", "cores", "lower", None),
    Measure("idle-cpu", "an idle query, cores in use", "idle", "idle_cores", "cores", "lower", None),
    Measure("idle-processes", "an idle query, Python processes", "idle", "python_processes", "", "lower", None),
    Measure("idle-query-memory", "memory of a session with one query", "idle", "query_mb", "MB", "lower", None),
    Measure("floor", "Spark's own part of a batch", "floor", "floor_ms", "ms", "lower", None),
    Measure("start", "session start to first result", "fresh", "start_s", "s", "lower", None),
    Measure("idle-memory", "memory of a new session", "fresh", "idle_mb", "MB", "lower", None),
    Measure("memory", "peak memory, batch read, 100 B", "fresh", "peak_mb", "MB", "lower", None),
)


def chosen(only: list[str]) -> list[Measure]:
    """The measures with one of these names or workloads; all if there are none."""
    return [measure for measure in MEASURES if not only or {measure.name, measure.workload} & set(only)]


def workloads_of(measures: list[Measure]) -> list[Workload]:
    needed = {measure.workload for measure in measures}
    return [workload for workload in WORKLOADS if workload.name in needed]
