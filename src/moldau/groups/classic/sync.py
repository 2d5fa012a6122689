"""SyncGroup to a classic group: the leader hands in the assignment, and every member gets its part.

The assignment is in the log before anybody hears of it, so a generation that members work with survives a restart.
"""

from dataclasses import replace
from typing import Final

from moldau.base.coordination import Caller, Decision
from moldau.base.errors import WireError
from moldau.groups.classic.builder import Draft
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.env import Env
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED: Final = 5  # from this version on a member says which protocol it speaks (KIP-559)


def sync(group: ClassicGroup | None, request: SyncGroupRequest, caller: Caller, env: Env) -> Decision:
    error = _check(group, request, caller)
    if error is not WireError.NONE or group is None:
        return Decision.reply(caller, SyncGroupResponse(error_code=error))
    draft = Draft(group, env)
    _mark_synced(draft, request.member_id)
    member = draft.group.members[request.member_id]
    if group.state is State.STABLE:
        draft.reply_synced(caller, member)
        return draft.decided()
    if member.syncing is not None:
        # The same member asked before, over a connection that is lost by now, in all likelihood.
        draft.reply(member.syncing, SyncGroupResponse(error_code=WireError.REBALANCE_IN_PROGRESS))
    draft.put(replace(member, syncing=caller))
    if group.leader == request.member_id:
        _assign(draft, {each.member_id: each.assignment for each in request.assignments})
    return draft.decided()


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


def _mark_synced(draft: Draft, member_id: str) -> None:
    unsynced = draft.group.unsynced - {member_id}
    if unsynced != draft.group.unsynced:
        draft.group = replace(draft.group, unsynced=unsynced)
        if not unsynced:
            draft.let_sleep("sync")


def _assign(draft: Draft, assignment: dict[str, bytes]) -> None:
    """The group is stable: all learn what they were assigned, also those that the leader left out."""
    waiting = draft.group.members
    members = {
        member_id: replace(member, assignment=assignment.get(member_id, b""), syncing=None)
        for member_id, member in waiting.items()
    }
    draft.group = replace(draft.group, members=members).moved(State.STABLE, draft.env.now)
    draft.write()
    for member_id, member in waiting.items():
        if member.syncing is not None:
            draft.reply_synced(member.syncing, members[member_id])
            draft.expect_heartbeat(member)  # while it waited, its session could not end
