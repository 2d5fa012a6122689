"""AlterPartitionReassignments: reassign the replicas of partitions, or cancel that (KIP-455).

Version 1 can forbid a change of the replication factor (KIP-860).
"""

from moldau.wire.declare import BOOL, INT16, INT32, STRING, TOPIC_NAME, Array, message, struct, wire


@struct
class ReassignablePartition:
    partition_index: int = wire(INT32)
    replicas: tuple[int, ...] | None = wire(Array(INT32), nullable=0, default=None)  # None: cancel


@struct
class ReassignableTopic:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[ReassignablePartition, ...] = wire(Array(ReassignablePartition))


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = wire(INT32, default=60000)
    allow_replication_factor_change: bool = wire(BOOL, since=1, default=True)
    topics: tuple[ReassignableTopic, ...] = wire(Array(ReassignableTopic))


@struct
class ReassignablePartitionResponse:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)


@struct
class ReassignableTopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[ReassignablePartitionResponse, ...] = wire(Array(ReassignablePartitionResponse))


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    allow_replication_factor_change: bool = wire(BOOL, since=1, default=True, ignorable=True)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    responses: tuple[ReassignableTopicResponse, ...] = wire(Array(ReassignableTopicResponse))
