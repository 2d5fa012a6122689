"""DeleteRecords 0–2: everything before an offset goes; -1 stands for the high watermark."""

from dataclasses import replace

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.broker.leaders import absent
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


async def delete_records(ctx: Context, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    topics = tuple(
        DeleteRecordsTopicResult(
            name=topic.name, partitions=tuple(_delete(ctx, topic.name, asked) for asked in topic.partitions)
        )
        for topic in request.topics
    )
    # What was deleted stays deleted over a crash: the answer waits for the new log start on disk.
    if not await ctx.replicas.checkpoint():
        topics = tuple(replace(topic, partitions=tuple(map(_unsafe, topic.partitions))) for topic in topics)
    return DeleteRecordsResponse(topics=topics)


def _unsafe(result: DeleteRecordsPartitionResult) -> DeleteRecordsPartitionResult:
    """The disk did not take it: the client asks again, which does no harm."""
    if result.error_code:
        return result
    return replace(result, error_code=WireError.KAFKA_STORAGE_ERROR, low_watermark=NO_LOW_WATERMARK)


def _delete(ctx: Context, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
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
    ctx.replicas.remove_later(removed, partition.log.config.file_delete_delay_ms)
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=partition.log.start_offset, error_code=WireError.NONE
    )


def _failure(asked: DeleteRecordsPartition, error: WireError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=error
    )
