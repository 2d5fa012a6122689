"""Committed offsets of a group: read, alter and delete them; and the offsets that its partitions hold."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from moldau.base.errors import WireError
from moldau.base.ids import Offset, TopicPartition
from moldau.client.admin.clients import Admin, admin_error
from moldau.client.admin.cluster import GROUP, Cluster, retry_transient
from moldau.client.admin.errors import (
    AdminError,
    GroupNotEmpty,
    GroupSubscribed,
    NoSuchGroup,
    NoSuchPartition,
    NoSuchTopic,
    refused,
)
from moldau.client.admin.groups import wait_for_group
from moldau.client.admin.target import REQUEST_TIMEOUT_S
from moldau.wire.messages.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)

NO_OFFSET = -1


def read_committed(admin: Admin, group: str) -> dict[TopicPartition, Offset]:
    """The group's committed offsets."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    request = [ConsumerGroupTopicPartitions(group)]
    future = admin.client.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[group]
    found = wait_for_group(admin, future, group).topic_partitions or ()
    for one in found:
        if one.error is not None:
            raise admin_error(one.error, admin.target, topic=one.topic)
    committed = {TopicPartition(one.topic, one.partition): one.offset for one in found if one.offset >= 0}
    return dict(sorted(committed.items()))


def write_committed(
    admin: Admin, group: str, offsets: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, AdminError]:
    """Commit for a group without members. Returns the partitions that were refused; the others are committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka import TopicPartition as KafkaPartition

    wanted = [KafkaPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(group, wanted)]
    future = admin.client.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[group]
    problems: dict[TopicPartition, AdminError] = {}
    for one in wait_for_group(admin, future, group).topic_partitions or ():
        if one.error is not None:
            # A member has joined meanwhile: members commit with their id, and this commit has none.
            live = one.error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP")
            problem = GroupNotEmpty(group) if live else admin_error(one.error, admin.target, topic=one.topic)
            problems[TopicPartition(one.topic, one.partition)] = problem
    return problems


def delete_committed(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, AdminError | None]:
    """OffsetDelete, which librdkafka's Python binding lacks. The outcome per partition: None if deleted."""
    wanted = sorted(partitions)
    topics = tuple(
        OffsetDeleteTopic(
            name=topic,
            partitions=tuple(OffsetDeletePartition(partition_index=tp.partition) for tp in wanted if tp.topic == topic),
        )
        for topic in sorted({tp.topic for tp in wanted})
    )
    request = OffsetDeleteRequest(group_id=group, topics=topics)
    answer = retry_transient(
        lambda: cluster.broker(cluster.coordinator(GROUP, group)).ask(request, OffsetDeleteResponse),
        lambda response: response.error_code,
    )
    if answer.error_code:
        raise _refused_group(answer.error_code, group)
    return {
        TopicPartition(topic.name, row.partition_index): _refused_partition(
            row.error_code, group, TopicPartition(topic.name, row.partition_index)
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def _refused_group(code: int, group: str) -> AdminError:
    if code == WireError.GROUP_ID_NOT_FOUND:
        return NoSuchGroup(group)
    if code == WireError.NON_EMPTY_GROUP:
        return GroupNotEmpty(group)
    return refused(code, f"offsets of group {group!r} cannot be deleted")


def _refused_partition(code: int, group: str, tp: TopicPartition) -> AdminError | None:
    if not code:
        return None
    if code == WireError.GROUP_SUBSCRIBED_TO_TOPIC:
        return GroupSubscribed(group, tp.topic)
    return refused(code, f"the offset of {tp} cannot be deleted")


def read_offsets(
    admin: Admin, partitions: Iterable[TopicPartition], at: Literal["earliest", "latest"] | int
) -> dict[TopicPartition, Offset | None]:
    """The log start offset, the next offset, or the offset of the first record from a time (milliseconds) on.

    None for a partition that does not exist, and for a time after its last record.
    """
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import OffsetSpec

    makers: dict[Any, Any] = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}
    spec = makers[at]() if at in makers else OffsetSpec.for_timestamp(int(at))
    request = {KafkaPartition(tp.topic, tp.partition): spec for tp in partitions}
    futures = admin.client.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S) if request else {}
    offsets: dict[TopicPartition, Offset | None] = {}
    for one, future in futures.items():
        try:
            offset = admin.wait(future, topic=one.topic).offset
        except (NoSuchTopic, NoSuchPartition):
            offset = NO_OFFSET
        offsets[TopicPartition(one.topic, one.partition)] = offset if offset > NO_OFFSET else None
    return offsets
