"""Comparison of clusters of three brokers: replicated produce and consume, failover, memory. Returns a plain value.

Both clusters run; one is under load at a time. Failover is measured with default settings, and with equal session
timeouts.
"""

import contextlib
import datetime
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import drive, failover, mass_failover
from benchmarks.clusters import ApacheKafkaCluster, ClusterKind, MoldauCluster, RunningCluster, running_cluster
from benchmarks.compare import machine
from benchmarks.jars import Jars
from benchmarks.measures import MIB, Figures, Measure
from benchmarks.stats import summarise

PARTITIONS = 6
RECORD_SIZE = 100
SESSION_MS = "6000"
EQUAL_SESSIONS = {
    "Moldau": {"zookeeper.session.timeout.ms": SESSION_MS},
    "Apache Kafka": {"broker.session.timeout.ms": SESSION_MS},
}
Say = Callable[[str], None]
Work = Callable[[RunningCluster], Figures]


@dataclass(frozen=True, slots=True)
class Extent:
    warm_up: int
    records: int
    failovers: int
    led_by_one: int  # partitions that lose their leader at once


FULL = Extent(warm_up=1_000_000, records=2_000_000, failovers=3, led_by_one=1_000)
QUICK = Extent(warm_up=20_000, records=100_000, failovers=1, led_by_one=100)

MEASURES = [
    Measure("produce", "produce 100 B, 3 replicas, acks=all", "load", "records_per_s", "records/s", "higher", 1.2),
    Measure("consume", "consume 100 B, librdkafka", "load", "consume_records_per_s", "records/s", "higher", 1.0),
    Measure("cpu-produce", "CPU per record of all brokers, produce", "load", "cpu_us", "µs", "lower", None),
    Measure("cpu-consume", "CPU per record of all brokers, consume", "load", "consume_cpu_us", "µs", "lower", None),
    Measure("memory", "resident memory of the three brokers", "load", "rss_mb", "MB", "lower", 0.1),
    Measure("beside", "and of ZooKeeper beside them", "load", "beside_mb", "MB", "lower", None),
    Measure("kill", "gap after kill -9 of a leader, defaults", "kill", "gap_ms", "ms", "lower", 1.0),
    Measure("kill-equal", "the same, sessions of 6 s", "kill-equal", "gap_ms", "ms", "lower", 1.0),
    Measure("mass", "new leaders of 1,000 partitions after kill -9", "mass", "leaders_ms", "ms", "lower", 1.0),
    Measure("mass-produce", "a record in each of them", "mass", "produce_ms", "ms", "lower", 1.0),
    Measure("mass-controller", "new leaders, of the controller", "mass-controller", "leaders_ms", "ms", "lower", 1.0),
    Measure("mass-controller-produce", "and records", "mass-controller", "produce_ms", "ms", "lower", 1.0),
    Measure("pause", "gap after SIGSTOP of a leader, sessions of 6 s", "pause", "gap_ms", "ms", "lower", 1.0),
]


def chosen(only: list[str]) -> list[Measure]:
    """The measures with one of these prefixes in name or workload; all if there are none."""
    names = tuple(only)
    return [each for each in MEASURES if not names or each.name.startswith(names) or each.workload.startswith(names)]


def compare(
    jars: Jars | None,
    extent: Extent,
    workdir: Path,
    consumer: str,
    *,
    kafka: bool,
    rounds: int,
    say: Say,
    only: list[str] | None = None,
) -> dict[str, Any]:
    """Medians of alternating rounds; Moldau alone without Kafka's jars."""
    theirs = jars if kafka else None
    wanted = chosen(only or [])
    taken: dict[str, dict[str, list[Figures]]] = {}
    for equal, works in _works(jars, extent, consumer, rounds):
        due = {name: work for name, work in works.items() if any(each.workload == name for each in wanted)}
        if not due:
            continue
        with _clusters(_kinds(theirs, equal=equal), workdir, say) as both:
            if "load" in due:
                _warm(jars, both, extent, consumer, say)
            for name, (times, work) in due.items():
                taken[name] = _rounds(name, both, times, say, work)
    ours, others = MoldauCluster(), ApacheKafkaCluster(theirs) if theirs else None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(jars),
        "load": os.getloadavg(),
        "ours": f"{ours.name} {ours.version}, 3 brokers",
        "theirs": f"{others.name} {others.version}, 3 nodes" if others else None,
        "rounds": rounds,
        "consumer": consumer,
        "sizes": {name: getattr(extent, name) for name in Extent.__slots__},
        "measures": [summarise(measure, taken[measure.workload]) for measure in wanted],
        "figures": taken,
    }


def _works(
    jars: Jars | None, extent: Extent, consumer: str, rounds: int
) -> list[tuple[bool, dict[str, tuple[int, Work]]]]:
    """Workloads and rounds: on clusters with default settings, and with equal session timeouts."""
    count, partitions = extent.failovers, extent.led_by_one
    defaults: dict[str, tuple[int, Work]] = {
        "load": (rounds, lambda cluster: _load(jars, cluster, extent, consumer)),
        "kill": (count, _failover(failover.kill)),
        "mass": (count, lambda cluster: mass_failover.measure(cluster, partitions, controller=False)),
        "mass-controller": (count, lambda cluster: mass_failover.measure(cluster, partitions, controller=True)),
    }
    equal = {"kill-equal": (count, _failover(failover.kill)), "pause": (count, _failover(failover.pause))}
    return [(False, defaults), (True, equal)]


def _warm(jars: Jars | None, both: list[RunningCluster], extent: Extent, consumer: str, say: Say) -> None:
    for cluster in both:
        say(f"warming {cluster.label}")
        with cluster.topic(PARTITIONS) as topic:
            drive.produce(jars, cluster, topic, drive.ProduceLoad(extent.warm_up, RECORD_SIZE))
            drive.consume(cluster, topic, extent.warm_up, tool=consumer)


def _kinds(jars: Jars | None, *, equal: bool) -> list[tuple[str, ClusterKind]]:
    settings = EQUAL_SESSIONS if equal else {name: {} for name in EQUAL_SESSIONS}
    kinds: list[tuple[str, ClusterKind]] = [("ours", MoldauCluster(settings["Moldau"]))]
    if jars is not None:
        kinds.append(("theirs", ApacheKafkaCluster(jars, settings["Apache Kafka"])))
    return kinds


@contextlib.contextmanager
def _clusters(kinds: list[tuple[str, ClusterKind]], workdir: Path, say: Say) -> Any:
    with contextlib.ExitStack() as stack:
        both = []
        for label, kind in kinds:
            say(f"starting {label}: three brokers of {kind.name} {kind.version}")
            both.append(stack.enter_context(running_cluster(kind, workdir, label)))
        yield both


def _rounds(name: str, both: list[RunningCluster], rounds: int, say: Say, run: Work) -> dict[str, list[Figures]]:
    taken: dict[str, list[Figures]] = {cluster.label: [] for cluster in both}
    for number in range(rounds):
        for cluster in both if number % 2 == 0 else reversed(both):  # neither always goes second
            say(f"{name}, round {number + 1} of {rounds}: {cluster.label}")
            taken[cluster.label].append(run(cluster))
    return taken


def _load(jars: Jars | None, cluster: RunningCluster, extent: Extent, consumer: str) -> Figures:
    """Write with Kafka's ProducerPerformance, acks=all and idempotent as by default; then read once."""
    count = extent.records
    with cluster.topic(PARTITIONS) as topic:
        began = cluster.cpu_seconds()
        load = drive.ProduceLoad(count, RECORD_SIZE, warm_up=count // 4, settings={"acks": "all"})
        written = drive.produce(jars, cluster, topic, load)
        between = cluster.cpu_seconds()
        read = drive.consume(cluster, topic, count, tool=consumer)
        ended = cluster.cpu_seconds()
        figures = {
            "records_per_s": written.records_per_s,
            "p99_ms": written.p99_ms,
            "cpu_us": (between - began) / count * 1e6,
            "consume_records_per_s": read.records_per_s,
            "consume_cpu_us": (ended - between) / count * 1e6,
            "rss_mb": cluster.rss_bytes() / MIB,
        }
        return figures | ({"beside_mb": cluster.beside_rss_bytes() / MIB} if cluster.nodes.beside else {})


def _failover(how: Callable[[RunningCluster, str], float]) -> Work:
    def run(cluster: RunningCluster) -> Figures:
        with cluster.topic(1) as topic:
            gap = how(cluster, topic.name)
            cluster.await_in_sync(topic.name, 1)
            return {"gap_ms": gap}

    return run
