"""Reads of a consumer group: describe, list, validation of commits and fetches of offsets, and of deletions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from moldau.base.coordination import Record
from moldau.base.errors import WireError
from moldau.base.ids import Epoch
from moldau.groups.consumer.builder import ConsumerDecisionBuilder
from moldau.groups.consumer.group import EMPTY, ConsumerGroup, Member
from moldau.groups.consumer.target_assignment import preferred_assignor, subscribed_topics
from moldau.groups.environment import GroupConfig, Topics
from moldau.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribedAssignment,
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribedMember,
    ConsumerGroupDescribedTopic,
)
from moldau.wire.messages.consumer_protocol import PROTOCOL_TYPE
from moldau.wire.messages.list_groups import ListedGroup

GROUP_TYPE: Final = "consumer"
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
EPOCHS_SINCE: Final = 9  # OffsetCommit version from which it has member epochs


def listed(group: ConsumerGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id, protocol_type=PROTOCOL_TYPE, group_state=group.state, group_type=GROUP_TYPE
    )


def describe(group: ConsumerGroup, topics: Topics, config: GroupConfig) -> ConsumerGroupDescribedGroup:
    return ConsumerGroupDescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group, config),
        members=tuple(_member(group, member, topics) for member in group.members.values()),
    )


def _member(group: ConsumerGroup, member: Member, topics: Topics) -> ConsumerGroupDescribedMember:
    has = {
        topic_id: [*member.assigned.get(topic_id, ()), *member.pending_revocation.get(topic_id, ())]
        for topic_id in {**member.assigned, **member.pending_revocation}
    }
    return ConsumerGroupDescribedMember(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(has, topics),
        target_assignment=_assignment(group.targets.get(member.id, {}), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[UUID, Iterable[int]], topics: Topics) -> ConsumerGroupDescribedAssignment:
    """Deleted topics have no name and are left out."""
    return ConsumerGroupDescribedAssignment(
        topic_partitions=tuple(
            ConsumerGroupDescribedTopic(
                topic_id=topic_id, topic_name=topics.by_id[topic_id].name, partitions=tuple(sorted(each))
            )
            for topic_id, each in partitions.items()
            if topic_id in topics.by_id
        )
    )


# Offsets


def validate_commit(
    group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: Epoch, transactional: bool, version: int
) -> WireError:
    """Whether this member may commit offsets at this epoch; for older epochs see `validate_partitions`."""
    if epoch < 0 and not group.members:
        return WireError.NONE
    if transactional and epoch == -1 and not member_id and instance_id is None:
        return WireError.NONE  # TxnOffsetCommit has no member id before version 3 (KIP-447)
    member = group.members.get(member_id)
    if member is None:
        return WireError.UNKNOWN_MEMBER_ID
    if not transactional and member.classic is None and version < EPOCHS_SINCE:
        return WireError.UNSUPPORTED_VERSION
    return WireError.NONE if epoch <= member.epoch else _outdated(member)


def validate_partitions(
    group: ConsumerGroup, member_id: str, epoch: Epoch, partitions: Iterable[tuple[UUID, int]]
) -> WireError:
    """KIP-1251: with an older epoch a member may commit partitions that it has owned since that epoch."""
    member = group.members.get(member_id)
    if member is None or epoch == member.epoch:
        return WireError.NONE
    for topic_id, partition in partitions:
        since = member.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = member.pending_revocation.get(topic_id, {}).get(partition)
        if since is None or epoch < since:
            return _outdated(member)
    return WireError.NONE


def validate_fetch(group: ConsumerGroup, member_id: str | None, epoch: Epoch) -> WireError:
    """Whether this member may fetch the group's offsets; requests without a member id always may."""
    if member_id is None and epoch < 0:
        return WireError.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return WireError.UNKNOWN_MEMBER_ID
    return WireError.NONE if epoch == member.epoch else _outdated(member)


def _outdated(member: Member) -> WireError:
    return WireError.STALE_MEMBER_EPOCH if member.classic is None else WireError.ILLEGAL_GENERATION


def validate_offset_delete(_group: ConsumerGroup) -> WireError:
    """The subscription is always known."""
    return WireError.NONE


def is_subscribed(group: ConsumerGroup, topic: str) -> bool:
    return topic in subscribed_topics(group)


def subscription_of(group: ConsumerGroup) -> Callable[[str], bool]:
    """`is_subscribed` for many topics."""
    return subscribed_topics(group).__contains__


# Deletion


def validate_delete(group: ConsumerGroup) -> WireError:
    return WireError.NONE if group.state == EMPTY else WireError.NON_EMPTY_GROUP


def tombstones(group: ConsumerGroup) -> list[Record]:
    builder = ConsumerDecisionBuilder(group, group.group_id)
    builder.delete_group()
    return builder.decision.records
