"""Log directories of brokers: which partitions lie where, how large they are, and how much space is left."""

from collections.abc import Iterable
from dataclasses import dataclass

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster import Cluster
from moldau.client.admin.target import reason_of
from moldau.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class StoredReplica:
    partition: TopicPartition
    size: int  # bytes
    is_future: bool  # a copy on its way to another directory
    offset_lag: int


@dataclass(frozen=True, slots=True)
class LogDir:
    """One directory of one broker. Sizes are of its volume, -1 if the broker does not tell (before Kafka 3.3)."""

    broker: int
    path: str
    error: str  # Kafka's name of the error of an offline directory; empty if it is online
    total_bytes: int
    usable_bytes: int
    replicas: tuple[StoredReplica, ...]


@dataclass(frozen=True, slots=True)
class LogDirs:
    directories: tuple[LogDir, ...]
    unreachable: dict[int, str]  # brokers that did not answer, and why


def read_log_dirs(cluster: Cluster, topics: Iterable[str] | None = None) -> LogDirs:
    """The directories of all brokers, with the replicas of these topics (of all if None)."""
    wanted = None if topics is None else set(topics)
    found: list[LogDir] = []
    unreachable: dict[int, str] = {}
    for broker in cluster.ids:
        try:
            answer = cluster.broker(broker).ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        except OSError as problem:
            unreachable[broker] = reason_of(problem)
            continue
        found += [_directory(broker, row, wanted) for row in answer.results]
    return LogDirs(tuple(found), unreachable)


def _directory(broker: int, row: DescribeLogDirsResult, wanted: set[str] | None) -> LogDir:
    replicas = tuple(
        StoredReplica(
            TopicPartition(topic.name, each.partition_index), each.partition_size, each.is_future_key, each.offset_lag
        )
        for topic in row.topics
        if wanted is None or topic.name in wanted
        for each in topic.partitions
    )
    error = WireError(row.error_code).name if row.error_code else ""
    return LogDir(broker, row.log_dir, error, row.total_bytes, row.usable_bytes, replicas)
