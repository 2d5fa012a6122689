"""LeaveGroup: remove members from a classic group, by member id or group instance id.

Version 3 has several members (KIP-345), 5 adds reasons (KIP-800). Earlier versions have one member, here a list of
one, and one error: that of the group or else of the member.
"""

from moldau.wire.declare import GROUP_ID, INT16, INT32, STRING, Array, message, older_form, struct, wire
from moldau.wire.primitives import Unencodable


@struct
class LeaveGroupMember:
    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, nullable=3, default=None)
    reason: str | None = wire(STRING, nullable=5, since=5, default=None, ignorable=True)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    group_id: str = wire(GROUP_ID)
    members: tuple[LeaveGroupMember, ...] = wire(Array(LeaveGroupMember))


@older_form(of=LeaveGroupRequest, until=2)
class OneLeavesGroupRequest:
    group_id: str = wire(GROUP_ID)
    member_id: str = wire(STRING)

    def to_newest(self) -> LeaveGroupRequest:
        return LeaveGroupRequest(group_id=self.group_id, members=(LeaveGroupMember(member_id=self.member_id),))

    @classmethod
    def from_newest(cls, newest: LeaveGroupRequest) -> "OneLeavesGroupRequest":
        if len(newest.members) != 1 or newest.members[0].group_instance_id is not None:
            raise Unencodable("LeaveGroupRequest before version 3 has exactly one member, by its id")
        return cls(group_id=newest.group_id, member_id=newest.members[0].member_id)


@struct
class LeaveGroupMemberResponse:
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=3, default=None)
    error_code: int = wire(INT16, default=0)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    members: tuple[LeaveGroupMemberResponse, ...] = wire(Array(LeaveGroupMemberResponse), default=())


@older_form(of=LeaveGroupResponse, until=2)
class OneLeftGroupResponse:
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16)

    def to_newest(self) -> LeaveGroupResponse:
        return LeaveGroupResponse(throttle_time_ms=self.throttle_time_ms, error_code=self.error_code)

    @classmethod
    def from_newest(cls, newest: LeaveGroupResponse) -> "OneLeftGroupResponse":
        if len(newest.members) > 1:
            raise Unencodable("LeaveGroupResponse before version 3 is about one member")
        errors = (newest.error_code, *(member.error_code for member in newest.members))
        error_code = next((code for code in errors if code), 0)
        return cls(throttle_time_ms=newest.throttle_time_ms, error_code=error_code)
