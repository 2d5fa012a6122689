"""JoinGroup to a classic group.

From version 4 on a dynamic member without an id gets one and joins again with it (KIP-394), so that a lost response
leaves no member behind. A static member (KIP-345) without a member id replaces its predecessor; a stable group does not
rebalance for that if its protocol stays the same.
"""

from dataclasses import replace
from typing import Final

from moldau.base.coordination import Caller, Decision
from moldau.base.errors import WireError
from moldau.groups.classic.builder import ClassicDecisionBuilder, join_error
from moldau.groups.classic.group import ClassicGroup, ClassicMember, State
from moldau.groups.classic.rebalance import complete_if_all_joined, prepare, rebalance_or_complete
from moldau.groups.environment import GroupEnvironment
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000  # of the first JoinGroup of a member
MEMBER_ID_REQUIRED: Final = 4  # from this version on (KIP-394)
MAX_STRING_BYTES: Final = 2**15 - 1  # in a record
SKIPS_ASSIGNMENT: Final = 9  # from this version on (KIP-814)


def join(group: ClassicGroup | None, request: JoinGroupRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    refused = _check(group, request, env)
    if refused is not WireError.NONE:
        return Decision.reply(caller, join_error(caller, refused, request.member_id))
    builder = (
        ClassicDecisionBuilder.for_new_group(request.group_id, env)
        if group is None
        else ClassicDecisionBuilder(group, env)
    )
    error = _accept(builder, request, caller)
    if error is not WireError.NONE:
        named = error not in (WireError.GROUP_MAX_SIZE_REACHED, WireError.UNKNOWN_SERVER_ERROR)
        builder.reply(caller, join_error(caller, error, request.member_id if named else ""))
    return builder.build()


def _check(group: ClassicGroup | None, request: JoinGroupRequest, env: GroupEnvironment) -> WireError:
    """Errors that do not depend on the members. Only a JoinGroup without a member id creates a group."""
    error = check_request(request, env)
    if error is WireError.NONE and group is None and request.member_id:
        return WireError.UNKNOWN_MEMBER_ID
    return error


def check_request(request: JoinGroupRequest, env: GroupEnvironment) -> WireError:
    """Errors that do not depend on the group."""
    if not request.group_id or _too_long(request.group_id):
        return WireError.INVALID_GROUP_ID
    if _too_long(request.protocol_type) or any(_too_long(protocol.name) for protocol in request.protocols):
        return WireError.INCONSISTENT_GROUP_PROTOCOL
    if not env.config.min_session_timeout_ms <= request.session_timeout_ms <= env.config.max_session_timeout_ms:
        return WireError.INVALID_SESSION_TIMEOUT
    return WireError.NONE


def _too_long(text: str) -> bool:
    """Whether a string is too long for a record: requests may have longer ones."""
    return 4 * len(text) > MAX_STRING_BYTES and len(text.encode()) > MAX_STRING_BYTES


def requires_member_id(request: JoinGroupRequest, caller: Caller) -> bool:
    """Whether the member gets an id and must join again with it (KIP-394)."""
    return not request.member_id and request.group_instance_id is None and caller.version >= MEMBER_ID_REQUIRED


def _accept(builder: ClassicDecisionBuilder, request: JoinGroupRequest, caller: Caller) -> WireError:
    group = builder.group
    if not _has_room(group, request.member_id, builder.env.config.max_size):
        if request.member_id in group.members:
            builder.remove_member(request.member_id)
        builder.group = builder.group.without((request.member_id,))
        complete_if_all_joined(builder)
        return WireError.GROUP_MAX_SIZE_REACHED
    if not group.supports(request.protocol_type, request.protocols):
        return WireError.INCONSISTENT_GROUP_PROTOCOL
    if not request.member_id:
        _join_without_id(builder, request, caller)
        return WireError.NONE
    if request.member_id in group.pending:
        if request.group_instance_id is not None:
            return WireError.UNKNOWN_SERVER_ERROR  # as in Kafka; only dynamic members are ever pending
        _add(builder, request, caller, request.member_id)
        return WireError.NONE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is WireError.NONE:
        _join_again(builder, request, caller)
    return error


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """KIP-389: members may stay; of too many that rejoin, the last are refused."""
    if group.state is State.EMPTY or len(group.members) < max_size:
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING:
        joined = sum(each.joining is not None for each in group.members.values())
        return (member is not None and member.joining is not None) or joined < max_size
    return member is not None


# -- members without an id


def _join_without_id(builder: ClassicDecisionBuilder, request: JoinGroupRequest, caller: Caller) -> None:
    named = caller.client_id if request.group_instance_id is None else request.group_instance_id
    member_id = f"{named}-{builder.env.new_id()}"
    predecessor = builder.group.static_member(request.group_instance_id)
    if predecessor is not None:
        _replace(builder, request, caller, predecessor, member_id)
    elif requires_member_id(request, caller):
        builder.group = replace(builder.group, pending=builder.group.pending | {member_id})
        builder.schedule("session", request.session_timeout_ms, member_id)
        builder.reply(caller, join_error(caller, WireError.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(builder, request, caller, member_id)


def _add(builder: ClassicDecisionBuilder, request: JoinGroupRequest, caller: Caller, member_id: str) -> None:
    group = builder.group
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
        group = replace(group, new_member_added=True)
    builder.group = group.with_member(member)
    # A new member cannot send heartbeats yet: its JoinGroup has a timeout of its own.
    builder.schedule("session", NEW_MEMBER_TIMEOUT_MS, member_id)
    rebalance_or_complete(builder)


def _replace(
    builder: ClassicDecisionBuilder, request: JoinGroupRequest, caller: Caller, old: ClassicMember, member_id: str
) -> None:
    """Replace a static member that is back with a new member id; requests with the old id are fenced."""
    old_leader = builder.group.leader
    builder.fail_pending(old, WireError.FENCED_INSTANCE_ID, old.member_id)
    builder.cancel_timer("session", old.member_id)
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
    builder.group = _with_replaced_member(builder.group, old.member_id, new)
    if not builder.group.unsynced:
        builder.cancel_timer("sync")
    builder.reset_session_timer(new)
    state = builder.group.state
    if state is State.STABLE and builder.group.chosen_protocol() == builder.group.protocol_name:
        builder.put_member(replace(new, joining=None))
        builder.write_group()
        leads = builder.group.leader == member_id
        if caller.version >= SKIPS_ASSIGNMENT:
            builder.reply_joined(caller, member_id, skip_assignment=leads)
        else:
            _reply_under_old_leader(builder, caller, member_id, old_leader)
    elif state is State.PREPARING:
        complete_if_all_joined(builder)
    else:
        # An assignment that the leader is computing does not have the new member id.
        prepare(builder)


def _with_replaced_member(group: ClassicGroup, old_id: str, new: ClassicMember) -> ClassicGroup:
    members = {
        (new.member_id if each == old_id else each): (new if each == old_id else member)
        for each, member in group.members.items()
    }
    leader = new.member_id if group.leader == old_id else group.leader
    return replace(group, members=members, leader=leader, unsynced=group.unsynced - {old_id})


def _reply_under_old_leader(
    builder: ClassicDecisionBuilder, caller: Caller, member_id: str, leader: str | None
) -> None:
    """Before KIP-814 a leader that is back gets its old member id as leader, so that it does not assign again."""
    group = builder.group
    builder.reply(
        caller,
        JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader or "",
            member_id=member_id,
        ),
    )


# -- members that rejoin


def _join_again(builder: ClassicDecisionBuilder, request: JoinGroupRequest, caller: Caller) -> None:
    group, member = builder.group, builder.group.members[request.member_id]
    unchanged = member.protocols == request.protocols
    leads = group.leader == member.member_id
    if group.state is State.COMPLETING and unchanged:
        builder.reply_joined(caller, member.member_id)  # a retry: the response may have been lost
    elif group.state is State.STABLE and unchanged and not leads:
        builder.reply_joined(caller, member.member_id)
    else:
        # A leader that rejoins requests a rebalance: it may have seen new partitions.
        if member.joining is not None:
            # The connection of its first JoinGroup is probably lost.
            builder.fail_pending(member, WireError.REBALANCE_IN_PROGRESS, member.member_id)
        builder.put_member(
            replace(
                member,
                protocols=request.protocols,
                rebalance_timeout_ms=rebalance_timeout_ms(request),
                session_timeout_ms=request.session_timeout_ms,
                joining=caller,
            )
        )
        rebalance_or_complete(builder)


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """The session timeout in version 0, which has no rebalance timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
