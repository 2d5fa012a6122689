"""OffsetForLeaderEpoch 2–4: the end offset of a leader epoch, for consumers that check for log truncation."""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.broker.leaders import absent
from moldau.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(
    ctx: DataContext, request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(_end_offset(ctx, topic.topic, asked) for asked in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _end_offset(ctx: DataContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = ctx.replicas.get(topic, asked.partition)
    if partition is None:
        code, _ = absent(ctx, topic.encode(), asked.partition, by_id=False)
        return EpochEndOffset(error_code=code, partition=asked.partition)
    if partition.offline:
        return EpochEndOffset(error_code=WireError.KAFKA_STORAGE_ERROR, partition=asked.partition)
    refused = partition.fenced(asked.current_leader_epoch) or partition.not_led()
    if refused:
        return EpochEndOffset(error_code=refused, partition=asked.partition)
    epoch, end = partition.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(error_code=WireError.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end)
