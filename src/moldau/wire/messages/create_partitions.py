"""CreatePartitions: add partitions to topics.

Versions 1 to 3 differ in encoding and quota errors only.
"""

from moldau.wire.declare import BOOL, INT16, INT32, STRING, TOPIC_NAME, Array, message, struct, wire


@struct
class CreatePartitionsAssignment:
    broker_ids: tuple[int, ...] = wire(Array(INT32))


@struct
class CreatePartitionsTopic:
    name: str = wire(TOPIC_NAME)
    count: int = wire(INT32)
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(Array(CreatePartitionsAssignment), nullable=0)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...] = wire(Array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


@struct
class CreatePartitionsTopicResult:
    name: str = wire(TOPIC_NAME)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(Array(CreatePartitionsTopicResult))
