"""ConsumerGroup: a group of the consumer protocol (KIP-848) as a value, changed by `apply_change` alone.

All its fields come from records, except `rejoining` and `regex_progress`. Live decisions and loading use the same
`apply_change`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar
from uuid import UUID

from moldau.base.coordination import Record
from moldau.base.ids import Epoch
from moldau.groups.classic.group import ClassicGroup
from moldau.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
)

Assignment = Mapping[UUID, frozenset[int]]  # a member's target: partitions by topic id
# What a member has: partitions by topic id, each with the member epoch at which it was assigned (KIP-1251).
AssignedPartitions = Mapping[UUID, Mapping[int, Epoch]]

ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

K = TypeVar("K")
V = TypeVar("V")

JOIN_EPOCH: Final = 0  # special member epochs in requests
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2  # a static member leaves for a while
FIRST_EPOCH: Final = 1  # of a new group

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"


class MemberState(IntEnum):
    """How far a member is with its target assignment; the numbers are those of the records."""

    STABLE = 0  # it has its target assignment
    UNREVOKED_PARTITIONS = 1  # it has to revoke partitions first
    UNRELEASED_PARTITIONS = 2  # other members have not revoked partitions of its target yet
    UNKNOWN = 127  # written by a newer version


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matches."""

    topics: frozenset[str]
    version: int  # of the topics it was resolved with
    at: int


class RegexProgress(NamedTuple):
    """A regular expression that is being resolved, some topics at a time."""

    regex: str
    version: int  # of the topics
    at: int
    matched: frozenset[str]
    topics_checked: int


class RejoinChanged(NamedTuple):
    """A transient change: a classic member was asked to rejoin, or has rejoined."""

    group_id: str
    member_id: str
    waiting: bool


class RegexProgressChanged(NamedTuple):
    """A transient change: how far a regular expression is resolved; None: completely."""

    group_id: str
    progress: RegexProgress | None


TransientChange = RejoinChanged | RegexProgressChanged


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    epoch: Epoch = JOIN_EPOCH
    previous_epoch: Epoch = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    assigned: AssignedPartitions = field(default_factory=dict)
    pending_revocation: AssignedPartitions = field(default_factory=dict)  # not confirmed by the member yet
    classic: ClassicMemberMetadata | None = None  # set for a member of the classic protocol

    def reconciled(self, assignment_epoch: Epoch) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    group_id: str
    epoch: Epoch = FIRST_EPOCH
    metadata_hash: int = 0  # of the subscribed topics at this epoch
    assignment_epoch: Epoch = FIRST_EPOCH  # less than `epoch`: a new target is due
    assigned_at: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    targets: Mapping[str, Assignment] = field(default_factory=dict)
    regexes: Mapping[str, ResolvedRegex] = field(default_factory=dict)
    has_partition_metadata: bool = False  # a record of Kafka 4.0, to be deleted
    # Derived from the members:
    instances: Mapping[str, str] = field(default_factory=dict)  # instance id → member id
    owners: Mapping[UUID, Mapping[int, str]] = field(default_factory=dict)  # member ids, until the revocation
    # Transient: lost when the coordinator moves or restarts.
    rejoining: frozenset[str] = frozenset()
    regex_progress: RegexProgress | None = None

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        settled = all(member.reconciled(self.assignment_epoch) for member in self.members.values())
        return STABLE if settled else RECONCILING

    def static_member(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @property
    def subscribed_regexes(self) -> set[str]:
        return {member.regex for member in self.members.values() if member.regex}


def subscription(group: ConsumerGroup, member: Member) -> frozenset[str]:
    """The topics that a member subscribes to, by name or by regular expression."""
    matched = group.regexes.get(member.regex)
    return member.topics if matched is None else member.topics | matched.topics


def apply_change(group: ConsumerGroup | None, change: Record | TransientChange) -> ConsumerGroup | None:
    """The group after a change; None: it is deleted. Tombstones of missing keys change nothing."""
    if isinstance(change, RegexProgressChanged):
        return group and replace(group, regex_progress=change.progress)
    if isinstance(change, RejoinChanged):
        return group and _rejoining(group, change)
    key, value = change
    assert is_consumer_group_key(key)
    if value is None:
        return group and _DELETES[type(key)](group, key)
    return _WRITES[type(key)](group or ConsumerGroup(key.group_id), key, value)


def is_consumer_group_key(key: object) -> TypeGuard[ConsumerGroupKey]:
    return type(key) in _WRITES


Group = ClassicGroup | ConsumerGroup


# The change of each record and of its tombstone


def _write_epoch(
    group: ConsumerGroup, _key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue
) -> ConsumerGroup:
    return replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)


def _delete_group(_group: ConsumerGroup, _key: ConsumerGroupMetadataKey) -> None:
    return None


def _write_partition_metadata(
    group: ConsumerGroup, _key: ConsumerGroupPartitionMetadataKey, _value: ConsumerGroupPartitionMetadataValue
) -> ConsumerGroup:
    return replace(group, has_partition_metadata=True)


def _delete_partition_metadata(group: ConsumerGroup, _key: ConsumerGroupPartitionMetadataKey) -> ConsumerGroup:
    return replace(group, has_partition_metadata=False) if group.has_partition_metadata else group


def _write_member(
    group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue
) -> ConsumerGroup:
    old = group.members.get(key.member_id) or Member(key.member_id)
    classic = value.classic_member_metadata
    new = replace(
        old,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=_shared(group, frozenset(value.subscribed_topic_names)),
        regex=value.subscribed_topic_regex or "",
        assignor=value.server_assignor,
        classic=classic if classic is not None and classic.supported_protocols else None,
    )
    instances = group.instances
    if new.instance_id is not None and instances.get(new.instance_id) != new.id:
        instances = {**instances, new.instance_id: new.id}
    return replace(group, members={**group.members, new.id: new}, instances=instances)


def _delete_member(group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey) -> ConsumerGroup:
    member = group.members.get(key.member_id)
    if member is None:
        return group
    instances = group.instances
    if member.instance_id is not None and instances.get(member.instance_id) == member.id:
        instances = _without(instances, member.instance_id)
    return replace(
        group,
        members=_without(group.members, member.id),
        instances=instances,
        owners=_updated_owners(group.owners, member, None),
        rejoining=group.rejoining - {member.id},
    )


def _write_target_metadata(
    group: ConsumerGroup,
    _key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue,
) -> ConsumerGroup:
    return replace(group, assignment_epoch=value.assignment_epoch, assigned_at=value.assignment_timestamp)


def _delete_target_metadata(group: ConsumerGroup, _key: ConsumerGroupTargetAssignmentMetadataKey) -> ConsumerGroup:
    return replace(group, assignment_epoch=-1, assigned_at=0)


def _write_target(
    group: ConsumerGroup, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue
) -> ConsumerGroup:
    target = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
    return replace(group, targets={**group.targets, key.member_id: target})


def _delete_target(group: ConsumerGroup, key: ConsumerGroupTargetAssignmentMemberKey) -> ConsumerGroup:
    return replace(group, targets=_without(group.targets, key.member_id)) if key.member_id in group.targets else group


def _write_current(
    group: ConsumerGroup, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerGroup:
    old = group.members.get(key.member_id) or Member(key.member_id)
    new = replace(
        old,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=_read_assigned(value.assigned_partitions, value.member_epoch),
        pending_revocation=_read_assigned(value.partitions_pending_revocation, value.member_epoch),
    )
    return _with_current(group, old, new)


def _delete_current(group: ConsumerGroup, key: ConsumerGroupCurrentMemberAssignmentKey) -> ConsumerGroup:
    old = group.members.get(key.member_id)
    if old is None:
        return group
    return _with_current(
        group, old, replace(old, epoch=LEAVE_EPOCH, previous_epoch=-1, assigned={}, pending_revocation={})
    )


def _write_regex(
    group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue
) -> ConsumerGroup:
    resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    return replace(group, regexes={**group.regexes, key.regular_expression: resolved})


def _delete_regex(group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey) -> ConsumerGroup:
    return replace(group, regexes=_without(group.regexes, key.regular_expression))


# The key's type selects the function; a signature cannot say that.
_WRITES: Final[dict[type, Callable[[ConsumerGroup, Any, Any], ConsumerGroup]]] = {
    ConsumerGroupMetadataKey: _write_epoch,
    ConsumerGroupPartitionMetadataKey: _write_partition_metadata,
    ConsumerGroupMemberMetadataKey: _write_member,
    ConsumerGroupTargetAssignmentMetadataKey: _write_target_metadata,
    ConsumerGroupTargetAssignmentMemberKey: _write_target,
    ConsumerGroupCurrentMemberAssignmentKey: _write_current,
    ConsumerGroupRegularExpressionKey: _write_regex,
}
_DELETES: Final[dict[type, Callable[[ConsumerGroup, Any], ConsumerGroup | None]]] = {
    ConsumerGroupMetadataKey: _delete_group,
    ConsumerGroupPartitionMetadataKey: _delete_partition_metadata,
    ConsumerGroupMemberMetadataKey: _delete_member,
    ConsumerGroupTargetAssignmentMetadataKey: _delete_target_metadata,
    ConsumerGroupTargetAssignmentMemberKey: _delete_target,
    ConsumerGroupCurrentMemberAssignmentKey: _delete_current,
    ConsumerGroupRegularExpressionKey: _delete_regex,
}
_STATES: Final = {state.value: state for state in MemberState}


def _rejoining(group: ConsumerGroup, change: RejoinChanged) -> ConsumerGroup:
    one = {change.member_id}
    return replace(group, rejoining=group.rejoining | one if change.waiting else group.rejoining - one)


def _shared(group: ConsumerGroup, topics: frozenset[str]) -> frozenset[str]:
    """One set for all members with the same subscription: it saves memory and compares by identity."""
    first = next(iter(group.members.values()), None)
    return first.topics if first is not None and first.topics == topics else topics


def _without(entries: Mapping[K, V], key: K) -> dict[K, V]:
    return {each: value for each, value in entries.items() if each != key}


def _read_assigned(topics: Iterable[CurrentTopicPartitions], member_epoch: Epoch) -> AssignedPartitions:
    """Partitions with their epochs; records before KIP-1251 have none and get the member's epoch."""
    assigned: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = (max(member_epoch, 0),) * len(topic.partitions)
        assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned


def _with_current(group: ConsumerGroup, old: Member, new: Member) -> ConsumerGroup:
    owners = _updated_owners(group.owners, old, new)
    return replace(group, members={**group.members, new.id: new}, owners=owners)


def _updated_owners(
    owners: Mapping[UUID, Mapping[int, str]], old: Member, new: Member | None
) -> Mapping[UUID, Mapping[int, str]]:
    """The owners after a member's change; partitions of other members stay theirs."""
    before, after = _owned_partitions(old), {} if new is None else _owned_partitions(new)
    if before == after:
        return owners
    changed: dict[UUID, Mapping[int, str]] = dict(owners)
    for topic_id in before.keys() | after.keys():
        partitions = dict(changed.get(topic_id, {}))
        for partition in before.get(topic_id, frozenset()) - after.get(topic_id, frozenset()):
            if partitions.get(partition) == old.id:
                del partitions[partition]
        for partition in after.get(topic_id, frozenset()):
            partitions[partition] = old.id
        if partitions:
            changed[topic_id] = partitions
        else:
            changed.pop(topic_id, None)
    return changed


def _owned_partitions(member: Member) -> dict[UUID, frozenset[int]]:
    """Assigned or pending revocation."""
    topics = member.assigned.keys() | member.pending_revocation.keys()
    return {
        each: frozenset(member.assigned.get(each, ())) | frozenset(member.pending_revocation.get(each, ()))
        for each in topics
    }
