"""DescribeGroups: classic groups with their members, subscriptions and assignments.

Version 3 adds authorized operations (KIP-430), 4 static members, 6 error messages and an error for an unknown group
(KIP-1043).
"""

from moldau.wire.declare import (
    ASSIGNMENT,
    BOOL,
    GROUP_ID,
    INT16,
    INT32,
    STRING,
    SUBSCRIPTION,
    Array,
    message,
    struct,
    wire,
)

OPERATIONS_NOT_ASKED_FOR = -(2**31)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest:
    groups: tuple[str, ...] = wire(Array(GROUP_ID))
    include_authorized_operations: bool = wire(BOOL, since=3, default=False)


@struct
class DescribedGroupMember:
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=4, since=4, default=None, ignorable=True)
    client_id: str = wire(STRING, default="")
    client_host: str = wire(STRING, default="")
    member_metadata: bytes = wire(SUBSCRIPTION, default=b"")
    member_assignment: bytes = wire(ASSIGNMENT, default=b"")


@struct
class DescribedGroup:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=6, since=6, default=None, ignorable=True)
    group_id: str = wire(GROUP_ID)
    group_state: str = wire(STRING, default="")
    protocol_type: str = wire(STRING, default="")
    protocol_data: str = wire(STRING, default="")
    members: tuple[DescribedGroupMember, ...] = wire(Array(DescribedGroupMember), default=())
    authorized_operations: int = wire(INT32, since=3, default=OPERATIONS_NOT_ASKED_FOR)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
