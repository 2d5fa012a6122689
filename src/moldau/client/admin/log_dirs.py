"""Log directories of brokers: which partitions lie where, how large they are, and how much space is left."""

from collections.abc import Iterable
from dataclasses import dataclass

from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster import Cluster
from moldau.client.admin.errors import refused
from moldau.client.admin.target import reason_of
from moldau.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

FULL_BYTES = 4 << 20
LOW_BYTES, LOW_SHARE = 10 << 30, 0.05


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

    @property
    def problem(self) -> str:
        """Why it takes no records: offline or full; empty if it takes them."""
        name = f"log directory {self.path} of broker {self.broker}"
        if self.error:
            return f"{name} is offline ({self.error})"
        if 0 <= self.usable_bytes < FULL_BYTES:
            return f"{name} is full ({self.usable_bytes:,} bytes left)"
        return ""

    @property
    def is_low(self) -> bool:
        """Whether it fills up: little of its volume is left."""
        low = min(LOW_BYTES, int(self.total_bytes * LOW_SHARE))
        return not self.problem and self.total_bytes >= 0 and 0 <= self.usable_bytes < low


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


def sick_directories(found: LogDirs) -> list[LogDir]:
    """Those that take no records."""
    return [each for each in found.directories if each.problem]


def _directory(broker: int, row: DescribeLogDirsResult, wanted: set[str] | None) -> LogDir:
    replicas = tuple(
        StoredReplica(
            TopicPartition(topic.name, each.partition_index), each.partition_size, each.is_future_key, each.offset_lag
        )
        for topic in row.topics
        if wanted is None or topic.name in wanted
        for each in topic.partitions
    )
    error = refused(row.error_code, "").name if row.error_code else ""
    return LogDir(broker, row.log_dir, error, row.total_bytes, row.usable_bytes, replicas)
