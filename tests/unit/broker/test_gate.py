"""Responses at the gate that the matrix cannot show: they depend on what there is to see."""

from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

import pytest

from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.base.session import Principal, Session
from moldau.broker.call import Call
from moldau.broker.security.acl_documents import created
from moldau.broker.security.authorizer import Authorizer
from moldau.broker.security.denials import Denials
from moldau.broker.security.gate import Gate
from moldau.broker.security.guards.table import GUARDS
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.net.reply import BadRequest
from moldau.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from moldau.wire.codec import encode
from moldau.wire.declare import layout_of
from moldau.wire.messages import consumer_group_describe as described
from moldau.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from moldau.wire.messages.registry import BY_KEY

FAILED = WireError.TOPIC_AUTHORIZATION_FAILED
SECRET_ID = UUID(int=5)
R = TypeVar("R")

Right = tuple[Operation, ResourceType, str]


def ask(request: object, served: object, response: type[R], *rights: Right, version: int | None = None) -> R:
    """The response to a client with these rights, of a handler that answers `served`."""
    topics = {
        name: Topic(name, topic_id, (PartitionState(0, (1,), (1,), 1),))
        for name, topic_id in (("open", UUID(int=4)), ("secret", SECRET_ID))
    }
    bindings = [
        AclBinding(ResourcePattern(kind, name), AclEntry("User:alice", "*", operation, Permission.ALLOW))
        for operation, kind, name in rights
    ]
    change = created({}, bindings)
    documents = {} if change is None else {path: text or "" for path, text in change.documents.items()}
    image = ClusterImage(
        topics=topics, topics_by_id={topic.id: topic for topic in topics.values()}, documents=documents
    )
    config: Any = SimpleNamespace(auto_create_topics_enable=True)
    gate = Gate(Authorizer([], lambda: image, Denials()), GUARDS, lambda: image, lambda: config)
    messages = BY_KEY[layout_of(type(request)).key]
    session = Session("PLAINTEXT", "10.0.0.1:1", principal=Principal("User", "alice"))
    call = Call(session, messages.highest if version is None else version, 1)
    answer = gate.serve(messages, lambda narrowed, _: served(narrowed) if callable(served) else served, request, call)
    if isinstance(answer, Later):
        answer = answer.result
    assert isinstance(answer, response)
    return answer


def deleting(*topics: DeleteTopicState) -> list[tuple[str | None, int]]:
    """What a client is told that may describe `open` and delete nothing."""

    def serve(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        rows = (
            DeletableTopicResult(name=each.name, error_code=WireError.UNKNOWN_TOPIC_OR_PARTITION)
            for each in request.topics
        )
        return DeleteTopicsResponse(responses=tuple(rows))

    request = DeleteTopicsRequest(topics=topics, timeout_ms=1)
    right = (Operation.DESCRIBE, ResourceType.TOPIC, "open")
    absent = (Operation.DESCRIBE, ResourceType.TOPIC, "absent")
    return [(row.name, row.error_code) for row in ask(request, serve, DeleteTopicsResponse, right, absent).responses]


def test_a_topic_that_may_be_described_is_not_deleted() -> None:
    assert deleting(DeleteTopicState(name="open")) == [("open", FAILED)]
    assert deleting(DeleteTopicState(name="secret")) == [("secret", FAILED)]


def test_only_those_who_may_describe_a_topic_learn_that_it_does_not_exist() -> None:
    assert deleting(DeleteTopicState(name="absent")) == [("absent", WireError.UNKNOWN_TOPIC_OR_PARTITION)]
    assert deleting(DeleteTopicState(name="nothing")) == [("nothing", FAILED)]


def test_an_id_does_not_tell_the_name_of_its_topic() -> None:
    assert deleting(DeleteTopicState(topic_id=SECRET_ID)) == [(None, FAILED)]
    assert deleting(DeleteTopicState(topic_id=UUID(int=4))) == [("open", FAILED)]


def test_a_group_with_a_hidden_topic_is_not_described() -> None:
    def group(topic: str) -> described.ConsumerGroupDescribeResponse:
        assigned = described.ConsumerGroupDescribedAssignment(
            topic_partitions=(
                described.ConsumerGroupDescribedTopic(topic_id=UUID(int=1), topic_name=topic, partitions=(0,)),
            )
        )
        member = described.ConsumerGroupDescribedMember(member_id="m", assignment=assigned)
        one = described.ConsumerGroupDescribedGroup(group_id="g", members=(member,))
        return described.ConsumerGroupDescribeResponse(groups=(one,))

    rights = ((Operation.DESCRIBE, ResourceType.GROUP, "g"), (Operation.READ, ResourceType.TOPIC, "open"))
    request = described.ConsumerGroupDescribeRequest(group_ids=("g",))
    (seen,) = ask(request, group("open"), described.ConsumerGroupDescribeResponse, *rights).groups
    assert (seen.error_code, len(seen.members)) == (0, 1)
    (hidden,) = ask(request, group("secret"), described.ConsumerGroupDescribeResponse, *rights).groups
    assert (hidden.error_code, hidden.members) == (FAILED, ())


def test_a_transaction_shows_the_topics_that_may_be_described() -> None:
    topics = tuple(DescribedTransactionTopic(topic=name, partitions=(0,)) for name in ("open", "secret"))
    served = DescribeTransactionsResponse(
        transaction_states=(DescribedTransaction(transactional_id="x", topics=topics),)
    )
    later: Later[DescribeTransactionsResponse] = Later()
    later.resolve(served)
    rights = ((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "x"), (Operation.READ, ResourceType.TOPIC, "open"))
    request = DescribeTransactionsRequest(transactional_ids=("x", "y"))
    first, second = ask(request, later, DescribeTransactionsResponse, *rights).transaction_states
    assert [each.topic for each in first.topics] == ["open"]
    assert (second.transactional_id, second.error_code) == (
        "y",
        WireError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def test_a_new_topic_hides_its_configs_without_the_right_to_see_them() -> None:
    topic = CreatableTopic(name="new", num_partitions=3, replication_factor=1, assignments=(), configs=())
    result = CreatableTopicResult(
        name="new", error_code=0, error_message=None, num_partitions=3, replication_factor=1, configs=()
    )
    served = CreateTopicsResponse(topics=(result,))
    create = (Operation.CREATE, ResourceType.TOPIC, "new")
    (row,) = ask(CreateTopicsRequest(topics=(topic,)), served, CreateTopicsResponse, create).topics
    assert (row.error_code, row.topic_config_error_code, row.num_partitions) == (0, FAILED, -1)
    see = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "new")
    (row,) = ask(CreateTopicsRequest(topics=(topic,)), served, CreateTopicsResponse, create, see).topics
    assert (row.error_code, row.topic_config_error_code, row.num_partitions) == (0, 0, 3)


@pytest.mark.parametrize(
    ("right", "error"),
    [
        ((Operation.CREATE, ResourceType.TOPIC, "new"), 0),
        ((Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME), 0),
        ((Operation.ALTER, ResourceType.TOPIC, "new"), FAILED),
    ],
)
def test_a_topic_is_created_by_itself_for_those_who_may_create_it(right: Right, error: int) -> None:
    """The response of the handler is bytes, from its cache."""

    def serve(request: MetadataRequest) -> bytes:
        rows = (MetadataResponseTopic(error_code=0, name=each.name, partitions=()) for each in request.topics or ())
        return encode(MetadataResponse(brokers=(), topics=tuple(rows)), 12)

    names = (MetadataRequestTopic(name="new"), MetadataRequestTopic(name="secret"))
    describe = (Operation.DESCRIBE, ResourceType.TOPIC, "new")
    answered = ask(MetadataRequest(topics=names), serve, MetadataResponse, right, describe, version=12)
    assert {row.name: row.error_code for row in answered.topics} == {"new": error, "secret": FAILED}


def test_an_api_without_a_guard_is_refused_to_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(GUARDS, 56)  # type: ignore[arg-type]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=())
    with pytest.raises(BadRequest, match="AlterPartition has no guard"):
        ask(request, AlterPartitionResponse(error_code=0), AlterPartitionResponse)


def test_requests_between_brokers_need_cluster_action() -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=())
    served = AlterPartitionResponse(error_code=0)
    assert ask(request, served, AlterPartitionResponse).error_code == WireError.CLUSTER_AUTHORIZATION_FAILED
    right = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    assert ask(request, served, AlterPartitionResponse, right).error_code == 0
