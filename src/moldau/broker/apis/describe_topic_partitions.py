"""DescribeTopicPartitions 0 (KIP-966): topics in the order of their names, a page of partitions at a time."""

from moldau.base.errors import WireError
from moldau.broker.availability import seen
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.metadata.image import NO_BROKER, Topic
from moldau.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.wire.primitives import ZERO_UUID


def describe_topic_partitions(
    ctx: ControlContext, request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    image = ctx.controller.image
    room = max(min(request.response_partition_limit, ctx.config.max_request_partition_size_limit), 1)
    cursor = request.cursor
    names = sorted({each.name for each in request.topics} or image.topics)
    described: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        first = max(cursor.partition_index, 0) if cursor is not None and name == cursor.topic_name else 0
        if room <= 0:
            return DescribeTopicPartitionsResponse(
                topics=tuple(described), next_cursor=Cursor(topic_name=name, partition_index=first)
            )
        topic = image.topics.get(name)
        if topic is None:
            described.append(_missing(name))
            continue
        described.append(_describe(ctx, topic, first, room))
        shown = len(described[-1].partitions)
        room -= shown
        if first + shown < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=tuple(described), next_cursor=Cursor(topic_name=name, partition_index=first + shown)
            )
    return DescribeTopicPartitionsResponse(topics=tuple(described))


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=WireError.UNKNOWN_TOPIC_OR_PARTITION, name=name, topic_id=ZERO_UUID, partitions=()
    )


def _describe(ctx: ControlContext, topic: Topic, first: int, room: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=WireError.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=tuple(
            DescribeTopicPartitionsResponsePartition(
                error_code=state.error,
                partition_index=partition.index,
                leader_id=state.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.elr,
                last_known_elr=() if partition.last == NO_BROKER else (partition.last,),
                offline_replicas=state.offline_replicas,
            )
            for partition in topic.partitions[first : first + room]
            for state in (seen(ctx, topic.name, partition),)
        ),
    )
