"""SyncGroup: the leader of a classic group sends the assignment, and each member gets its part.

Version 3 adds static members (KIP-345), 5 protocol type and name, to detect a mismatch with the group (KIP-559).
"""

from moldau.wire.declare import ASSIGNMENT, GROUP_ID, INT16, INT32, STRING, Array, message, struct, wire


@struct
class SyncGroupAssignment:
    member_id: str = wire(STRING)
    assignment: bytes = wire(ASSIGNMENT)


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest:
    group_id: str = wire(GROUP_ID)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=3, since=3, default=None)
    protocol_type: str | None = wire(STRING, nullable=5, since=5, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, nullable=5, since=5, default=None, ignorable=True)
    assignments: tuple[SyncGroupAssignment, ...] = wire(Array(SyncGroupAssignment), default=())  # from the leader only


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
    protocol_type: str | None = wire(STRING, nullable=5, since=5, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, nullable=5, since=5, default=None, ignorable=True)
    assignment: bytes = wire(ASSIGNMENT, default=b"")
