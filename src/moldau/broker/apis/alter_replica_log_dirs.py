"""AlterReplicaLogDirs 1–2 (KIP-113): move partitions into other log directories. Answered when the moves have begun."""

from pathlib import Path

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.log.directory import LogDirectory
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def alter_replica_log_dirs(
    ctx: DataContext, request: AlterReplicaLogDirsRequest, call: Call
) -> AlterReplicaLogDirsResponse:
    results: dict[str, dict[int, WireError]] = {}
    for asked in request.dirs:
        target = _directory(ctx, asked.path)
        for topic in asked.topics:
            for index in topic.partitions:
                results.setdefault(topic.name, {})[index] = await _move(ctx, topic.name, index, target)
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in partitions.items()
                ),
            )
            for name, partitions in results.items()
        )
    )


def _directory(ctx: DataContext, path: str) -> LogDirectory | None:
    asked = Path(path).absolute()
    return next((each for each in ctx.replicas.directories if each.path.absolute() == asked), None)


async def _move(ctx: DataContext, topic: str, index: int, target: LogDirectory | None) -> WireError:
    if target is None:
        return WireError.LOG_DIR_NOT_FOUND
    if target.offline or (topic, index) in ctx.replicas.offline:
        return WireError.KAFKA_STORAGE_ERROR
    partition = ctx.replicas.get(topic, index)
    if partition is None:
        return WireError.UNKNOWN_TOPIC_OR_PARTITION
    await ctx.replicas.moves.begin(partition, target)
    return WireError.NONE
