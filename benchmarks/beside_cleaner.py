"""A producer's p99 while the broker's cleaner works on another topic. Of Moldau, whose cleaners are processes."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks import frames, topics
from benchmarks.compaction import BATCH_RECORDS, CASES, batches
from benchmarks.findings import Finding, p99
from benchmarks.measures import PARTITIONS
from benchmarks.peers import Kind, Peer, Started, cpu_seconds, running
from benchmarks.topics import IN_FLIGHT, Topic

CLEANS_PER_S = 700_000  # records to prepare for each second of the measurement
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "104857600"}  # as of __consumer_offsets

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Compacting(Started):
    """A broker that checks for dirty logs often."""

    def command(self, home: Path, port: int) -> list[str]:
        return [*self.kind.command(home, port), "--set", "log.cleaner.backoff.ms=50"]


def beside_cleaner(kind: Kind, scratch: Path, seconds: float, pairs: int, say: Say) -> Finding:
    """The p99 alone, and while another topic is cleaned."""
    alone, disturbed, shares = [], [], []
    data = batches(CASES[0], 200 * BATCH_RECORDS, time.time_ns() // 1_000_000)
    with running(Compacting(kind), scratch, "compacting") as peer:
        probe = topics.create(peer, PARTITIONS)
        p99(peer, probe, min(seconds, 5))  # warm up both ends
        for number in range(pairs):
            say(f"p99 alone, and while a log is compacted: {number + 1} of {pairs}")
            dirty = topics.create(peer, 1, {**COMPACTED, "min.cleanable.dirty.ratio": "1.0"})
            _fill(peer, dirty, data, int(CLEANS_PER_S * seconds) // BATCH_RECORDS)
            os.sync()
            alone.append(p99(peer, probe, seconds))
            _make_due(peer, dirty)
            used = _cleaner_cpu(peer)
            began = time.perf_counter()
            disturbed.append(p99(peer, probe, seconds))
            shares.append((_cleaner_cpu(peer) - used) / (time.perf_counter() - began))
            topics.delete(peer, dirty)
    note = f"the cleaner used {median(shares):.0%} of a core meanwhile"
    return Finding(
        "p99-compaction", "p99 while a log is compacted", median(alone), median(disturbed), "ms", "≤ 1.5", note
    )


def _fill(peer: Peer, target: Topic, data: list[bytes], count: int) -> None:
    requests = [frames.produce(target.id, [(0, each)]) for each in data]
    with frames.Connection(peer.address) as connection:
        for number in range(count + IN_FLIGHT):
            if number < count:
                connection.send(requests[number % len(requests)])
            if number >= IN_FLIGHT:
                frames.check_produced(connection.receive(), 1)


def _make_due(peer: Peer, target: Topic) -> None:
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, target.name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(topics.LIMIT_S)
    deadline = time.monotonic() + topics.LIMIT_S
    while not psutil.Process(peer.pid).children():
        if time.monotonic() > deadline:
            raise TimeoutError("no cleaner was started")
        time.sleep(0.01)


def _cleaner_cpu(peer: Peer) -> float:
    """CPU seconds of the broker's cleaner processes so far, including ended ones."""
    broker = psutil.Process(peer.pid)
    ended = broker.cpu_times()
    return float(ended.children_user + ended.children_system) + sum(cpu_seconds(each.pid) for each in broker.children())
