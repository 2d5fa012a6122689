"""Reconciliation: one member takes the next step from what it has to what it shall have (KIP-848). Pure arithmetic.

A member first gives back what is not its own any more, then moves to the epoch of the target, then gets what others
have given back. So at no time do two members have a partition, and nobody waits for all the others.

    STABLE ──new target──▸ UNREVOKED_PARTITIONS ──gave back──▸ UNRELEASED_PARTITIONS ──all there──▸ STABLE
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from moldau.base.errors import Refusal, WireError
from moldau.groups.consumer.group import (
    AssignedPartitions,
    Assignment,
    ConsumerGroup,
    Member,
    MemberState,
    subscription,
)
from moldau.groups.environment import Topics

Owned = Mapping[UUID, frozenset[int]]  # what a member says it owns

NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """All that the next step depends on."""

    group: ConsumerGroup  # has the target's epoch, and knows who owns what
    member: Member
    target: Assignment
    owned: Owned | None  # None: the member did not say
    topics: Topics
    subscription_changed: bool


def next_step(step: Reconciliation) -> Member | Refusal:
    """The member after the step; the same one if it has to wait, or has arrived."""
    member = step.member
    match member.state:
        case MemberState.STABLE:
            if member.epoch != step.group.assignment_epoch:
                return _next_assignment(step)
            return _revoke_unsubscribed(step) if step.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(step, member.pending_revocation):
                return _revoke_unsubscribed(step) if step.subscription_changed else member
            return _next_assignment(step)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_assignment(step)
        case MemberState.UNKNOWN:  # written by a newer version: start over, with nothing in hand
            if step.owned is None or step.owned:
                message = "The member is in an unknown state. It must give up all its partitions and join again."
                return Refusal(WireError.FENCED_MEMBER_EPOCH, message)
            return _next_assignment(step)


def _next_assignment(step: Reconciliation) -> Member:
    member = step.member
    wanted = _wanted(step)
    kept: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    coming: dict[UUID, frozenset[int]] = {}
    unreleased = False
    for topic_id in {**step.target, **member.assigned}:
        held = member.assigned.get(topic_id, {})
        target = step.target.get(topic_id, NOTHING) if topic_id in wanted else NOTHING
        missing = target - held.keys()
        free = frozenset(each for each in missing if _is_free(step, topic_id, each))
        unreleased = unreleased or len(free) < len(missing)
        _put(kept, topic_id, {each: epoch for each, epoch in held.items() if each in target})
        _put(revoking, topic_id, {each: epoch for each, epoch in held.items() if each not in target})
        if free:
            coming[topic_id] = free
    if revoking and _still_owns(step, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    epoch = step.group.assignment_epoch
    for topic_id, partitions in coming.items():
        kept[topic_id] = kept.get(topic_id, {}) | dict.fromkeys(sorted(partitions), epoch)
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(member, epoch, state, kept, {})


def _revoke_unsubscribed(step: Reconciliation) -> Member:
    """The subscription changed and there is no target for it yet: topics that the member left are taken from it."""
    member = step.member
    wanted = _wanted(step)
    left = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in wanted}
    if not left:
        return member
    kept = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in wanted}
    revoking = {
        topic_id: {**member.pending_revocation.get(topic_id, {}), **left.get(topic_id, {})}
        for topic_id in {**member.pending_revocation, **left}
    }
    if _still_owns(step, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return _moved(member, member.epoch, member.state, kept, member.pending_revocation)  # it has given them back already


def _wanted(step: Reconciliation) -> set[UUID]:
    by_name = step.topics.by_name
    return {by_name[name].id for name in subscription(step.group, step.member) if name in by_name}


def _is_free(step: Reconciliation, topic_id: UUID, partition: int) -> bool:
    """What the member is revoking itself counts as free: it may have it back."""
    owner = step.group.owners.get(topic_id, {}).get(partition)
    return owner is None or owner == step.member.id


def _still_owns(step: Reconciliation, revoking: AssignedPartitions) -> bool:
    """A member that does not say what it owns has given nothing back."""
    if step.owned is None:
        return True
    return any(
        not partitions.isdisjoint(revoking.get(topic_id, {}).keys()) for topic_id, partitions in step.owned.items()
    )


def _moved(
    member: Member, epoch: int, state: MemberState, held: AssignedPartitions, revoking: AssignedPartitions
) -> Member:
    return replace(
        member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=held, pending_revocation=revoking
    )


def _put(topics: dict[UUID, dict[int, int]], topic_id: UUID, partitions: dict[int, int]) -> None:
    if partitions:
        topics[topic_id] = partitions
