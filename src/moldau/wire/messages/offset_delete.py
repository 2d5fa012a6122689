"""OffsetDelete: delete committed offsets of a group (KIP-496)."""

from moldau.wire.declare import GROUP_ID, INT16, INT32, TOPIC_NAME, Array, message, struct, wire


@struct
class OffsetDeletePartition:
    partition_index: int = wire(INT32)


@struct
class OffsetDeleteTopic:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[OffsetDeletePartition, ...] = wire(Array(OffsetDeletePartition))


@message(key=47, versions=(0, 0), flexible=None)
class OffsetDeleteRequest:
    group_id: str = wire(GROUP_ID)
    topics: tuple[OffsetDeleteTopic, ...] = wire(Array(OffsetDeleteTopic))


@struct
class OffsetDeletePartitionResponse:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16, default=0)


@struct
class OffsetDeleteTopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[OffsetDeletePartitionResponse, ...] = wire(Array(OffsetDeletePartitionResponse))


@message(key=47, versions=(0, 0), flexible=None)
class OffsetDeleteResponse:
    error_code: int = wire(INT16, default=0)
    throttle_time_ms: int = wire(INT32, default=0)
    topics: tuple[OffsetDeleteTopicResponse, ...] = wire(Array(OffsetDeleteTopicResponse), default=())
