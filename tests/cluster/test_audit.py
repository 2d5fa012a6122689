"""Audit in a cluster: whichever broker is asked, an action has one record, in one topic."""

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from moldau.testing import Cluster
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from support.clients import confluent
from support.security.clients import Client

AUDIT = "__audit"
VERSION = 7


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, **{"moldau.audit.enable": "true"}) as made:
        yield made


def create_topic(bootstrap: str) -> str:
    """Asks this broker, where librdkafka would ask the controller."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=2, assignments=(), configs=())
    with closing(Client(bootstrap)) as client:
        answered = client.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=20_000), VERSION)
    assert isinstance(answered, CreateTopicsResponse)
    assert [each.error_code for each in answered.topics] == [0]
    return name


def records(cluster: Cluster, *names: str) -> list[dict[str, Any]]:
    """The records of the creation of these topics."""
    admin = confluent.admin(cluster.bootstrap_servers)
    if AUDIT not in admin.list_topics(timeout=30).topics:
        return []
    found = [json.loads(each.value or b"") for each in confluent.read(cluster.bootstrap_servers, AUDIT)]
    return [each for each in found if each["resources"][0]["name"] in names]


def test_one_action_is_one_record_whichever_broker_is_asked(cluster: Cluster) -> None:
    """Two of the brokers forward the request to the controller, and two do not lead the topic."""
    names = [create_topic(cluster.broker(number).bootstrap_servers) for number in (1, 2, 3)]
    cluster.wait_for(lambda: len(records(cluster, *names)) >= len(names), "that all are recorded")
    last = create_topic(cluster.broker(1).bootstrap_servers)  # a second record of an action would be before it
    cluster.wait_for(lambda: records(cluster, last), "that this is recorded")
    found = records(cluster, *names)
    assert len(found) == len(names), found
    assert {each["broker"] for each in found} == {1, 2, 3}, "each is written by the broker that was asked"
    assert {each["outcome"] for each in found} == {"ok"}
    assert {each["host"] for each in found} == {"127.0.0.1"}
    topic = confluent.admin(cluster.bootstrap_servers).list_topics(AUDIT, timeout=30).topics[AUDIT]
    assert len(topic.partitions[0].replicas) == 3


def test_records_wait_for_the_next_leader(cluster: Cluster) -> None:
    first = create_topic(cluster.broker(1).bootstrap_servers)
    cluster.wait_for(lambda: records(cluster, first), "that the topic is there")
    leader = cluster.leader_of(AUDIT, 0)
    cluster.kill(leader)
    other = next(number for number in (1, 2, 3) if number != leader)
    name = create_topic(cluster.broker(other).bootstrap_servers)
    cluster.wait_for(lambda: records(cluster, name), "that it is recorded by the next leader")
    cluster.start(leader)
