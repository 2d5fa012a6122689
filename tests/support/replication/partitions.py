"""Partitions with real logs, for tests of the replication room."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from moldau.base.errors import Refusal
from moldau.base.later import Later
from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.replication.appender import Appended, Outcome
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from support.log.batches import Written, batch
from support.log.logs import NOW, open_log

VERSION = 12
TOPIC_ID = UUID(int=7)


def a_partition(directory: Path, config: LogConfig | None = None, leader_epoch: int = 3) -> Partition:
    return Partition("topic", 0, open_log(directory, config), leader_epoch)


def abandon(replicas: Replicas, directories: Iterable[LogDirectory]) -> None:
    """Let go of the directories as a killed process would: nothing is flushed, nothing marked."""
    for partition in replicas:
        partition.log.close(clean=False)
    for directory in directories:
        directory.close(clean=False)


def some(*values: bytes, key: bytes | None = b"key", **options: Any) -> memoryview:
    """A batch with these values, with the tests' current time as timestamp."""
    records = [Written(value, key) for value in values or (b"value",)]
    return memoryview(batch(*records, **{"timestamp": NOW, **options}))


class Outcomes:
    """Produces to a partition, and keeps the outcomes in order of arrival."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.later: list[Outcome] = []

    def produce(self, data: memoryview, version: int = VERSION) -> Outcome | None:
        """The outcome, or None if it comes later."""
        outcome = self.partition.appender.produce(data, version, NOW)
        if not isinstance(outcome, Later):
            return outcome
        outcome.then(self.later.append)
        return None

    def offset(self, data: memoryview) -> int:
        outcome = self.produce(data)
        assert isinstance(outcome, Appended), outcome
        return outcome.base_offset

    def refusal(self, data: memoryview, version: int = VERSION) -> Refusal:
        outcome = self.produce(data, version)
        assert isinstance(outcome, Refusal), outcome
        return outcome
