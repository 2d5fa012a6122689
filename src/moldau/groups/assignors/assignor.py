"""The interface of an assignor. Assignors know members and topics, nothing of epochs or records."""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]


class MemberSubscription(NamedTuple):
    """A member's subscription and current target."""

    instance_id: str | None
    topics: frozenset[UUID]  # subscribed topics that exist
    current: Assignment  # its last target


PartitionCounts = Mapping[UUID, int]  # of every subscribed topic
# Returns an assignment for every member.
Assignor = Callable[[Mapping[str, MemberSubscription], PartitionCounts], dict[str, Assignment]]


def same_topics(members: Mapping[str, MemberSubscription]) -> bool:
    """Whether all members subscribe to the same topics."""
    subscriptions = iter(members.values())
    first = next(subscriptions, None)
    return first is None or all(each.topics == first.topics for each in subscriptions)
