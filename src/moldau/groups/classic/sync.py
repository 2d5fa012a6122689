"""SyncGroup to a classic group: the leader sends the assignment, and every member gets its part.

The assignment is committed before any member gets it, so an active generation survives a restart.
"""

from dataclasses import replace
from typing import Final

from moldau.base.coordination import Caller, Decision
from moldau.base.errors import WireError
from moldau.groups.classic.builder import ClassicDecisionBuilder
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.environment import GroupEnvironment
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED: Final = 5  # from this version on the request has the protocol (KIP-559)


def sync(group: ClassicGroup | None, request: SyncGroupRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    error = _check(group, request, caller)
    if error is not WireError.NONE or group is None:
        return Decision.reply(caller, SyncGroupResponse(error_code=error))
    builder = ClassicDecisionBuilder(group, env)
    _mark_synced(builder, request.member_id)
    member = builder.group.members[request.member_id]
    if group.state is State.STABLE:
        builder.reply_synced(caller, member)
        return builder.build()
    if member.syncing is not None:
        # The connection of its first SyncGroup is probably lost.
        builder.reply(member.syncing, SyncGroupResponse(error_code=WireError.REBALANCE_IN_PROGRESS))
    builder.put_member(replace(member, syncing=caller))
    if group.leader == request.member_id:
        _assign(builder, {each.member_id: each.assignment for each in request.assignments})
    return builder.build()


def _check(group: ClassicGroup | None, request: SyncGroupRequest, caller: Caller) -> WireError:
    if caller.version >= PROTOCOL_REQUIRED and (request.protocol_type is None or request.protocol_name is None):
        return WireError.INCONSISTENT_GROUP_PROTOCOL
    if not request.group_id:
        return WireError.INVALID_GROUP_ID
    if group is None:
        return WireError.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not WireError.NONE:
        return error
    if request.generation_id != group.generation:
        return WireError.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
        return WireError.INCONSISTENT_GROUP_PROTOCOL
    return WireError.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else WireError.NONE


def _differ(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual


def _mark_synced(builder: ClassicDecisionBuilder, member_id: str) -> None:
    unsynced = builder.group.unsynced - {member_id}
    if unsynced != builder.group.unsynced:
        builder.group = replace(builder.group, unsynced=unsynced)
        if not unsynced:
            builder.cancel_timer("sync")


def _assign(builder: ClassicDecisionBuilder, assignment: dict[str, bytes]) -> None:
    """Make the group stable and answer all pending SyncGroups; members that the leader left out get nothing."""
    waiting = builder.group.members
    members = {
        member_id: replace(member, assignment=assignment.get(member_id, b""), syncing=None)
        for member_id, member in waiting.items()
    }
    builder.group = replace(builder.group, members=members).transition_to(State.STABLE, builder.env.now)
    builder.write_group()
    for member_id, member in waiting.items():
        if member.syncing is not None:
            builder.reply_synced(member.syncing, members[member_id])
            builder.reset_session_timer(member)  # it was suspended while the request was pending
