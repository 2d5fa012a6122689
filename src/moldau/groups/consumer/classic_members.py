"""Classic members of a consumer group (KIP-848): JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

JoinGroup has the member's subscription and owned partitions and starts its next reconciliation step. There is no
leader: the coordinator assigns, and SyncGroup returns the assignment. If another step is due, Heartbeat returns
REBALANCE_IN_PROGRESS and the member joins again.
"""

from dataclasses import replace

from moldau.base.coordination import Caller, Decision
from moldau.base.errors import Refusal, WireError
from moldau.groups.classic import join as classic_join
from moldau.groups.classic.builder import join_error
from moldau.groups.consumer import migration as consumer_migration
from moldau.groups.consumer.builder import SESSION, SYNC, ConsumerDecisionBuilder
from moldau.groups.consumer.group import EMPTY, STABLE, ConsumerGroup, Member, MemberState
from moldau.groups.consumer.heartbeat import check_instance, fence, is_full, reconcile, replace_member, subscribe
from moldau.groups.consumer.migration import assignment_bytes, classic_metadata, owned_partitions
from moldau.groups.consumer.reads import tombstones
from moldau.groups.consumer.target_assignment import assign_if_due
from moldau.groups.environment import GroupEnvironment
from moldau.wire.messages.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription, read_subscription
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import (
    LeaveGroupMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.wire.primitives import MalformedMessage

NO_MIGRATION = "disabled"  # group.consumer.migration.policy


# JoinGroup


def join(group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    error = classic_join.check_request(request, env)
    if error is not WireError.NONE:
        return Decision.reply(caller, join_error(caller, error, request.member_id))
    if group.state == EMPTY:
        return _begin_classic_group(group, request, caller, env)
    member_id = request.member_id or env.new_id()
    error = _may_join(group, request, member_id, env)
    if error is not WireError.NONE:
        return Decision.reply(caller, join_error(caller, error, ""))
    if classic_join.requires_member_id(request, caller):
        return Decision.reply(caller, join_error(caller, WireError.MEMBER_ID_REQUIRED, member_id))
    try:
        subscription = read_subscription(request.protocols[0].metadata)
    except MalformedMessage:
        return Decision.reply(caller, join_error(caller, WireError.UNKNOWN_SERVER_ERROR, ""))
    builder = ConsumerDecisionBuilder(group, group.group_id)
    before = _joining_member(builder, request, member_id)
    if isinstance(before, Refusal):
        return Decision.reply(caller, join_error(caller, before.error, ""))
    return _joined(builder, before, request, subscription, caller, env)


def _begin_classic_group(
    group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, env: GroupEnvironment
) -> Decision:
    """Replace an empty consumer group by a classic one."""
    decision = classic_join.join(None, request, caller, env)
    if decision.records:
        decision.records[:0] = tombstones(group)
    return decision


def _may_join(group: ConsumerGroup, request: JoinGroupRequest, member_id: str, env: GroupEnvironment) -> WireError:
    if env.config.consumer_migration_policy == NO_MIGRATION:
        return WireError.INCONSISTENT_GROUP_PROTOCOL
    if is_full(group, member_id, env.config):
        return WireError.GROUP_MAX_SIZE_REACHED
    others = [member.classic for member in group.members.values() if member.classic is not None]
    spoken = [{each.name for each in classic.supported_protocols} for classic in others]
    common = any(all(protocol.name in names for names in spoken) for protocol in request.protocols)
    if request.protocol_type != PROTOCOL_TYPE or not common:
        return WireError.INCONSISTENT_GROUP_PROTOCOL
    return WireError.NONE


def _joining_member(builder: ConsumerDecisionBuilder, request: JoinGroupRequest, member_id: str) -> Member | Refusal:
    if request.group_instance_id is None:
        return builder.group.members.get(member_id) or Member(member_id)
    held_by = builder.group.static_member(request.group_instance_id)
    if not request.member_id:
        return Member(member_id) if held_by is None else replace_member(builder, held_by, member_id)
    return check_instance(held_by, request.group_instance_id, member_id) or held_by or Member(member_id)


def _joined(
    builder: ConsumerDecisionBuilder,
    before: Member,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    caller: Caller,
    env: GroupEnvironment,
) -> Decision:
    rebalance_timeout_ms = classic_join.rebalance_timeout_ms(request)
    after = replace(
        before,
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=classic_metadata(request.session_timeout_ms, request.protocols),
    )
    # It may replace the last member of the consumer protocol.
    replaces_consumer = before.instance_id is not None and before.classic is None
    changed = subscribe(builder, before, after, env)
    owned = owned_partitions(subscription.owned_partitions, env.topics)
    downgrades = replaces_consumer and consumer_migration.may_downgrade(builder.group, set(), env)
    if not downgrades:
        assign_if_due(builder, env)
    refusal = reconcile(builder, after.id, owned, changed, env)
    if refusal is not None:
        return Decision.reply(caller, join_error(caller, refusal.error, ""))
    member = builder.group.members[after.id]
    if downgrades:
        # Kafka rebalances only if a target is due. But targets cannot be handed out while partitions of them are still
        # to be revoked by other members.
        consumer_migration.downgrade(builder, set(), builder.group.state != STABLE, env)
    else:
        builder.has_rejoined(member.id)
        builder.set_timer(SESSION, member.id, env.now + request.session_timeout_ms)
        builder.set_timer(SYNC, member.id, env.now + rebalance_timeout_ms)
    return builder.reply(
        caller,
        JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            member_id=member.id,
        ),
    )


# SyncGroup and Heartbeat


def sync(group: ConsumerGroup, request: SyncGroupRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if isinstance(member, WireError):
        return Decision.reply(caller, SyncGroupResponse(error_code=member))
    assert member.classic is not None
    protocol = member.classic.supported_protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, protocol.name):
        return Decision.reply(caller, SyncGroupResponse(error_code=WireError.INCONSISTENT_GROUP_PROTOCOL))
    builder = ConsumerDecisionBuilder(group, group.group_id)
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        builder.ask_to_rejoin(member, env.now)
        return builder.reply(caller, SyncGroupResponse(error_code=WireError.REBALANCE_IN_PROGRESS))
    builder.set_timer(SYNC, member.id, None)
    builder.set_timer(SESSION, member.id, env.now + member.classic.session_timeout_ms)
    assigned = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
    return builder.reply(
        caller,
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(assigned, env.topics, protocol.metadata),
        ),
    )


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if isinstance(member, WireError):
        return Decision.reply(caller, HeartbeatResponse(error_code=member))
    assert member.classic is not None
    builder = ConsumerDecisionBuilder(group, group.group_id)
    builder.set_timer(SESSION, member.id, env.now + member.classic.session_timeout_ms)
    assign_if_due(builder, env)  # Kafka leaves this to heartbeats of consumer members, of which there may be none
    if not _must_rejoin(builder.group, member):
        return builder.reply(caller, HeartbeatResponse())
    builder.ask_to_rejoin(member, env.now)
    return builder.reply(caller, HeartbeatResponse(error_code=WireError.REBALANCE_IN_PROGRESS))


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> Member | WireError:
    """The classic member, if the request has its generation."""
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = group.static_member(instance_id)
        if member is not None and member.id != member_id:
            return WireError.FENCED_INSTANCE_ID
    if member is None or member.classic is None:
        return WireError.UNKNOWN_MEMBER_ID
    return member if generation == member.epoch else WireError.ILLEGAL_GENERATION


def _must_rejoin(group: ConsumerGroup, member: Member) -> bool:
    """Whether a new target, a revocation, or partitions released by other members wait for the member."""
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_revocation(group, member)


def _waits_for_revocation(group: ConsumerGroup, member: Member) -> bool:
    return any(
        partition not in member.assigned.get(topic_id, {}) and partition in group.owners.get(topic_id, {})
        for topic_id, partitions in group.targets.get(member.id, {}).items()
        for partition in partitions
    )


# LeaveGroup


def leave(group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    """LeaveGroup; administrators remove members of both protocols with it."""
    builder = ConsumerDecisionBuilder(group, group.group_id)
    found = [(each, _leaving(group, each)) for each in request.members]
    leaving = {member.id: member for _, member in found if isinstance(member, Member)}
    if leaving:
        fence(builder, list(leaving.values()), env)
    responses = tuple(
        LeaveGroupMemberResponse(
            member_id=asked.member_id,
            group_instance_id=asked.group_instance_id,
            error_code=WireError.NONE if isinstance(member, Member) else member.error,
        )
        for asked, member in found
    )
    return builder.reply(caller, LeaveGroupResponse(members=responses))


def _leaving(group: ConsumerGroup, asked: LeaveGroupMember) -> Member | Refusal:
    if asked.group_instance_id is None:
        return group.members.get(asked.member_id) or Refusal.of(WireError.UNKNOWN_MEMBER_ID)
    held_by = group.static_member(asked.group_instance_id)
    if held_by is not None and not asked.member_id:
        return held_by
    return (
        check_instance(held_by, asked.group_instance_id, asked.member_id)
        or held_by
        or Refusal.of(WireError.UNKNOWN_MEMBER_ID)
    )
