"""Three brokers beside three of Apache Kafka: replicated produce and consume, fail-over, memory. Gives a plain value.

Both clusters are up; one is under load at a time. Fail-over is measured on clusters with their default settings, and on
others whose sessions are equally long.
"""

import contextlib
import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import drive, failover
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


@dataclass(frozen=True, slots=True)
class Extent:
    warm_up: int
    records: int
    failovers: int


FULL = Extent(warm_up=1_000_000, records=2_000_000, failovers=3)
QUICK = Extent(warm_up=20_000, records=100_000, failovers=1)

MEASURES = [
    Measure("produce", "produce 100 B, 3 replicas, acks=all", "load", "records_per_s", "records/s", "higher", 1.2),
    Measure("consume", "consume 100 B, librdkafka", "load", "consume_records_per_s", "records/s", "higher", 1.0),
    Measure("cpu-produce", "CPU per record of all brokers, produce", "load", "cpu_us", "µs", "lower", None),
    Measure("cpu-consume", "CPU per record of all brokers, consume", "load", "consume_cpu_us", "µs", "lower", None),
    Measure("memory", "resident memory of the three brokers", "load", "rss_mb", "MB", "lower", 0.1),
    Measure("beside", "and of ZooKeeper beside them", "load", "beside_mb", "MB", "lower", None),
    Measure("kill", "gap after kill -9 of a leader, defaults", "kill", "gap_ms", "ms", "lower", 1.0),
    Measure("kill-equal", "the same, sessions of 6 s", "kill-equal", "gap_ms", "ms", "lower", 1.0),
    Measure("pause", "gap after SIGSTOP of a leader, sessions of 6 s", "pause", "gap_ms", "ms", "lower", 1.0),
]


def compare(
    jars: Jars | None, extent: Extent, workdir: Path, consumer: str, *, kafka: bool, rounds: int, say: Say
) -> dict[str, Any]:
    """Medians of alternating rounds; without Kafka's jars ours alone."""
    theirs = jars if kafka else None
    taken: dict[str, dict[str, list[Figures]]] = {}
    with _clusters(_kinds(theirs, equal=False), workdir, say) as both:
        for cluster in both:
            say(f"warming {cluster.label}")
            with cluster.topic(PARTITIONS) as topic:
                drive.produce(jars, cluster, topic, drive.ProduceLoad(extent.warm_up, RECORD_SIZE))
                drive.consume(cluster, topic, extent.warm_up, tool=consumer)
        taken["load"] = _rounds("load", both, rounds, say, lambda cluster: _load(jars, cluster, extent, consumer))
        taken["kill"] = _rounds("kill", both, extent.failovers, say, _failover(failover.kill))
    with _clusters(_kinds(theirs, equal=True), workdir, say) as both:
        taken["kill-equal"] = _rounds("kill-equal", both, extent.failovers, say, _failover(failover.kill))
        taken["pause"] = _rounds("pause", both, extent.failovers, say, _failover(failover.pause))
    ours, others = MoldauCluster(), ApacheKafkaCluster(theirs) if theirs else None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(jars),
        "ours": f"{ours.name} {ours.version}, 3 brokers",
        "theirs": f"{others.name} {others.version}, 3 nodes" if others else None,
        "rounds": rounds,
        "consumer": consumer,
        "sizes": {name: getattr(extent, name) for name in Extent.__slots__},
        "measures": [summarise(measure, taken[measure.workload]) for measure in MEASURES],
        "figures": taken,
    }


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


def _rounds(
    name: str, both: list[RunningCluster], rounds: int, say: Say, run: Callable[[RunningCluster], Figures]
) -> dict[str, list[Figures]]:
    taken: dict[str, list[Figures]] = {cluster.label: [] for cluster in both}
    for number in range(rounds):
        for cluster in both if number % 2 == 0 else reversed(both):  # neither always follows the other
            say(f"{name}, round {number + 1} of {rounds}: {cluster.label}")
            taken[cluster.label].append(run(cluster))
    return taken


def _load(jars: Jars | None, cluster: RunningCluster, extent: Extent, consumer: str) -> Figures:
    """Written by Kafka's own perf tool with acks=all, idempotent as by default; then read once."""
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


def _failover(how: Callable[[RunningCluster, str], float]) -> Callable[[RunningCluster], Figures]:
    def run(cluster: RunningCluster) -> Figures:
        with cluster.topic(1) as topic:
            gap = how(cluster, topic.name)
            cluster.await_in_sync(topic.name, 1)
            return {"gap_ms": gap}

    return run
