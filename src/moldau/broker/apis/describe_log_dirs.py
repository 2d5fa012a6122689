"""DescribeLogDirs 1–5: the partitions and sizes in each log directory. 4: volume sizes. 5: cordoned."""

import os

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.log.directory import LogDirectory
from moldau.replication.move import Move
from moldau.replication.partition import Partition
from moldau.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_SIZE = -1


def describe_log_dirs(ctx: DataContext, request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=tuple(_describe(ctx, directory, wanted) for directory in ctx.replicas.directories)
    )


def _describe(ctx: DataContext, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if directory.offline:
        path = str(directory.path.absolute())
        return DescribeLogDirsResult(error_code=WireError.KAFKA_STORAGE_ERROR, log_dir=path, topics=())
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in ctx.replicas.directories.partitions_in(directory):
        if wanted is None or (partition.topic, partition.index) in wanted:
            by_topic.setdefault(partition.topic, []).append(_partition(partition))
    for partition, move in ctx.replicas.moves.items():
        if move.target is directory and (wanted is None or (partition.topic, partition.index) in wanted):
            by_topic.setdefault(partition.topic, []).append(_future(partition, move))
    total, usable = _volume(directory)
    return DescribeLogDirsResult(
        error_code=WireError.NONE,
        log_dir=str(directory.path.absolute()),
        topics=tuple(DescribeLogDirsTopic(name=name, partitions=tuple(rows)) for name, rows in by_topic.items()),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=directory.cordoned,
    )


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=partition.log.size, offset_lag=0, is_future_key=False
    )


def _future(partition: Partition, move: Move) -> DescribeLogDirsPartition:
    """KIP-113: a future replica, which is being moved here, and its lag."""
    size = move.copy.size if move.copy is not None else 0
    return DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=size, offset_lag=move.lag, is_future_key=True
    )


def _volume(directory: LogDirectory) -> tuple[int, int]:
    try:
        volume = os.statvfs(directory.path)
    except OSError:
        return UNKNOWN_SIZE, UNKNOWN_SIZE
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
