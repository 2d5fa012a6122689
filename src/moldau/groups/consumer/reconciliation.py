"""Reconciliation of a member: the next step from its current to its target assignment (KIP-848).

A member first revokes partitions that are not in its target, then moves to the target's epoch, then gets partitions as
other members release them. So a partition never has two owners, and no member waits for all the others.

    STABLE ──new target──▸ UNREVOKED_PARTITIONS ──revoked──▸ UNRELEASED_PARTITIONS ──all released──▸ STABLE
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch
from moldau.groups.consumer.group import (
    AssignedPartitions,
    Assignment,
    ConsumerGroup,
    Member,
    MemberState,
    subscription,
)
from moldau.groups.environment import Topics

Owned = Mapping[UUID, frozenset[int]]  # reported by a member

NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The inputs of the next step."""

    group: ConsumerGroup  # for the target's epoch and the owners of partitions
    member: Member
    target: Assignment
    owned: Owned | None  # None: not reported
    topics: Topics
    subscription_changed: bool


def next_step(current: Reconciliation) -> Member | Refusal:
    """The member after the step; the same value if it has to wait, or has its target."""
    member = current.member
    match member.state:
        case MemberState.STABLE:
            if member.epoch != current.group.assignment_epoch:
                return _next_assignment(current)
            return _revoke_unsubscribed(current) if current.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(current, member.pending_revocation):
                return _revoke_unsubscribed(current) if current.subscription_changed else member
            return _next_assignment(current)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_assignment(current)
        case MemberState.UNKNOWN:  # written by a newer version: start over without partitions
            if current.owned is None or current.owned:
                message = "The member is in an unknown state. It must give up all its partitions and join again."
                return Refusal(WireError.FENCED_MEMBER_EPOCH, message)
            return _next_assignment(current)


def _next_assignment(current: Reconciliation) -> Member:
    member = current.member
    subscribed = _subscribed_topic_ids(current)
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    added: dict[UUID, frozenset[int]] = {}
    unreleased = False
    for topic_id in {**current.target, **member.assigned}:
        assigned = member.assigned.get(topic_id, {})
        target = current.target.get(topic_id, NOTHING) if topic_id in subscribed else NOTHING
        missing = target - assigned.keys()
        free = frozenset(each for each in missing if _is_free(current, topic_id, each))
        unreleased = unreleased or len(free) < len(missing)
        _put(kept, topic_id, {each: epoch for each, epoch in assigned.items() if each in target})
        _put(revoking, topic_id, {each: epoch for each, epoch in assigned.items() if each not in target})
        if free:
            added[topic_id] = free
    if revoking and _still_owns(current, revoking):
        return _with_assignment(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    epoch = current.group.assignment_epoch
    for topic_id, partitions in added.items():
        kept[topic_id] = kept.get(topic_id, {}) | dict.fromkeys(sorted(partitions), epoch)
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _with_assignment(member, epoch, state, kept, {})


def _revoke_unsubscribed(current: Reconciliation) -> Member:
    """Revoke topics that the member no longer subscribes to, while there is no target for its new subscription."""
    member = current.member
    subscribed = _subscribed_topic_ids(current)
    left = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in subscribed}
    if not left:
        return member
    kept = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in subscribed}
    revoking = {
        topic_id: {**member.pending_revocation.get(topic_id, {}), **left.get(topic_id, {})}
        for topic_id in {**member.pending_revocation, **left}
    }
    if _still_owns(current, revoking):
        return _with_assignment(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return _with_assignment(member, member.epoch, member.state, kept, member.pending_revocation)  # revoked already


def _subscribed_topic_ids(current: Reconciliation) -> set[UUID]:
    by_name = current.topics.by_name
    return {by_name[name].id for name in subscription(current.group, current.member) if name in by_name}


def _is_free(current: Reconciliation, topic_id: UUID, partition: int) -> bool:
    """Whether no other member owns the partition."""
    owner = current.group.owners.get(topic_id, {}).get(partition)
    return owner is None or owner == current.member.id


def _still_owns(current: Reconciliation, revoking: AssignedPartitions) -> bool:
    """Whether the member still owns one of these; yes, if it does not report its partitions."""
    if current.owned is None:
        return True
    return any(
        not partitions.isdisjoint(revoking.get(topic_id, {}).keys()) for topic_id, partitions in current.owned.items()
    )


def _with_assignment(
    member: Member, epoch: Epoch, state: MemberState, assigned: AssignedPartitions, revoking: AssignedPartitions
) -> Member:
    return replace(
        member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, pending_revocation=revoking
    )


def _put(topics: dict[UUID, dict[int, int]], topic_id: UUID, partitions: dict[int, int]) -> None:
    if partitions:
        topics[topic_id] = partitions
