"""DescribeTopicPartitions: describe topics page by page, with a cursor (KIP-966)."""

from uuid import UUID

from moldau.wire.declare import BOOL, INT16, INT32, TOPIC_ID, TOPIC_NAME, Array, message, struct, wire


@struct
class TopicRequest:
    name: str = wire(TOPIC_NAME)


@struct
class Cursor:
    topic_name: str = wire(TOPIC_NAME)
    partition_index: int = wire(INT32)


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest:
    topics: tuple[TopicRequest, ...] = wire(Array(TopicRequest))
    response_partition_limit: int = wire(INT32, default=2000)
    cursor: Cursor | None = wire(Cursor, nullable=0, default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    replica_nodes: tuple[int, ...] = wire(Array(INT32))
    isr_nodes: tuple[int, ...] = wire(Array(INT32))
    eligible_leader_replicas: tuple[int, ...] | None = wire(Array(INT32), nullable=0, default=None)
    last_known_elr: tuple[int, ...] | None = wire(Array(INT32), nullable=0, default=None)
    offline_replicas: tuple[int, ...] = wire(Array(INT32))


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = wire(INT16)
    name: str | None = wire(TOPIC_NAME, nullable=0)
    topic_id: UUID = wire(TOPIC_ID)
    is_internal: bool = wire(BOOL, default=False)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        Array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = wire(INT32, default=-2147483648)


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = wire(Cursor, nullable=0, default=None)
