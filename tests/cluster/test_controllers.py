"""The controller of a real cluster: it can be killed, and clients do not notice.

One cluster for all tests; each leaves three brokers behind that are well.
"""

import time
import uuid
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from moldau.base.errors import WireError
from moldau.client.direct.connection import Connection
from moldau.testing import Broker, Cluster
from moldau.testing.broker import BrokerFailed
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.primitives import ZERO_UUID
from support.clients import confluent

Response = TypeVar("Response")

ALL = {1, 2, 3}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, min_insync_replicas=2) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = fresh()
    client = admin(cluster)
    client.create_topics([NewTopic(name, 6, 3)])[name].result(30)
    well(cluster, name)
    return name


def fresh() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def admin(cluster: Cluster) -> AdminClient:
    return confluent.admin(cluster.bootstrap_servers, log_level=0)


def ask(cluster: Cluster, broker_id: int, message: Any, response: type[Response]) -> Response:
    """Of this broker and no other."""
    host, _, port = cluster.broker(broker_id).bootstrap_servers.rpartition(":")
    connection = Connection(host, int(port), client_id="test", timeout_s=60)
    try:
        return connection.ask(message, response)
    finally:
        connection.close()


def follower(cluster: Cluster) -> int:
    """A broker that is not the controller."""
    return next(each for each in cluster.running if each != cluster.controller)


def leaders(cluster: Cluster, topic: str, of: int | None = None) -> set[int]:
    (row,) = cluster.metadata(topic, of=of).topics
    return {each.leader_id for each in row.partitions}


def well(cluster: Cluster, topic: str) -> None:
    """Every broker says that all are there and in sync. One that has not heard of the topic yet says nothing."""

    def seen(of: int) -> bool:
        told = cluster.metadata(topic, of=of)
        in_sync = [set(row.isr_nodes) for found in told.topics for row in found.partitions]
        return {each.node_id for each in told.brokers} == ALL and in_sync != [] and all(each == ALL for each in in_sync)

    cluster.wait_for(lambda: all(seen(each) for each in sorted(ALL)), "that all are in sync")


def write(cluster: Cluster, topic: str) -> None:
    values = [str(number) for number in range(100)]
    confluent.write(cluster.bootstrap_servers, topic, values, acks="all", log_level=0)


@pytest.mark.parametrize("role", ["the controller", "another leader"])
def test_leaders_fail_over_when_a_process_is_killed(
    cluster: Cluster, topic: str, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = cluster.controller if role == "the controller" else follower(cluster)
    begun = time.monotonic()
    cluster.kill(victim)
    cluster.wait_for(lambda: leaders(cluster, topic) == ALL - {victim}, "that others lead")
    with capsys.disabled():
        print(f"\n{role}: leaders known {time.monotonic() - begun:.2f} s after kill -9")
    write(cluster, topic)
    cluster.start(victim)
    well(cluster, topic)


def test_a_broker_that_stops_in_order_hands_over_first(cluster: Cluster, topic: str) -> None:
    leaving = cluster.controller
    cluster.stop(leaving)
    assert leaders(cluster, topic) == ALL - {leaving}, "without failure detection"
    write(cluster, topic)
    cluster.start(leaving)
    well(cluster, topic)


def test_any_broker_takes_what_the_controller_decides(cluster: Cluster) -> None:
    asked, name = follower(cluster), fresh()
    wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=3, assignments=(), configs=())
    created = ask(cluster, asked, CreateTopicsRequest(topics=(wanted,), timeout_ms=30_000), CreateTopicsResponse)
    assert [row.error_code for row in created.topics] == [0]
    assert partitions(cluster, asked, name) == 2, "the broker that answered knows it"
    grown = CreatePartitionsTopic(name=name, count=5, assignments=None)
    ask(
        cluster,
        asked,
        CreatePartitionsRequest(topics=(grown,), timeout_ms=30_000, validate_only=False),
        CreatePartitionsResponse,
    )
    assert partitions(cluster, asked, name) == 5
    again = ask(cluster, asked, CreateTopicsRequest(topics=(wanted,), timeout_ms=30_000), CreateTopicsResponse)
    assert [row.error_code for row in again.topics] == [WireError.TOPIC_ALREADY_EXISTS]
    ask(
        cluster,
        asked,
        DeleteTopicsRequest(topics=(DeleteTopicState(name=name, topic_id=ZERO_UUID),), timeout_ms=30_000),
        DeleteTopicsResponse,
    )
    assert partitions(cluster, asked, name) == 0


def partitions(cluster: Cluster, of: int, topic: str) -> int:
    (row,) = cluster.metadata(topic, of=of).topics
    return len(row.partitions)


def test_a_topic_that_is_needed_is_created_by_the_controller(cluster: Cluster) -> None:
    asked, name = follower(cluster), fresh()
    topics = (MetadataRequestTopic(name=name),)
    (row,) = ask(
        cluster, asked, MetadataRequest(topics=topics, allow_auto_topic_creation=True), MetadataResponse
    ).topics
    assert (row.error_code, len(row.partitions)) == (0, 1)
    assert set(row.partitions[0].replica_nodes) == ALL


def test_elections_are_had_of_any_broker(cluster: Cluster, topic: str) -> None:
    asked = follower(cluster)
    victim = next(each for each in sorted(ALL) if each != asked)
    cluster.restart(victim)
    well(cluster, topic)
    assert victim not in leaders(cluster, topic)
    answer = ask(cluster, asked, ElectLeadersRequest(topic_partitions=None), ElectLeadersResponse)
    errors = {each.error_code for row in answer.replica_election_results for each in row.partition_result}
    assert errors == {0}
    assert leaders(cluster, topic, of=asked) == ALL  # it knows by the time it answers; others do soon


def test_settings_of_any_broker_can_be_changed_and_hold_there_alone(cluster: Cluster) -> None:
    changed = follower(cluster)
    name = "log.cleaner.backoff.ms"
    entry = ConfigEntry(name, "1234", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(changed), incremental_configs=[entry])
    client = admin(cluster)
    client.incremental_alter_configs([resource])[resource].result(30)
    for each in sorted(ALL):
        asked = ConfigResource(ResourceType.BROKER, str(each))
        value = client.describe_configs([asked])[asked].result(30)[name].value
        assert value == ("1234" if each == changed else "15000")


def test_an_id_that_is_in_use_is_refused(cluster: Cluster) -> None:
    second = Broker(zookeeper_connect=cluster.zookeeper.connect, node_id=2)
    with pytest.raises(BrokerFailed, match=r"broker id 2 is in use by 127\.0\.0\.1:\d+; set another node\.id"):
        second.start()
    assert {each.node_id for each in cluster.metadata().brokers} == ALL


def test_while_the_ensemble_is_away_records_are_taken_and_changes_wait(cluster: Cluster, topic: str) -> None:
    cluster.zookeeper.kill(0)
    write(cluster, topic)
    name, client = fresh(), admin(cluster)
    waiting = client.create_topics([NewTopic(name, 1, 3)])[name]
    write(cluster, topic)
    cluster.zookeeper.restart(0)
    waiting.result(30)
    well(cluster, name)
