"""Heartbeat, LeaveGroup and session timeouts of classic members."""

from moldau.base.coordination import Caller, Decision, TimerKey
from moldau.base.errors import WireError
from moldau.groups.classic.builder import ClassicDecisionBuilder
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.classic.rebalance import complete, prepare, rebalance_or_complete
from moldau.groups.environment import GroupEnvironment
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.leave_group import (
    LeaveGroupMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)


def heartbeat(group: ClassicGroup | None, request: HeartbeatRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    error = _check_heartbeat(group, request)
    if error is not WireError.NONE or group is None:
        return Decision.reply(caller, HeartbeatResponse(error_code=error))
    builder = ClassicDecisionBuilder(group, env)
    builder.reset_session_timer(group.members[request.member_id])
    preparing = group.state is State.PREPARING
    builder.reply(
        caller, HeartbeatResponse(error_code=WireError.REBALANCE_IN_PROGRESS if preparing else WireError.NONE)
    )
    return builder.build()


def _check_heartbeat(group: ClassicGroup | None, request: HeartbeatRequest) -> WireError:
    if not request.group_id:
        return WireError.INVALID_GROUP_ID
    if group is None:
        return WireError.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is WireError.NONE and request.generation_id != group.generation:
        return WireError.ILLEGAL_GENERATION
    return error


def leave(group: ClassicGroup | None, request: LeaveGroupRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    if not request.group_id:
        return Decision.reply(caller, LeaveGroupResponse(error_code=WireError.INVALID_GROUP_ID))
    if group is None:
        errors = tuple(_left(each, WireError.UNKNOWN_MEMBER_ID) for each in request.members)
        return Decision.reply(caller, LeaveGroupResponse(members=errors))
    builder = ClassicDecisionBuilder(group, env)
    answers = tuple(_left(each, _leave_one(builder, each)) for each in request.members)
    if any(answer.error_code == WireError.NONE for answer in answers) and group.state is not State.EMPTY:
        rebalance_or_complete(builder)
    builder.reply(caller, LeaveGroupResponse(members=answers))
    return builder.build()


def _left(member: LeaveGroupMember, error: WireError) -> LeaveGroupMemberResponse:
    return LeaveGroupMemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error
    )


def _leave_one(builder: ClassicDecisionBuilder, leaving: LeaveGroupMember) -> WireError:
    """Remove a member by member id, or, for administrators, a static member by instance id alone."""
    group, member_id = builder.group, leaving.member_id
    if not member_id:
        static = group.static_member(leaving.group_instance_id)
        if static is None:
            return WireError.UNKNOWN_MEMBER_ID
        member_id = static.member_id
    elif member_id in group.pending:
        builder.cancel_timer("session", member_id)
        builder.group = group.without((member_id,))
        return WireError.NONE
    else:
        error = group.check_member(member_id, leaving.group_instance_id)
        if error is not WireError.NONE:
            return error
    builder.remove_member(member_id)
    return WireError.NONE


def on_session_timeout(group: ClassicGroup, key: TimerKey, env: GroupEnvironment) -> Decision:
    """The timer `session`: no heartbeat for the member's session timeout."""
    builder, member_id = ClassicDecisionBuilder(group, env), key[2]
    member = group.members.get(member_id)
    if member_id in group.pending:
        builder.group = group.without((member_id,))
    elif member is None or (not member.is_new and (member.joining is not None or member.syncing is not None)):
        return builder.build()  # no heartbeats are due while a request is pending; its response restarts the timer
    else:
        builder.remove_member(member_id)
        if group.state is not State.PREPARING:
            prepare(builder)
            return builder.build()
    if builder.group.state is State.PREPARING and builder.group.all_joined:
        complete(builder)
    return builder.build()
