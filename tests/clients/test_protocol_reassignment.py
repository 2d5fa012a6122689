"""AlterPartitionReassignments and ListPartitionReassignments on one broker: what is refused, and how Kafka says so."""

from typing import Any

import pytest
from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from kafka.protocol.metadata import MetadataRequest

from support.brokers.processes import CreateTopic
from support.clients.raw import RawClient

UNKNOWN_TOPIC, BAD_ASSIGNMENT, NOTHING = 3, 39, 85


def alter(raw: RawClient, topic: str, index: int, replicas: list[int] | None, *, version: int = 1, **more: Any) -> Any:
    partition = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition(
        partition_index=index, replicas=replicas
    )
    asked = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])
    answer = raw.ask(AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[asked], **more), version)
    assert answer.error_code == 0
    ((row,),) = [each.partitions for each in answer.responses]
    return row


@pytest.fixture
def node(raw: RawClient) -> int:
    answer = raw.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
    return int(answer.brokers[0].node_id)


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_so_already_is_no_error(raw: RawClient, create_topic: CreateTopic, node: int, version: int) -> None:
    row = alter(raw, create_topic(), 0, [node], version=version)
    assert (row.error_code, row.error_message) == (0, None)


def test_refusals(raw: RawClient, create_topic: CreateTopic, node: int) -> None:
    topic = create_topic()
    cases = (
        ("nope-nope", 0, [node], UNKNOWN_TOPIC, "Unable to find a topic named nope-nope."),
        (topic, 7, [node], UNKNOWN_TOPIC, f"Unable to find partition {topic}:7."),
        (topic, 0, [], BAD_ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
        (
            topic,
            0,
            [node, 99],
            BAD_ASSIGNMENT,
            "The manual partition assignment includes broker 99, but no such broker is registered.",
        ),
        (
            topic,
            0,
            [node, node],
            BAD_ASSIGNMENT,
            f"The manual partition assignment includes the broker {node} more than once.",
        ),
        (topic, 0, None, NOTHING, None),
    )
    for name, index, replicas, code, message in cases:
        row = alter(raw, name, index, replicas)
        assert (row.error_code, row.error_message) == (code, message)


def test_nothing_is_listed(raw: RawClient, create_topic: CreateTopic) -> None:
    topic = create_topic()
    some = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 5])
    other = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="nope", partition_indexes=[0])
    for topics in (None, [], [some], [some, other]):
        answer = raw.ask(ListPartitionReassignmentsRequest(timeout_ms=30_000, topics=topics), 0)
        assert (answer.error_code, answer.topics) == (0, [])
