"""ConsumerGroupDescribe: consumer groups with their members (KIP-848).

Version 1 adds the protocol of each member: -1 unknown, 0 classic, 1 consumer (KIP-1099).
"""

from uuid import UUID

from moldau.wire.declare import (
    BOOL,
    GROUP_ID,
    INT8,
    INT16,
    INT32,
    NAME_PATTERN,
    STRING,
    TOPIC_ID,
    TOPIC_NAME,
    Array,
    message,
    struct,
    wire,
)
from moldau.wire.messages.describe_groups import OPERATIONS_NOT_ASKED_FOR


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest:
    group_ids: tuple[str, ...] = wire(Array(GROUP_ID))
    include_authorized_operations: bool = wire(BOOL, default=False)


@struct
class ConsumerGroupDescribedTopic:
    topic_id: UUID = wire(TOPIC_ID)
    topic_name: str = wire(TOPIC_NAME)
    partitions: tuple[int, ...] = wire(Array(INT32))


@struct
class ConsumerGroupDescribedAssignment:
    topic_partitions: tuple[ConsumerGroupDescribedTopic, ...] = wire(Array(ConsumerGroupDescribedTopic), default=())


@struct
class ConsumerGroupDescribedMember:
    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, nullable=0, default=None)
    rack_id: str | None = wire(STRING, nullable=0, default=None)
    member_epoch: int = wire(INT32, default=0)
    client_id: str = wire(STRING, default="")
    client_host: str = wire(STRING, default="")
    subscribed_topic_names: tuple[str, ...] = wire(Array(TOPIC_NAME), default=())
    subscribed_topic_regex: str | None = wire(NAME_PATTERN, nullable=0, default=None)
    assignment: ConsumerGroupDescribedAssignment = wire(
        ConsumerGroupDescribedAssignment, default=ConsumerGroupDescribedAssignment()
    )
    target_assignment: ConsumerGroupDescribedAssignment = wire(
        ConsumerGroupDescribedAssignment, default=ConsumerGroupDescribedAssignment()
    )
    member_type: int = wire(INT8, since=1, default=-1, ignorable=True)


@struct
class ConsumerGroupDescribedGroup:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    group_id: str = wire(GROUP_ID)
    group_state: str = wire(STRING, default="")
    group_epoch: int = wire(INT32, default=0)
    assignment_epoch: int = wire(INT32, default=0)
    assignor_name: str = wire(STRING, default="")
    members: tuple[ConsumerGroupDescribedMember, ...] = wire(Array(ConsumerGroupDescribedMember), default=())
    authorized_operations: int = wire(INT32, default=OPERATIONS_NOT_ASKED_FOR)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    groups: tuple[ConsumerGroupDescribedGroup, ...] = wire(Array(ConsumerGroupDescribedGroup))
