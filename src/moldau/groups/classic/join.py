"""JoinGroup to a classic group: who may come in, under which member id, and what that sets off.

From version 4 on a dynamic member that has no id is given one and joins again with it (KIP-394), so that one whose
answer was lost leaves no ghost behind. A static member (KIP-345) that comes without a member id takes the place of
its predecessor; in a stable group that happens without a rebalance where the group's protocol stays.
"""

from dataclasses import replace
from typing import Final

from moldau.base.coordination import Caller, Decision
from moldau.base.errors import WireError
from moldau.groups.classic.builder import Draft, join_error
from moldau.groups.classic.group import ClassicGroup, ClassicMember, State
from moldau.groups.classic.rebalance import complete_if_all_joined, prepare, rebalance_or_complete
from moldau.groups.env import Env
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000  # a JoinGroup of a member that nobody has heard of before
MEMBER_ID_REQUIRED: Final = 4  # from this version on (KIP-394)
LONGEST_STRING: Final = 2**15 - 1  # bytes
SKIPS_ASSIGNMENT: Final = 9  # from this version on (KIP-814)


def join(group: ClassicGroup | None, request: JoinGroupRequest, caller: Caller, env: Env) -> Decision:
    refused = _check(group, request, env)
    if refused is not WireError.NONE:
        return Decision.reply(caller, join_error(caller, refused, request.member_id))
    draft = Draft.of_new_group(request.group_id, env) if group is None else Draft(group, env)
    error = _accept(draft, request, caller)
    if error is not WireError.NONE:
        named = error not in (WireError.GROUP_MAX_SIZE_REACHED, WireError.UNKNOWN_SERVER_ERROR)
        draft.reply(caller, join_error(caller, error, request.member_id if named else ""))
    return draft.decided()


def _check(group: ClassicGroup | None, request: JoinGroupRequest, env: Env) -> WireError:
    """What is wrong whoever asks. Only a member without an id can begin a group."""
    error = check_request(request, env)
    if error is WireError.NONE and group is None and request.member_id:
        return WireError.UNKNOWN_MEMBER_ID
    return error


def check_request(request: JoinGroupRequest, env: Env) -> WireError:
    """What is wrong whatever the group."""
    if not request.group_id or _too_long(request.group_id):
        return WireError.INVALID_GROUP_ID
    if _too_long(request.protocol_type) or any(_too_long(protocol.name) for protocol in request.protocols):
        return WireError.INCONSISTENT_GROUP_PROTOCOL
    if not env.config.min_session_timeout_ms <= request.session_timeout_ms <= env.config.max_session_timeout_ms:
        return WireError.INVALID_SESSION_TIMEOUT
    return WireError.NONE


def _too_long(text: str) -> bool:
    """Whether the group could never be written: a request may have longer strings than a record."""
    return 4 * len(text) > LONGEST_STRING and len(text.encode()) > LONGEST_STRING


def must_name_itself(request: JoinGroupRequest, caller: Caller) -> bool:
    """Whether a member is only given an id for now (KIP-394)."""
    return not request.member_id and request.group_instance_id is None and caller.version >= MEMBER_ID_REQUIRED


def _accept(draft: Draft, request: JoinGroupRequest, caller: Caller) -> WireError:
    group = draft.group
    if not _has_room(group, request.member_id, draft.env.config.max_size):
        if request.member_id in group.members:
            draft.remove(request.member_id)
        draft.group = draft.group.without((request.member_id,))
        complete_if_all_joined(draft)
        return WireError.GROUP_MAX_SIZE_REACHED
    if not group.supports(request.protocol_type, request.protocols):
        return WireError.INCONSISTENT_GROUP_PROTOCOL
    if not request.member_id:
        _join_without_id(draft, request, caller)
        return WireError.NONE
    if request.member_id in group.pending:
        if request.group_instance_id is not None:
            return WireError.UNKNOWN_SERVER_ERROR  # only dynamic members are ever pending; Kafka knows no better word
        _add(draft, request, caller, request.member_id)
        return WireError.NONE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is WireError.NONE:
        _join_again(draft, request, caller)
    return error


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """KIP-389: a member that is in may stay in, except that of too many who join again the last are out."""
    if group.state is State.EMPTY or len(group.members) < max_size:
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING:
        joined = sum(each.joining is not None for each in group.members.values())
        return (member is not None and member.joining is not None) or joined < max_size
    return member is not None


# -- members without an id


def _join_without_id(draft: Draft, request: JoinGroupRequest, caller: Caller) -> None:
    named = caller.client_id if request.group_instance_id is None else request.group_instance_id
    member_id = f"{named}-{draft.env.new_id()}"
    predecessor = draft.group.static_member(request.group_instance_id)
    if predecessor is not None:
        _replace(draft, request, caller, predecessor, member_id)
    elif must_name_itself(request, caller):
        draft.group = replace(draft.group, pending=draft.group.pending | {member_id})
        draft.wake("session", request.session_timeout_ms, member_id)
        draft.reply(caller, join_error(caller, WireError.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(draft, request, caller, member_id)


def _add(draft: Draft, request: JoinGroupRequest, caller: Caller, member_id: str) -> None:
    group = draft.group
    member = ClassicMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        joining=caller,
        is_new=True,
    )
    if not group.members:
        group = replace(group, protocol_type=request.protocol_type)
    if group.initial_delay is not None:
        group = replace(group, delay_longer=True)
    draft.group = group.with_member(member)
    # It cannot send heartbeats yet, and may be gone without our knowing: its JoinGroup gets a time-out of its own.
    draft.wake("session", NEW_MEMBER_TIMEOUT_MS, member_id)
    rebalance_or_complete(draft)


def _replace(draft: Draft, request: JoinGroupRequest, caller: Caller, old: ClassicMember, member_id: str) -> None:
    """A static member has come back under a new member id; whoever still uses the old one is fenced."""
    old_leader = draft.group.leader
    draft.release(old, WireError.FENCED_INSTANCE_ID, old.member_id)
    draft.let_sleep("session", old.member_id)
    new = replace(
        old,
        member_id=member_id,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        joining=caller,
        syncing=None,
        is_new=False,
    )
    draft.group = _in_place_of(draft.group, old.member_id, new)
    if not draft.group.unsynced:
        draft.let_sleep("sync")
    draft.expect_heartbeat(new)
    state = draft.group.state
    if state is State.STABLE and draft.group.chosen_protocol() == draft.group.protocol_name:
        draft.put(replace(new, joining=None))
        draft.write()
        leads = draft.group.leader == member_id
        if caller.version >= SKIPS_ASSIGNMENT:
            draft.reply_joined(caller, member_id, skip_assignment=leads)
        else:
            _reply_under_old_leader(draft, caller, member_id, old_leader)
    elif state is State.PREPARING:
        complete_if_all_joined(draft)
    else:
        # The old member id is gone from the group, so an assignment that is being made would not know the new one.
        prepare(draft)


def _in_place_of(group: ClassicGroup, old_id: str, new: ClassicMember) -> ClassicGroup:
    members = {
        (new.member_id if each == old_id else each): (new if each == old_id else member)
        for each, member in group.members.items()
    }
    leader = new.member_id if group.leader == old_id else group.leader
    return replace(group, members=members, leader=leader, unsynced=group.unsynced - {old_id})


def _reply_under_old_leader(draft: Draft, caller: Caller, member_id: str, leader: str | None) -> None:
    """Before KIP-814 a leader that came back was told that its old self leads, so that it does not assign again."""
    group = draft.group
    draft.reply(
        caller,
        JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader or "",
            member_id=member_id,
        ),
    )


# -- members that are in


def _join_again(draft: Draft, request: JoinGroupRequest, caller: Caller) -> None:
    group, member = draft.group, draft.group.members[request.member_id]
    unchanged = member.protocols == request.protocols
    leads = group.leader == member.member_id
    if group.state is State.COMPLETING and unchanged:
        draft.reply_joined(caller, member.member_id)  # the answer to its first JoinGroup may have been lost
    elif group.state is State.STABLE and unchanged and not leads:
        draft.reply_joined(caller, member.member_id)
    else:
        # A leader that joins again wants a rebalance: it may know of new partitions, which the group does not.
        if member.joining is not None:
            # Its first JoinGroup came over a connection that is lost by now, in all likelihood.
            draft.release(member, WireError.REBALANCE_IN_PROGRESS, member.member_id)
        draft.put(
            replace(
                member,
                protocols=request.protocols,
                rebalance_timeout_ms=rebalance_timeout_ms(request),
                session_timeout_ms=request.session_timeout_ms,
                joining=caller,
            )
        )
        rebalance_or_complete(draft)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has none: the session's holds for both."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
