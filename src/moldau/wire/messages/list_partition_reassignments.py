"""ListPartitionReassignments: the ongoing reassignments of partitions (KIP-455)."""

from moldau.wire.declare import INT16, INT32, STRING, TOPIC_NAME, Array, message, struct, wire


@struct
class ListPartitionReassignmentsTopics:
    name: str = wire(TOPIC_NAME)
    partition_indexes: tuple[int, ...] = wire(Array(INT32))


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    timeout_ms: int = wire(INT32, default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(
        Array(ListPartitionReassignmentsTopics), nullable=0, default=None
    )


@struct
class OngoingPartitionReassignment:
    partition_index: int = wire(INT32)
    replicas: tuple[int, ...] = wire(Array(INT32))
    adding_replicas: tuple[int, ...] = wire(Array(INT32))
    removing_replicas: tuple[int, ...] = wire(Array(INT32))


@struct
class OngoingTopicReassignment:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[OngoingPartitionReassignment, ...] = wire(Array(OngoingPartitionReassignment))


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    topics: tuple[OngoingTopicReassignment, ...] = wire(Array(OngoingTopicReassignment))
