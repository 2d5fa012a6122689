"""Guards of APIs about partitions and topics, but for Metadata: what is refused has an error in its row."""

from collections import Counter

from moldau.base.errors import WireError
from moldau.broker.security.gate import Narrowed, Verdict, Visitor, split
from moldau.security.acls import Operation
from moldau.wire.declare import replace
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from moldau.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from moldau.wire.primitives import ZERO_UUID

FAILED = WireError.TOPIC_AUTHORIZATION_FAILED


def list_offsets(visitor: Visitor, request: ListOffsetsRequest) -> Verdict:
    kept, refused = split(request.topics, lambda topic: visitor.may_topic(Operation.DESCRIBE, topic.name))
    if not refused:
        return None
    rows = tuple(
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=tuple(
                ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=FAILED)
                for each in topic.partitions
            ),
        )
        for topic in refused
    )
    return with_topics(replace(request, topics=kept), ListOffsetsResponse(topics=rows))


def delete_records(visitor: Visitor, request: DeleteRecordsRequest) -> Verdict:
    kept, refused = split(request.topics, lambda topic: visitor.may_topic(Operation.DELETE, topic.name))
    if not refused:
        return None
    rows = tuple(
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=tuple(
                DeleteRecordsPartitionResult(partition_index=each.partition_index, low_watermark=-1, error_code=FAILED)
                for each in topic.partitions
            ),
        )
        for topic in refused
    )
    return with_topics(replace(request, topics=kept), DeleteRecordsResponse(topics=rows))


def offset_for_leader_epoch(visitor: Visitor, request: OffsetForLeaderEpochRequest) -> Verdict:
    if visitor.may_cluster(Operation.CLUSTER_ACTION, log=False):
        return None
    kept, refused = split(request.topics, lambda topic: visitor.may_topic(Operation.DESCRIBE, topic.topic))
    if not refused:
        return None
    rows = tuple(
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(EpochEndOffset(error_code=FAILED, partition=each.partition) for each in topic.partitions),
        )
        for topic in refused
    )
    return with_topics(replace(request, topics=kept), OffsetForLeaderEpochResponse(topics=rows))


def describe_producers(visitor: Visitor, request: DescribeProducersRequest) -> Verdict:
    kept, refused = split(request.topics, lambda topic: visitor.may_topic(Operation.READ, topic.name))
    if not refused:
        return None
    rows = tuple(
        TopicResponse(
            name=topic.name,
            partitions=tuple(
                PartitionResponse(partition_index=index, error_code=FAILED, active_producers=())
                for index in topic.partition_indexes
            ),
        )
        for topic in refused
    )
    return with_topics(replace(request, topics=kept), DescribeProducersResponse(topics=rows))


def create_partitions(visitor: Visitor, request: CreatePartitionsRequest) -> Verdict:
    kept, refused = split(request.topics, lambda topic: visitor.may_topic(Operation.ALTER, topic.name))
    if not refused:
        return None
    rows = tuple(CreatePartitionsTopicResult(name=topic.name, error_code=FAILED) for topic in refused)
    if not kept:
        return CreatePartitionsResponse(results=rows)

    def complete(answered: CreatePartitionsResponse) -> CreatePartitionsResponse:
        return replace(answered, results=answered.results + rows)

    return Narrowed(replace(request, topics=kept), complete)


def create_topics(visitor: Visitor, request: CreateTopicsRequest) -> Verdict:
    """A topic may be created and not described: its response has then no partitions and no configs."""
    counts = Counter(topic.name for topic in request.topics)
    everywhere = visitor.may_cluster(Operation.CREATE, log=False)
    kept, refused = split(
        request.topics,
        lambda topic: everywhere or counts[topic.name] > 1 or visitor.may_topic(Operation.CREATE, topic.name),
    )
    rows = tuple(
        CreatableTopicResult(name=topic.name, error_code=FAILED, error_message=FAILED.doc, configs=())
        for topic in refused
    )
    if not kept:
        return CreateTopicsResponse(topics=rows) if rows else None

    def seen(result: CreatableTopicResult) -> CreatableTopicResult:
        if result.error_code or visitor.may_topic(Operation.DESCRIBE_CONFIGS, result.name, log=False):
            return result
        return replace(result, topic_config_error_code=FAILED, num_partitions=-1, replication_factor=-1, configs=())

    def complete(answered: CreateTopicsResponse) -> CreateTopicsResponse:
        return replace(answered, topics=tuple(map(seen, answered.topics)) + rows)

    return Narrowed(replace(request, topics=kept), complete)


def delete_topics(visitor: Visitor, request: DeleteTopicsRequest) -> Verdict:
    """A topic that may be described and not deleted is unknown if it does not exist, and otherwise refused."""
    if visitor.may_cluster(Operation.DELETE, log=False):
        return None
    results = {topic: _undeletable(visitor, topic) for topic in request.topics}
    kept = tuple(topic for topic in request.topics if results[topic] is None)
    rows = tuple(row for row in results.values() if row is not None)
    if not rows:
        return None
    if not kept:
        return DeleteTopicsResponse(responses=rows)

    def complete(answered: DeleteTopicsResponse) -> DeleteTopicsResponse:
        return replace(answered, responses=answered.responses + rows)

    return Narrowed(replace(request, topics=kept), complete)


def _undeletable(visitor: Visitor, topic: DeleteTopicState) -> DeletableTopicResult | None:
    by_id = topic.name is None
    name = visitor.topic_name(topic.topic_id) if by_id else topic.name
    if name is None or (topic.name is not None and topic.topic_id != ZERO_UUID):
        return None  # the handler refuses these
    if visitor.may_topic(Operation.DESCRIBE, name):
        if name not in visitor.image.topics or visitor.may_topic(Operation.DELETE, name):
            return None
        shown: str | None = name
    else:
        shown = None if by_id else name
    return DeletableTopicResult(name=shown, topic_id=topic.topic_id, error_code=FAILED, error_message=FAILED.doc)


def with_topics(request: object, refused: object) -> Verdict:
    """The rest of a request, and its response with the refused rows; both have their rows in `topics`."""
    if not getattr(request, "topics"):  # noqa: B009 - any message with rows of topics
        return refused
    rows: tuple[object, ...] = getattr(refused, "topics")  # noqa: B009
    return Narrowed(request, lambda answered: replace(answered, topics=answered.topics + rows))
