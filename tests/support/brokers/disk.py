"""Partition directories, located with DescribeLogDirs, and the batches in their segments."""

from pathlib import Path

import pytest

from support.brokers.processes import AnyBroker
from support.clients.raw import RawClient
from support.log.batches import Stored, read_batches


def partition_directory(broker: AnyBroker, topic: str, partition: int = 0) -> Path:
    """The partition's directory; the test is skipped if it is on another machine."""
    with RawClient(broker.bootstrap) as client:
        for result in client.log_dirs():
            if any(listed.name == topic for listed in result.topics):
                directory = Path(result.log_dir) / f"{topic}-{partition}"
                if not directory.is_dir():
                    pytest.skip(f"the log is on another machine: {directory}")
                return directory
    raise AssertionError(f"{topic} is in none of the broker's log directories")


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def stored_batches(broker: AnyBroker, topic: str, partition: int = 0) -> list[Stored]:
    """Every batch of a partition, as stored."""
    directory = partition_directory(broker, topic, partition)
    return [found for segment in segments(directory) for found in read_batches(segment.read_bytes())]


def stored_codecs(broker: AnyBroker, topic: str, partition: int = 0) -> set[int]:
    """The codecs in the attributes of the stored batches."""
    return {found.codec for found in stored_batches(broker, topic, partition)}
