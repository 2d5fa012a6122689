"""DescribeProducers: the active producers of partitions (KIP-664)."""

from moldau.wire.declare import INT16, INT32, INT64, STRING, TOPIC_NAME, Array, message, struct, wire


@struct
class TopicRequest:
    name: str = wire(TOPIC_NAME)
    partition_indexes: tuple[int, ...] = wire(Array(INT32))


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest:
    topics: tuple[TopicRequest, ...] = wire(Array(TopicRequest))


@struct
class ProducerState:
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@struct
class PartitionResponse:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    active_producers: tuple[ProducerState, ...] = wire(Array(ProducerState))


@struct
class TopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[PartitionResponse, ...] = wire(Array(PartitionResponse))


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[TopicResponse, ...] = wire(Array(TopicResponse))
