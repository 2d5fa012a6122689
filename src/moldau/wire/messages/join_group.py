"""JoinGroup: join a classic group.

Version 1 adds the rebalance timeout, 5 static members (KIP-345), 7 the protocol type in the response, 8 a reason
(KIP-800), 9 lets the leader skip the assignment (KIP-814). From 4 on a member without an id gets one and joins again
with it (KIP-394). The protocol name may be null from 7 on; before, it is empty in a response with an error.
"""

from moldau.wire.declare import BOOL, GROUP_ID, INT16, INT32, STRING, SUBSCRIPTION, Array, message, struct, wire


@struct
class JoinGroupProtocol:
    name: str = wire(STRING)
    metadata: bytes = wire(SUBSCRIPTION)


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest:
    group_id: str = wire(GROUP_ID)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1, ignorable=True)  # -1: the session timeout
    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, nullable=5, since=5, default=None)
    protocol_type: str = wire(STRING)
    protocols: tuple[JoinGroupProtocol, ...] = wire(Array(JoinGroupProtocol))
    reason: str | None = wire(STRING, nullable=8, since=8, default=None, ignorable=True)


@struct
class JoinGroupMember:
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=5, since=5, default=None, ignorable=True)
    metadata: bytes = wire(SUBSCRIPTION, default=b"")


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, nullable=7, since=7, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, nullable=7, default="")
    leader: str = wire(STRING, default="")
    skip_assignment: bool = wire(BOOL, since=9, default=False)
    member_id: str = wire(STRING, default="")
    members: tuple[JoinGroupMember, ...] = wire(Array(JoinGroupMember), default=())
