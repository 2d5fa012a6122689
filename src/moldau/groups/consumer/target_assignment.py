"""The target assignment of a consumer group: when a new one is due, and its computation.

The group epoch is bumped when subscriptions or subscribed topics change. The next heartbeat computes a target for it,
but not more often than group.consumer.assignment.interval.ms (KIP-1263): if a hundred members join at once, the first
is served at once and the others together.
"""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from uuid import UUID

from moldau.groups.assignors import range as range_assignor
from moldau.groups.assignors import uniform
from moldau.groups.assignors.assignor import Assignor, MemberSubscription
from moldau.groups.consumer.builder import ConsumerDecisionBuilder
from moldau.groups.consumer.group import ConsumerGroup, Member, subscription
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform.assign, "range": range_assignor.assign}
HASH_BYTES: Final = 8  # of the record's field


def subscribed_topics(group: ConsumerGroup) -> frozenset[str]:
    """The topics that members subscribe to, existing or not."""
    names = frozenset[str]().union(*{member.topics for member in group.members.values()})
    return names.union(*(resolved.topics for resolved in group.regexes.values()))


def metadata_hash(group: ConsumerGroup, topics: Topics) -> int:
    """A hash of the subscribed topics with their partitions and racks; 0 if there are none.

    Kafka uses xxHash3. Only equality matters: a group that was written by Kafka has its epoch bumped once, and its
    sticky assignment stays.
    """
    hashes = [_topic_hash(topics.by_name[name]) for name in sorted(subscribed_topics(group)) if name in topics.by_name]
    if not hashes:
        return 0
    return int.from_bytes(blake2b(b"".join(hashes), digest_size=HASH_BYTES).digest(), signed=True)


@lru_cache(maxsize=10_000)
def _topic_hash(topic: TopicView) -> bytes:
    parts = [topic.id.bytes, topic.name.encode(), str(topic.partitions).encode()]
    parts += [" ".join(sorted(racks)).encode() for racks in topic.racks]
    return blake2b(b"\0".join(parts), digest_size=HASH_BYTES).digest()


def bump_epoch(builder: ConsumerDecisionBuilder, env: GroupEnvironment, changed: bool) -> None:
    """Bump the group epoch if subscriptions (`changed`) or subscribed topics changed."""
    found = metadata_hash(builder.group, env.topics)
    if changed or found != builder.group.metadata_hash:
        builder.write_epoch(builder.group.epoch + 1, found)
    if builder.group.has_partition_metadata:  # of Kafka 4.0, replaced by the hash
        builder.delete_partition_metadata()


def assign_if_due(builder: ConsumerDecisionBuilder, env: GroupEnvironment) -> None:
    """Compute and write the target of the group epoch, unless it exists or the last one is too recent."""
    group = builder.group
    if group.assignment_epoch >= group.epoch:
        return
    interval_ms = env.config_of(group.group_id).consumer_assignment_interval_ms
    if group.assigned_at and 0 <= env.now - group.assigned_at < interval_ms:  # a time in the future does not count
        return
    members = _assignor_members(group, env.topics)
    counts = {each: env.topics.by_id[each].partitions for each in frozenset[UUID]().union(*_subscriptions(members))}
    assigned = ASSIGNORS[preferred_assignor(group, env.config)](members, counts)
    for member_id, target in assigned.items():
        if group.targets.get(member_id) != target:
            builder.write_target(member_id, target)
    builder.write_target_metadata(group.epoch, env.now)


def offered_assignors(config: GroupConfig) -> tuple[str, ...]:
    """The supported ones of group.consumer.assignors; Java classes are not. The first is the default."""
    return tuple(name for name in config.consumer_assignors if name in ASSIGNORS) or tuple(ASSIGNORS)


def preferred_assignor(group: ConsumerGroup, config: GroupConfig) -> str:
    """The assignor that most members request."""
    votes = Counter(each.assignor for each in group.members.values() if each.assignor is not None)
    requested = [name for name, _ in votes.most_common() if name in ASSIGNORS]
    return requested[0] if requested else offered_assignors(config)[0]


def _subscriptions(members: Mapping[str, MemberSubscription]) -> set[frozenset[UUID]]:
    return {member.topics for member in members.values()}


def _assignor_members(group: ConsumerGroup, topics: Topics) -> dict[str, MemberSubscription]:
    topic_ids: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}  # many members share few subscriptions

    def subscribed_ids(member: Member) -> frozenset[UUID]:
        key = (member.topics, member.regex)
        if key not in topic_ids:
            names = subscription(group, member)
            topic_ids[key] = frozenset(topics.by_name[name].id for name in names if name in topics.by_name)
        return topic_ids[key]

    return {
        member.id: MemberSubscription(member.instance_id, subscribed_ids(member), group.targets.get(member.id, {}))
        for member in group.members.values()
    }
