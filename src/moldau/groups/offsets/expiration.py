"""Deletion of committed offsets: by OffsetDelete, with their group or topic, or by expiration.

KIP-211: offsets are kept while the group has members, and for offsets.retention.minutes after it became empty. Without
that time, and for topics that the group no longer subscribes to, retention counts from the commit.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from moldau.base.coordination import Caller, Decision, Record
from moldau.base.errors import WireError
from moldau.groups.classic import reads as classic_reads
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.consumer import reads as consumer_reads
from moldau.groups.consumer.group import ConsumerGroup, Group
from moldau.groups.environment import GroupEnvironment, Topics
from moldau.groups.offsets.packed import (
    TOPIC_END,
    PackedPartition,
    commit_time,
    has_expiration,
    pack_partition,
    pack_topic,
    tombstone,
    unpack_topic,
    unpack_value,
)
from moldau.groups.offsets.store import OffsetStore
from moldau.wire.messages.consumer_protocol import PROTOCOL_TYPE
from moldau.wire.messages.offset_delete import (
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    OffsetDeleteTopicResponse,
)

VALIDATE_DELETE: Final[Mapping[type, Callable[[Any], WireError]]] = {
    ClassicGroup: classic_reads.validate_offset_delete,
    ConsumerGroup: consumer_reads.validate_offset_delete,
}
IS_SUBSCRIBED: Final[Mapping[type, Callable[[Any, str], bool]]] = {
    ClassicGroup: classic_reads.is_subscribed,
    ConsumerGroup: consumer_reads.is_subscribed,
}


# -- OffsetDelete


def delete(
    offsets: OffsetStore, group: Group | None, request: OffsetDeleteRequest, caller: Caller, env: GroupEnvironment
) -> Decision:
    """KIP-496: delete offsets of topics that the group does not subscribe to."""
    error = _check(group, request)
    if error is not WireError.NONE or group is None:
        return Decision.reply(caller, OffsetDeleteResponse(error_code=error))
    records: list[Record] = []
    topics = [_delete_topic(offsets, group, each, env.topics, records) for each in request.topics]
    topics.sort(key=_first_partition_exists)  # topics with missing partitions first, as in Kafka
    return Decision(records=records, replies=[(caller.token, OffsetDeleteResponse(topics=tuple(topics)))])


def _first_partition_exists(topic: OffsetDeleteTopicResponse) -> bool:
    return not topic.partitions or topic.partitions[0].error_code != WireError.UNKNOWN_TOPIC_OR_PARTITION


def _check(group: Group | None, request: OffsetDeleteRequest) -> WireError:
    if not request.group_id:
        return WireError.INVALID_GROUP_ID
    return WireError.GROUP_ID_NOT_FOUND if group is None else VALIDATE_DELETE[type(group)](group)


def _delete_topic(
    offsets: OffsetStore, group: Group, topic: OffsetDeleteTopic, topics: Topics, records: list[Record]
) -> OffsetDeleteTopicResponse:
    view = topics.by_name.get(topic.name)
    count = 0 if view is None else view.partitions
    head = pack_topic(topic.name)
    subscribed = IS_SUBSCRIBED[type(group)](group, topic.name)
    absent, there = [], []
    for each in topic.partitions:
        partition = each.partition_index
        if not 0 <= partition < count:
            absent.append((partition, WireError.UNKNOWN_TOPIC_OR_PARTITION))
        elif subscribed:
            there.append((partition, WireError.GROUP_SUBSCRIBED_TO_TOPIC))
        else:
            there.append((partition, WireError.NONE))
            packed = pack_partition(head, partition)
            if offsets.get(group.group_id, packed) is not None or offsets.is_pending(group.group_id, packed):
                records.append(tombstone(group.group_id, packed))
    partitions = tuple(
        OffsetDeletePartitionResponse(partition_index=partition, error_code=error)
        for partition, error in absent + there
    )
    return OffsetDeleteTopicResponse(name=topic.name, partitions=partitions)


def delete_all(offsets: OffsetStore, group_id: str) -> list[Record]:
    """Tombstones of all committed and pending offsets of a group."""
    return [tombstone(group_id, packed) for packed in offsets.partitions(group_id)]


# -- deleted topics


def tombstones_of_deleted_topics(offsets: OffsetStore, topics: Topics) -> Iterator[Record]:
    """Tombstones of the offsets of topics that do not exist (any more)."""
    for topic in offsets.topics():
        if unpack_topic(topic) not in topics.by_name:
            yield from (tombstone(group_id, packed) for group_id, packed in offsets.of_topic(topic))


# -- expiration


class ExpirationRule(NamedTuple):
    """Which offsets of a group may expire: topics not subscribed to, by commit time or by when it became empty."""

    is_subscribed: Callable[[str], bool]
    empty_since: int | None = None


def _classic_rule(group: ClassicGroup) -> ExpirationRule | None:
    topics = classic_reads.subscribed_topics(group)
    consumers = group.protocol_type == PROTOCOL_TYPE
    is_subscribed = (lambda topic: consumers) if topics is None else topics.__contains__
    if group.protocol_type is None:
        return ExpirationRule(is_subscribed)  # a simple group, without members
    if group.state is State.EMPTY:
        return ExpirationRule(is_subscribed, group.since if group.since >= 0 else None)
    if group.state is State.STABLE and consumers and topics is not None:
        return ExpirationRule(is_subscribed)
    return None


def _consumer_rule(group: ConsumerGroup) -> ExpirationRule:
    return ExpirationRule(consumer_reads.subscription_of(group))


EXPIRATION_RULES: Final[Mapping[type, Callable[[Any], ExpirationRule | None]]] = {
    ClassicGroup: _classic_rule,
    ConsumerGroup: _consumer_rule,
}


def expired(offsets: OffsetStore, group: Group, env: GroupEnvironment) -> tuple[list[PackedPartition], bool]:
    """The expired partitions of a group, and whether these are all its offsets."""
    group_id: str = group.group_id
    committed = offsets.committed(group_id)
    in_transaction = offsets.in_transaction(group_id)
    if not committed:
        return [], not in_transaction
    rule = EXPIRATION_RULES[type(group)](group)
    if rule is None:
        return [], False
    latest = env.now - env.config.offsets_retention_ms  # commits up to this time are expired
    group_over = rule.empty_since is not None and rule.empty_since <= latest
    subscribed: dict[bytes, bool] = {}
    gone = []
    for packed, value in committed.items():
        topic = packed[:TOPIC_END]
        reads = subscribed.get(topic)
        if reads is None:
            reads = subscribed[topic] = rule.is_subscribed(unpack_topic(topic))
        if reads or (in_transaction and offsets.is_pending(group_id, packed)):
            continue
        if has_expiration(value):
            over = unpack_value(value).expire_timestamp <= env.now
        elif rule.empty_since is None:
            over = commit_time(value) <= latest
        else:
            over = group_over
        if over:
            gone.append(packed)
    return gone, len(gone) == len(committed) and not in_transaction
