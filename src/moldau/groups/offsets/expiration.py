"""How committed offsets end: deleted by an administrator, with their group or topic, or because nobody needs them.

KIP-211: what a group committed is kept while the group is at work, and for offsets.retention.minutes from when it
became empty. Where there is no such time, and for topics that a group reads no longer, it counts from the commit.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from moldau.base.coordination import Caller, Decision, Record
from moldau.base.errors import WireError
from moldau.groups.classic import reads as classic_reads
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.consumer import reads as consumer_reads
from moldau.groups.consumer.group import ConsumerGroup
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


# -- by request


def delete(
    offsets: OffsetStore, group: Any, request: OffsetDeleteRequest, caller: Caller, env: GroupEnvironment
) -> Decision:
    """KIP-496: offsets of topics that the group does not read."""
    error = _check(group, request)
    if error is not WireError.NONE:
        return Decision.reply(caller, OffsetDeleteResponse(error_code=error))
    records: list[Record] = []
    topics = [_delete_topic(offsets, group, each, env.topics, records) for each in request.topics]
    topics.sort(key=_first_partition_exists)  # topics with partitions that do not exist come first, as in Kafka
    return Decision(records=records, replies=[(caller.token, OffsetDeleteResponse(topics=tuple(topics)))])


def _first_partition_exists(topic: OffsetDeleteTopicResponse) -> bool:
    return not topic.partitions or topic.partitions[0].error_code != WireError.UNKNOWN_TOPIC_OR_PARTITION


def _check(group: Any, request: OffsetDeleteRequest) -> WireError:
    if not request.group_id:
        return WireError.INVALID_GROUP_ID
    return WireError.GROUP_ID_NOT_FOUND if group is None else VALIDATE_DELETE[type(group)](group)


def _delete_topic(
    offsets: OffsetStore, group: Any, topic: OffsetDeleteTopic, topics: Topics, records: list[Record]
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
    """Everything of a group that goes, and what its transactions have pending."""
    return [tombstone(group_id, packed) for packed in offsets.partitions(group_id)]


# -- with their topic


def tombstones_of_deleted_topics(offsets: OffsetStore, topics: Topics) -> Iterator[Record]:
    """Offsets are only ever committed for topics that exist: one that does not has been deleted."""
    for topic in offsets.topics():
        if unpack_topic(topic) not in topics.by_name:
            yield from (tombstone(group_id, packed) for group_id, packed in offsets.of_topic(topic))


# -- by time


class ExpirationRule(NamedTuple):
    """What may expire of a group: topics that it does not read, by their commit, or by when it became empty."""

    is_subscribed: Callable[[str], bool]
    empty_since: int | None = None


def _classic_rule(group: ClassicGroup) -> ExpirationRule | None:
    topics = classic_reads.subscribed_topics(group)
    consumers = group.protocol_type == PROTOCOL_TYPE
    is_subscribed = (lambda topic: consumers) if topics is None else topics.__contains__
    if group.protocol_type is None:
        return ExpirationRule(is_subscribed)  # a simple group, which has no members to be heard of
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


def expired(offsets: OffsetStore, group: Any, env: GroupEnvironment) -> tuple[list[PackedPartition], bool]:
    """The places of a group that nobody needs any more, and whether that is all there is of its offsets."""
    group_id: str = group.group_id
    committed = offsets.committed(group_id)
    in_transaction = offsets.in_transaction(group_id)
    if not committed:
        return [], not in_transaction
    rule = EXPIRATION_RULES[type(group)](group)
    if rule is None:
        return [], False
    latest = env.now - env.config.offsets_retention_ms  # what began then or before is over
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
