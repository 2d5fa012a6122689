"""Guards of APIs about groups and their offsets."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from moldau.base.errors import WireError
from moldau.broker.security.gate import Guard, Narrowed, Verdict, Visitor, split
from moldau.broker.security.guards.topics import FAILED, with_topics
from moldau.groups.offsets import fetch as offsets_fetch
from moldau.security.acls import Operation, ResourceType
from moldau.wire.declare import replace
from moldau.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from moldau.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from moldau.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.wire.messages.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from moldau.wire.primitives import ZERO_UUID

GROUP_FAILED = WireError.GROUP_AUTHORIZATION_FAILED
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


class _OfGroup(Protocol):
    group_id: str


def member(response: Callable[..., object]) -> Guard:
    """The guard of an API that members of a group call: its response has an error for all."""

    def guard(visitor: Visitor, request: _OfGroup) -> Verdict:
        return None if visitor.may_group(Operation.READ, request.group_id) else response(error_code=GROUP_FAILED)

    return guard


def consumer_group_heartbeat(visitor: Visitor, request: ConsumerGroupHeartbeatRequest) -> Verdict:
    """A member may subscribe by name to topics that it may describe."""
    if not visitor.may_group(Operation.READ, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=GROUP_FAILED, error_message=GROUP_FAILED.doc)
    names = dict.fromkeys(request.subscribed_topic_names or ())
    if not split(names, lambda name: visitor.may_topic(Operation.DESCRIBE, name))[1]:
        return None
    return ConsumerGroupHeartbeatResponse(error_code=FAILED, error_message=FAILED.doc)


def describe_groups(visitor: Visitor, request: DescribeGroupsRequest) -> Verdict:
    kept, refused = split(request.groups, lambda group: visitor.may_group(Operation.DESCRIBE, group))
    rows = tuple(DescribedGroup(group_id=group, error_code=GROUP_FAILED) for group in refused)
    if not kept:
        return DescribeGroupsResponse(groups=rows) if rows else None

    def seen(group: DescribedGroup) -> DescribedGroup:
        if group.error_code or not request.include_authorized_operations:
            return group
        return replace(group, authorized_operations=visitor.operations(ResourceType.GROUP, group.group_id))

    def complete(answered: DescribeGroupsResponse) -> DescribeGroupsResponse:
        return replace(answered, groups=tuple(map(seen, answered.groups)) + rows)

    return Narrowed(replace(request, groups=kept), complete)


def consumer_group_describe(visitor: Visitor, request: ConsumerGroupDescribeRequest) -> Verdict:
    """A group is described as a whole: not at all if a topic of one of its members may not be."""
    kept, refused = split(request.group_ids, lambda group: visitor.may_group(Operation.DESCRIBE, group))
    rows = tuple(
        ConsumerGroupDescribedGroup(group_id=group, error_code=GROUP_FAILED, error_message=GROUP_FAILED.doc)
        for group in refused
    )
    if not kept:
        return ConsumerGroupDescribeResponse(groups=rows) if rows else None

    def seen(group: ConsumerGroupDescribedGroup) -> ConsumerGroupDescribedGroup:
        if group.error_code:
            return group
        if not all(visitor.may_topic(Operation.DESCRIBE, name) for name in _topics_of(group)):
            return ConsumerGroupDescribedGroup(group_id=group.group_id, error_code=FAILED, error_message=HIDDEN_TOPICS)
        if not request.include_authorized_operations:
            return group
        return replace(group, authorized_operations=visitor.operations(ResourceType.GROUP, group.group_id))

    def complete(answered: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        return replace(answered, groups=tuple(map(seen, answered.groups)) + rows)

    return Narrowed(replace(request, group_ids=kept), complete)


def _topics_of(group: ConsumerGroupDescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for each in group.members
        for assignment in (each.assignment, each.target_assignment)
        for topic in assignment.topic_partitions
    }


def list_groups(visitor: Visitor, request: ListGroupsRequest) -> Verdict:
    if visitor.may_cluster(Operation.DESCRIBE, log=False):
        return None

    def complete(answered: ListGroupsResponse) -> ListGroupsResponse:
        groups = (
            group for group in answered.groups if visitor.may_group(Operation.DESCRIBE, group.group_id, log=False)
        )
        return replace(answered, groups=tuple(groups))

    return Narrowed(request, complete)


def delete_groups(visitor: Visitor, request: DeleteGroupsRequest) -> Verdict:
    kept, refused = split(request.groups_names, lambda group: visitor.may_group(Operation.DELETE, group))
    rows = tuple(DeletableGroupResult(group_id=group, error_code=GROUP_FAILED) for group in refused)
    if not kept:
        return DeleteGroupsResponse(results=rows) if rows else None
    if not rows:
        return None

    def complete(answered: DeleteGroupsResponse) -> DeleteGroupsResponse:
        return replace(answered, results=answered.results + rows)

    return Narrowed(replace(request, groups_names=kept), complete)


def _may_read(visitor: Visitor, operation: Operation, name: str, topic_id: UUID) -> bool:
    """Whether a topic may be used that has a name, or in newer versions an id; an unknown id is the handler's."""
    known = visitor.topic_name(topic_id) if topic_id != ZERO_UUID else name
    return known is None or visitor.may_topic(operation, known)


def offset_commit(visitor: Visitor, request: OffsetCommitRequest) -> Verdict:
    if not visitor.may_group(Operation.READ, request.group_id):
        return OffsetCommitResponse(topics=tuple(_uncommitted(topic, GROUP_FAILED) for topic in request.topics))
    kept, refused = split(request.topics, lambda topic: _may_read(visitor, Operation.READ, topic.name, topic.topic_id))
    if not refused:
        return None
    rows = tuple(_uncommitted(topic, FAILED) for topic in refused)
    return with_topics(replace(request, topics=kept), OffsetCommitResponse(topics=rows))


def _uncommitted(topic: OffsetCommitTopic, error: WireError) -> OffsetCommitTopicResponse:
    return OffsetCommitTopicResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetCommitPartitionResponse(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ),
    )


def offset_fetch(visitor: Visitor, request: OffsetFetchRequest) -> Verdict:
    kept: list[OffsetFetchGroup] = []
    refused: list[OffsetFetchGroupResponse] = []
    missing: dict[str, tuple[OffsetFetchTopicResponse, ...]] = {}  # rows of refused topics, by group
    for group in request.groups:
        if not visitor.may_group(Operation.DESCRIBE, group.group_id):
            refused.append(offsets_fetch.refused(group, GROUP_FAILED, visitor.version))
            continue
        if group.topics is not None:
            topics, hidden = split(
                group.topics, lambda topic: _may_read(visitor, Operation.DESCRIBE, topic.name, topic.topic_id)
            )
            missing[group.group_id] = tuple(
                _unfetched(each.name, each.topic_id, each.partition_indexes) for each in hidden
            )
            group = replace(group, topics=topics)
        kept.append(group)
    if not kept:
        return OffsetFetchResponse(groups=tuple(refused)) if refused else None

    def seen(group: OffsetFetchGroupResponse) -> OffsetFetchGroupResponse:
        if group.error_code:
            return group
        if group.group_id in missing:
            return replace(group, topics=group.topics + missing[group.group_id])
        visible, _ = split(  # all topics were asked for: those that may not be seen are left out
            group.topics, lambda topic: _may_read(visitor, Operation.DESCRIBE, topic.name, topic.topic_id)
        )
        return replace(group, topics=visible)

    def complete(answered: OffsetFetchResponse) -> OffsetFetchResponse:
        return replace(answered, groups=tuple(map(seen, answered.groups)) + tuple(refused))

    return Narrowed(replace(request, groups=tuple(kept)), complete)


def _unfetched(name: str, topic_id: UUID, indexes: tuple[int, ...]) -> OffsetFetchTopicResponse:
    return OffsetFetchTopicResponse(
        name=name,
        topic_id=topic_id,
        partitions=tuple(
            OffsetFetchPartitionResponse(partition_index=index, committed_offset=-1, error_code=FAILED)
            for index in indexes
        ),
    )


def offset_delete(visitor: Visitor, request: OffsetDeleteRequest) -> Verdict:
    if not visitor.may_group(Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=GROUP_FAILED)
    kept, refused = split(request.topics, lambda topic: visitor.may_topic(Operation.READ, topic.name))
    if not refused:
        return None
    rows = tuple(
        OffsetDeleteTopicResponse(
            name=topic.name,
            partitions=tuple(
                OffsetDeletePartitionResponse(partition_index=each.partition_index, error_code=FAILED)
                for each in topic.partitions
            ),
        )
        for topic in refused
    )

    def complete(answered: OffsetDeleteResponse) -> OffsetDeleteResponse:
        return answered if answered.error_code else replace(answered, topics=answered.topics + rows)

    return Narrowed(replace(request, topics=kept), complete)
