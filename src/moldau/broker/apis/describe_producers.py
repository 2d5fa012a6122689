"""DescribeProducers 0 (KIP-664): the state of a partition's active producers."""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.log.producers import Producer
from moldau.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def describe_producers(ctx: DataContext, request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(_describe(ctx, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in request.topics
        )
    )


def _describe(ctx: DataContext, topic: str, index: int) -> PartitionResponse:
    partition = ctx.replicas.get(topic, index)
    if partition is None:
        error = WireError.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResponse(partition_index=index, error_code=error, error_message=error.doc, active_producers=())
    return PartitionResponse(
        partition_index=index,
        error_code=WireError.NONE,
        active_producers=tuple(_state(producer) for producer in partition.log.producers),
    )


def _state(producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.txn_start_offset,
    )
