"""Online migration of a group between the classic and the consumer protocol (KIP-848).

A classic group of consumers is upgraded when its first member of the consumer protocol joins. The subscriptions and
assignments of its classic members, opaque to the coordinator otherwise, are parsed for that. When the last member of
the consumer protocol leaves, the group is downgraded and rebalances. An empty group takes its next member's protocol.
"""

from dataclasses import replace
from uuid import UUID

from moldau.base.errors import Refusal, WireError
from moldau.groups.classic import group as classic_group
from moldau.groups.classic import rebalance as classic_rebalance
from moldau.groups.classic.builder import ClassicDecisionBuilder
from moldau.groups.classic.group import ClassicGroup, ClassicMember, State
from moldau.groups.consumer.builder import SESSION, ConsumerDecisionBuilder
from moldau.groups.consumer.group import Assignment, ConsumerGroup, Member
from moldau.groups.consumer.target_assignment import metadata_hash
from moldau.groups.environment import GroupEnvironment, Topics
from moldau.groups.records import ClassicMemberMetadata, ClassicProtocol
from moldau.wire.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolTopic,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from moldau.wire.messages.join_group import JoinGroupProtocol
from moldau.wire.primitives import MalformedMessage

UPGRADES = ("upgrade", "bidirectional")  # group.consumer.migration.policy
DOWNGRADES = ("downgrade", "bidirectional")


# Classic to consumer


def upgrade(group: ClassicGroup, env: GroupEnvironment) -> ConsumerDecisionBuilder | Refusal:
    """The group under the consumer protocol; or why it cannot be upgraded."""
    builder = ConsumerDecisionBuilder(None, group.group_id)
    builder.decision.records.append(classic_group.tombstone(group.group_id))
    if group.state is State.EMPTY:
        return builder
    fault = _upgrade_fault(group, env)
    if fault is None:
        fault = _convert_members(builder, group, env)
    if fault is not None:
        message = f"Cannot upgrade classic group {group.group_id} to consumer group because {fault}."
        return Refusal(WireError.GROUP_ID_NOT_FOUND, message)
    _fail_pending_requests(builder, group, env)
    return builder


def is_stable_or_empty(group: ClassicGroup | ConsumerGroup | None) -> bool:
    """False if a classic group is rebalancing: its upgrade has to compute a new target then."""
    return not isinstance(group, ClassicGroup) or group.state in (State.EMPTY, State.STABLE)


def _upgrade_fault(group: ClassicGroup, env: GroupEnvironment) -> str | None:
    if env.config.consumer_migration_policy not in UPGRADES:
        return "online upgrade is disabled"
    if group.protocol_type != PROTOCOL_TYPE:
        return "the group does not use the consumer embedded protocol"
    if len(group.members) > env.config.consumer_max_size:
        return "the group size exceeds the consumer group maximum size"
    return None


def _convert_members(builder: ConsumerDecisionBuilder, group: ClassicGroup, env: GroupEnvironment) -> str | None:
    """Write the members as classic members of a consumer group, with their assignments as targets."""
    try:
        members = [_member(each, group, env.topics) for each in group.members.values()]
    except MalformedMessage:
        return "the embedded consumer protocol is malformed"
    except _CustomAssignor:
        return "an unsupported custom assignor is in use"
    taken = [
        (topic_id, each)
        for member in members
        for topic_id, partitions in member.assigned.items()
        for each in partitions
    ]
    if len(taken) != len(set(taken)):
        return "a partition is assigned to two members"
    for member in members:
        builder.write_member(member)
    builder.write_epoch(group.generation, metadata_hash(builder.group, env.topics))
    for member in members:
        builder.write_target(member.id, {topic_id: frozenset(each) for topic_id, each in member.assigned.items()})
    builder.write_target_metadata(group.generation, 0)  # time 0: the next target is due at once
    for member in members:
        builder.write_current(member)
    return None


def _fail_pending_requests(builder: ConsumerDecisionBuilder, group: ClassicGroup, env: GroupEnvironment) -> None:
    """Fail pending requests to the classic group, and start the session timers."""
    waiting = ClassicDecisionBuilder(group, env)
    for member in group.members.values():
        waiting.fail_pending(member, WireError.REBALANCE_IN_PROGRESS, member.member_id)
        builder.set_timer(SESSION, member.member_id, env.now + member.session_timeout_ms)
    builder.decision.replies += waiting.decision.replies


class _CustomAssignor(Exception):
    """An assignment has user data of a custom assignor, which would be lost."""


def _member(member: ClassicMember, group: ClassicGroup, topics: Topics) -> Member:
    metadata = member.metadata(group.protocol_name)
    subscription = read_subscription(member.protocols[0].metadata if metadata is None else metadata)
    assignment = (
        read_assignment(member.assignment) if member.assignment else ConsumerProtocolAssignment(assigned_partitions=())
    )
    if assignment.user_data:
        raise _CustomAssignor
    assigned = {
        topics.by_name[each.topic].id: dict.fromkeys(each.partitions, group.generation)
        for each in assignment.assigned_partitions
        if each.topic in topics.by_name
    }
    return Member(
        id=member.member_id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned=assigned,
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def classic_metadata(session_timeout_ms: int, protocols: tuple[JoinGroupProtocol, ...]) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=tuple(ClassicProtocol(name=each.name, metadata=each.metadata) for each in protocols),
    )


# Consumer to classic


def may_downgrade(group: ConsumerGroup, leaving: set[str], env: GroupEnvironment) -> bool:
    """Whether the group is to be downgraded without the leaving members."""
    left = [member for member in group.members.values() if member.id not in leaving]
    return (
        bool(left)
        and all(member.classic is not None for member in left)
        and env.config.consumer_migration_policy in DOWNGRADES
        and len(left) <= env.config.max_size
    )


def downgrade(builder: ConsumerDecisionBuilder, leaving: set[str], rebalance: bool, env: GroupEnvironment) -> None:
    """Make the group a classic one. Members keep their targets as assignments until they rebalance.

    With `rebalance` the record has no leader: a coordinator that loads it continues the rebalance.
    """
    group = builder.group
    members = [_classic_member(each, group) for each in group.members.values() if each.id not in leaving]
    builder.delete_group()
    after = ClassicGroup(
        group_id=group.group_id,
        state=State.STABLE,
        since=env.now,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        leader=None if rebalance else members[0].member_id,
        members={each.member_id: each for each in members},
    )
    after = replace(after, protocol_name=after.chosen_protocol())
    assigned = {
        each.member_id: replace(
            each, assignment=_assignment(each, after, group.targets.get(each.member_id, {}), env.topics)
        )
        for each in members
    }
    classic_builder = ClassicDecisionBuilder(replace(after, members=assigned), env)
    classic_builder.write_group()
    for member in members:
        classic_builder.reset_session_timer(member)
    if rebalance:
        classic_rebalance.prepare(classic_builder)
    builder.decision.records += classic_builder.decision.records
    builder.decision.transient = [classic_builder.group]  # the record has only one protocol per member
    builder.decision.replies += classic_builder.decision.replies
    builder.decision.timers += classic_builder.decision.timers


def _classic_member(member: Member, group: ConsumerGroup) -> ClassicMember:
    assert member.classic is not None, f"member {member.id} of {group.group_id} is of the consumer protocol"
    return ClassicMember(
        member_id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple(
            JoinGroupProtocol(name=each.name, metadata=each.metadata) for each in member.classic.supported_protocols
        ),
    )


def _assignment(member: ClassicMember, group: ClassicGroup, target: Assignment, topics: Topics) -> bytes:
    return assignment_bytes(target, topics, member.metadata(group.protocol_name) or b"")


def assignment_bytes(partitions: Assignment, topics: Topics, metadata: bytes) -> bytes:
    """Partitions in the format of the classic protocol, in the version of the member's subscription."""
    assigned = tuple(
        ConsumerProtocolTopic(topic=topics.by_id[topic_id].name, partitions=tuple(sorted(each)))
        for topic_id, each in partitions.items()
        if topic_id in topics.by_id
    )
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), read_version(metadata))


def owned_partitions(topics: tuple[ConsumerProtocolTopic, ...], known: Topics) -> dict[UUID, frozenset[int]]:
    """The partitions that a classic member reports as owned."""
    return {known.by_name[each.topic].id: frozenset(each.partitions) for each in topics if each.topic in known.by_name}
