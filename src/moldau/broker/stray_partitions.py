"""Partitions that log directories contain, whether or not the metadata has their topics."""

import logging
from collections.abc import Iterable
from pathlib import Path

from moldau.base.ids import TopicPartition
from moldau.log.directory import LogDirectory
from moldau.metadata.image import ClusterImage

logger = logging.getLogger("moldau.broker")

NAMED_AT_MOST = 5  # names in one line of the log


def partitions_in(directories: Iterable[LogDirectory]) -> dict[TopicPartition, Path]:
    return {key: path for directory in directories for key, path in directory.partitions().items()}


def unknown_partitions(image: ClusterImage, directories: list[LogDirectory]) -> list[Path]:
    """Partition directories that belong to no topic; they are left alone and named in the log."""
    return [
        path
        for directory in directories
        for (topic, index), path in directory.partitions().items()
        if image.partition(topic, index) is None
    ]


def warn_of_unknown(image: ClusterImage, directories: list[LogDirectory]) -> None:
    unknown = unknown_partitions(image, directories)
    if unknown:
        logger.warning(
            "%d partition directories belong to no topic and are left as they are: %s",
            len(unknown),
            some(map(str, unknown)),
        )


def some(names: Iterable[str]) -> str:
    """The first few of many names."""
    listed = sorted(names)
    return ", ".join(listed[:NAMED_AT_MOST]) + (", …" if len(listed) > NAMED_AT_MOST else "")
