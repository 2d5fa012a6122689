"""Members of a classic group live and go: Heartbeat, LeaveGroup, and the timer `session`."""

from moldau.base.coordination import Caller, Decision, TimerKey
from moldau.base.errors import WireError
from moldau.groups.classic.builder import Draft
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.classic.rebalance import complete, prepare, rebalance_or_complete
from moldau.groups.env import Env
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.leave_group import (
    LeaveGroupMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)


def heartbeat(group: ClassicGroup | None, request: HeartbeatRequest, caller: Caller, env: Env) -> Decision:
    error = _check_heartbeat(group, request)
    if error is not WireError.NONE or group is None:
        return Decision.reply(caller, HeartbeatResponse(error_code=error))
    draft = Draft(group, env)
    draft.expect_heartbeat(group.members[request.member_id])
    preparing = group.state is State.PREPARING
    draft.reply(caller, HeartbeatResponse(error_code=WireError.REBALANCE_IN_PROGRESS if preparing else WireError.NONE))
    return draft.decided()


def _check_heartbeat(group: ClassicGroup | None, request: HeartbeatRequest) -> WireError:
    if not request.group_id:
        return WireError.INVALID_GROUP_ID
    if group is None:
        return WireError.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is WireError.NONE and request.generation_id != group.generation:
        return WireError.ILLEGAL_GENERATION
    return error


def leave(group: ClassicGroup | None, request: LeaveGroupRequest, caller: Caller, env: Env) -> Decision:
    if not request.group_id:
        return Decision.reply(caller, LeaveGroupResponse(error_code=WireError.INVALID_GROUP_ID))
    if group is None:
        errors = tuple(_left(each, WireError.UNKNOWN_MEMBER_ID) for each in request.members)
        return Decision.reply(caller, LeaveGroupResponse(members=errors))
    draft = Draft(group, env)
    answers = tuple(_left(each, _leave_one(draft, each)) for each in request.members)
    if any(answer.error_code == WireError.NONE for answer in answers) and group.state is not State.EMPTY:
        rebalance_or_complete(draft)
    draft.reply(caller, LeaveGroupResponse(members=answers))
    return draft.decided()


def _left(member: LeaveGroupMember, error: WireError) -> LeaveGroupMemberResponse:
    return LeaveGroupMemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error
    )


def _leave_one(draft: Draft, leaving: LeaveGroupMember) -> WireError:
    """By member id, or, as an administrator removes static members, by instance id alone."""
    group, member_id = draft.group, leaving.member_id
    if not member_id:
        static = group.static_member(leaving.group_instance_id)
        if static is None:
            return WireError.UNKNOWN_MEMBER_ID
        member_id = static.member_id
    elif member_id in group.pending:
        draft.let_sleep("session", member_id)
        draft.group = group.without((member_id,))
        return WireError.NONE
    else:
        error = group.check_member(member_id, leaving.group_instance_id)
        if error is not WireError.NONE:
            return error
    draft.remove(member_id)
    return WireError.NONE


def session_is_over(group: ClassicGroup, key: TimerKey, env: Env) -> Decision:
    """The timer `session`: nothing was heard of the member for its session time-out."""
    draft, member_id = Draft(group, env), key[2]
    member = group.members.get(member_id)
    if member_id in group.pending:
        draft.group = group.without((member_id,))
    elif member is None or (not member.is_new and (member.joining is not None or member.syncing is not None)):
        return draft.decided()  # who waits for us need not send heartbeats; the timer is set again with the answer
    else:
        draft.remove(member_id)
        if group.state is not State.PREPARING:
            prepare(draft)
            return draft.decided()
    if draft.group.state is State.PREPARING and draft.group.all_joined:
        complete(draft)
    return draft.decided()
