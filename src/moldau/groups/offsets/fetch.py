"""OffsetFetch 1–10: committed offsets of one group, of some partitions or of all."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from moldau.base.errors import WireError
from moldau.groups.environment import Topics
from moldau.groups.offsets.packed import pack_partition, pack_topic, unpack_partition, unpack_topic, unpack_value
from moldau.groups.offsets.store import OffsetStore
from moldau.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResponse,
)
from moldau.wire.primitives import ZERO_UUID

BY_TOPIC_ID: Final = 10  # from this version on requests have topic ids
NO_OFFSET: Final = -1


def fetch(
    offsets: OffsetStore, request: OffsetFetchGroup, require_stable: bool, version: int, topics: Topics
) -> OffsetFetchGroupResponse:
    """The committed offsets of a group; none if it does not exist. The member has been validated."""
    by_id = version >= BY_TOPIC_ID
    if request.topics is None:
        found = _all(offsets, request.group_id, require_stable, topics, by_id)
    elif by_id:
        found = _some_by_id(offsets, request.group_id, request.topics, require_stable, topics)
    else:
        found = [_topic(offsets, request.group_id, topic, topic.name, require_stable) for topic in request.topics]
    return OffsetFetchGroupResponse(group_id=request.group_id, topics=tuple(found))


def refused(request: OffsetFetchGroup, error: WireError, version: int) -> OffsetFetchGroupResponse:
    """An error for the whole group. Version 1 has errors of partitions only."""
    if version >= 2:
        return OffsetFetchGroupResponse(group_id=request.group_id, error_code=error)
    topics = tuple(_refused(topic, error) for topic in request.topics or ())
    return OffsetFetchGroupResponse(group_id=request.group_id, topics=topics, error_code=error)


def _some_by_id(
    offsets: OffsetStore, group_id: str, asked: Iterable[OffsetFetchTopic], require_stable: bool, topics: Topics
) -> list[OffsetFetchTopicResponse]:
    """Unknown topics come last, as in Kafka."""
    found, unknown = [], []
    for topic in asked:
        view = topics.by_id.get(topic.topic_id)
        if view is None:
            unknown.append(_refused(topic, WireError.UNKNOWN_TOPIC_ID))
        else:
            found.append(_topic(offsets, group_id, topic, view.name, require_stable))
    return found + unknown


def _topic(
    offsets: OffsetStore, group_id: str, topic: OffsetFetchTopic, name: str, require_stable: bool
) -> OffsetFetchTopicResponse:
    head = pack_topic(name)
    partitions = []
    for partition in topic.partition_indexes:
        packed = pack_partition(head, partition)
        unstable = require_stable and offsets.is_pending(group_id, packed)
        partitions.append(_partition(partition, offsets.get(group_id, packed), unstable, topic.topic_id))
    return OffsetFetchTopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))


def _all(
    offsets: OffsetStore, group_id: str, require_stable: bool, topics: Topics, by_id: bool
) -> list[OffsetFetchTopicResponse]:
    """All committed offsets by topic; with topic ids, deleted topics are left out."""
    found: dict[str, list[OffsetFetchPartitionResponse]] = {}
    for packed, value in offsets.committed(group_id).items():
        unstable = require_stable and offsets.is_pending(group_id, packed)
        found.setdefault(unpack_topic(packed), []).append(
            _partition(unpack_partition(packed), value, unstable, ZERO_UUID)
        )
    views = {name: topics.by_name.get(name) for name in found}
    ids = {name: view.id for name, view in views.items() if view is not None}
    return [
        OffsetFetchTopicResponse(name=name, topic_id=ids.get(name, ZERO_UUID), partitions=tuple(partitions))
        for name, partitions in found.items()
        if name in ids or not by_id
    ]


def _partition(partition: int, value: bytes | None, unstable: bool, topic_id: UUID) -> OffsetFetchPartitionResponse:
    if unstable:
        return _none(partition, WireError.UNSTABLE_OFFSET_COMMIT)
    if value is None:
        return _none(partition, WireError.NONE)
    found = unpack_value(value)
    if ZERO_UUID not in (topic_id, found.topic_id) and topic_id != found.topic_id:
        return _none(partition, WireError.NONE)  # of a deleted topic with the same name
    return OffsetFetchPartitionResponse(
        partition_index=partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _none(partition: int, error: WireError) -> OffsetFetchPartitionResponse:
    return OffsetFetchPartitionResponse(partition_index=partition, committed_offset=NO_OFFSET, error_code=error)


def _refused(topic: OffsetFetchTopic, error: WireError) -> OffsetFetchTopicResponse:
    partitions = tuple(_none(partition, error) for partition in topic.partition_indexes)
    return OffsetFetchTopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
