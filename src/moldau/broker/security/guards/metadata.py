"""Guards of Metadata and its like: topics that may not be described are refused if named, and else hidden."""

from moldau.base.errors import WireError
from moldau.broker.security.gate import Narrowed, Verdict, Visitor, split
from moldau.security.acls import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.declare import replace
from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from moldau.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from moldau.wire.primitives import ZERO_UUID

FAILED = WireError.TOPIC_AUTHORIZATION_FAILED


def metadata(visitor: Visitor, request: MetadataRequest) -> Verdict:
    kept, rows = _all(visitor) if request.topics is None else _named(visitor, request, request.topics)
    of_topics, of_cluster = (
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
    )
    if kept is None and not (of_topics or of_cluster):
        return None

    def seen(topic: MetadataResponseTopic) -> MetadataResponseTopic:
        if not of_topics or topic.name is None:
            return topic
        return replace(topic, topic_authorized_operations=visitor.operations(ResourceType.TOPIC, topic.name))

    def complete(answered: MetadataResponse) -> MetadataResponse:
        answered = replace(answered, topics=tuple(map(seen, answered.topics)) + rows)
        return replace(answered, cluster_authorized_operations=_cluster(visitor)) if of_cluster else answered

    return Narrowed(request if kept is None else replace(request, topics=kept), complete)


Chosen = tuple[tuple[MetadataRequestTopic, ...] | None, tuple[MetadataResponseTopic, ...]]


def _all(visitor: Visitor) -> Chosen:
    names, hidden = split(visitor.image.topics, lambda name: visitor.may_topic(Operation.DESCRIBE, name, log=False))
    return (tuple(MetadataRequestTopic(name=name) for name in names) if hidden else None), ()


def _named(visitor: Visitor, request: MetadataRequest, asked: tuple[MetadataRequestTopic, ...]) -> Chosen:
    """The topics that are left, or None if all are; and the rows of the others."""
    rows: list[MetadataResponseTopic] = []
    kept: list[MetadataRequestTopic] = []
    creates = request.allow_auto_topic_creation and visitor.config.auto_create_topics_enable
    for each in asked:
        by_id = each.name is None or each.topic_id != ZERO_UUID
        name = visitor.topic_name(each.topic_id) if by_id else each.name
        if name is None:
            kept.append(each)
        elif not visitor.may_topic(Operation.DESCRIBE, name):  # topic ids are no secret, names are
            rows.append(_refused(None, each) if by_id else _refused(name, each))
        elif creates and name not in visitor.image.topics and not _may_create(visitor, name):
            rows.append(_refused(name, each))
        else:
            kept.append(each)
    return (tuple(kept) if rows else None), tuple(rows)


def _refused(name: str | None, asked: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=FAILED, name=name, topic_id=asked.topic_id, partitions=())


def _may_create(visitor: Visitor, name: str) -> bool:
    return visitor.may_cluster(Operation.CREATE, log=False) or visitor.may_topic(Operation.CREATE, name)


def _cluster(visitor: Visitor) -> int:
    may = visitor.may_cluster(Operation.DESCRIBE)
    return visitor.operations(ResourceType.CLUSTER, CLUSTER_NAME) if may else 0


def describe_cluster(visitor: Visitor, request: DescribeClusterRequest) -> Verdict:
    """Everyone may ask where the brokers are; only the authorized operations need a right."""
    if not request.include_cluster_authorized_operations:
        return None

    def complete(answered: DescribeClusterResponse) -> DescribeClusterResponse:
        if answered.error_code:
            return answered
        return replace(answered, cluster_authorized_operations=_cluster(visitor))

    return Narrowed(request, complete)


def describe_topic_partitions(visitor: Visitor, request: DescribeTopicPartitionsRequest) -> Verdict:
    named = [topic.name for topic in request.topics]
    kept, refused = split(
        named or visitor.image.topics, lambda name: visitor.may_topic(Operation.DESCRIBE, name, log=bool(named))
    )
    rows = tuple(
        DescribeTopicPartitionsResponseTopic(error_code=FAILED, name=name, topic_id=ZERO_UUID, partitions=())
        for name in (refused if named else ())
    )
    if not kept:
        return DescribeTopicPartitionsResponse(topics=rows) if refused else None

    def seen(topic: DescribeTopicPartitionsResponseTopic) -> DescribeTopicPartitionsResponseTopic:
        if topic.name is None:
            return topic
        return replace(topic, topic_authorized_operations=visitor.operations(ResourceType.TOPIC, topic.name))

    def complete(answered: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        return replace(answered, topics=tuple(map(seen, answered.topics)) + rows)

    topics = tuple(TopicRequest(name=name) for name in kept) if named or refused else ()
    return Narrowed(replace(request, topics=topics), complete)
