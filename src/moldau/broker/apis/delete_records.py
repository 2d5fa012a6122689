"""DeleteRecords 0–2: delete the records before an offset; -1 stands for the high watermark.

Answered when all live replicas have deleted them, or at the request's timeout.
"""

import asyncio

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.broker.leaders import absent
from moldau.replication.leader import Leader
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


async def delete_records(ctx: DataContext, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    topics = tuple(
        DeleteRecordsTopicResult(
            name=topic.name, partitions=tuple(_delete(ctx, topic.name, asked) for asked in topic.partitions)
        )
        for topic in request.topics
    )
    topics = await _everywhere(ctx, topics, request.timeout_ms / 1000)
    # Deleted records stay deleted after a crash: the response waits for the log start offset on disk.
    if not await ctx.replicas.checkpoint():
        topics = tuple(
            DeleteRecordsTopicResult(name=topic.name, partitions=tuple(map(_unsafe, topic.partitions)))
            for topic in topics
        )
    return DeleteRecordsResponse(topics=topics)


async def _everywhere(
    ctx: DataContext, topics: tuple[DeleteRecordsTopicResult, ...], patience_s: float
) -> tuple[DeleteRecordsTopicResult, ...]:
    """The results with the low watermark of all replicas, to which followers move with their next fetches."""
    deadline = asyncio.get_running_loop().time() + patience_s
    found: list[DeleteRecordsTopicResult] = []
    for topic in topics:
        rows: list[DeleteRecordsPartitionResult] = []
        for each in topic.partitions:
            rows.append(await _reached(ctx, topic.name, each, deadline))  # noqa: PERF401 - one after the other
        found.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(rows)))
    return tuple(found)


async def _reached(
    ctx: DataContext, topic: str, result: DeleteRecordsPartitionResult, deadline: float
) -> DeleteRecordsPartitionResult:
    partition = ctx.replicas.get(topic, result.partition_index)
    role = partition.role if partition is not None else None
    if partition is None or result.error_code or not isinstance(role, Leader):
        return result
    if role.low_watermark < result.low_watermark:
        reached = asyncio.Event()
        give_up = role.when_low(result.low_watermark, reached.set)
        try:
            async with asyncio.timeout_at(deadline):
                await reached.wait()
        except TimeoutError:
            give_up()
            return _failed(result, WireError.REQUEST_TIMED_OUT)
    if not partition.leads or partition.role is not role:
        return _failed(result, WireError.NOT_LEADER_OR_FOLLOWER)
    return DeleteRecordsPartitionResult(
        partition_index=result.partition_index, low_watermark=role.low_watermark, error_code=WireError.NONE
    )


def _unsafe(result: DeleteRecordsPartitionResult) -> DeleteRecordsPartitionResult:
    """The log start offset could not be written: the client may safely retry."""
    if result.error_code:
        return result
    return _failed(result, WireError.KAFKA_STORAGE_ERROR)


def _delete(ctx: DataContext, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    partition = ctx.replicas.get(topic, asked.partition_index)
    if partition is None:
        return _failure(asked, absent(ctx, topic.encode(), asked.partition_index, by_id=False)[0])
    if partition.offline:
        return _failure(asked, WireError.KAFKA_STORAGE_ERROR)
    if not partition.leads:
        return _failure(asked, WireError.NOT_LEADER_OR_FOLLOWER)
    if not partition.log.config.deletes:
        return _failure(asked, WireError.POLICY_VIOLATION)
    offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= partition.high_watermark:
        return _failure(asked, WireError.OFFSET_OUT_OF_RANGE)
    removed = partition.log.advance_start(offset)
    ctx.replicas.deletes.schedule(removed, partition.log.config.file_delete_delay_ms)
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=partition.log.start_offset, error_code=WireError.NONE
    )


def _failure(asked: DeleteRecordsPartition, error: WireError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error
    )


def _failed(result: DeleteRecordsPartitionResult, error: WireError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=result.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error
    )
