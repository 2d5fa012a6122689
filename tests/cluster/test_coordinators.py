"""Groups and transactions in a cluster: their coordinators are killed, and clients recover.

One cluster for all tests. Every test makes topics, groups and transactional ids of its own, and starts again what it
killed.
"""

import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from moldau.base.errors import WireError
from moldau.broker.coordinators.partitioning import partition_of
from moldau.client.direct.connection import Connection
from moldau.testing import Cluster
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchResponse
from support.clients import confluent
from support.kafka import jvm

GROUPS, TRANSACTIONS = 0, 1  # kinds of keys
PATIENCE_S = 60.0  # says that something is broken, not that it is slow
SHARDS = 5  # of either topic, in a cluster of a test
JAVA_COPY = Path(__file__).parent / "java" / "Copy.java"

java = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Brokers here are killed, not paused, which shows at once. Sessions are for a machine that is busy elsewhere.
    settings = {"min_insync_replicas": 2, "group_initial_rebalance_delay_ms": 0, "zookeeper_session_timeout_ms": 18_000}
    with Cluster(brokers=3, **settings) as made:
        yield made


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> Iterator[None]:
    """Whatever a test kills runs again afterwards."""
    yield
    for broker in cluster.broker_ids:
        cluster.start(broker)
    cluster.wait_for(
        lambda: all(cluster.registered(each) == {1, 2, 3} for each in cluster.running),
        "that every broker knows all",
    )


def named(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def create(cluster: Cluster, partitions: int = 3) -> str:
    """A topic with partitions led by one broker each, as far as they go."""
    name = named("topic")
    layout = [[(index + each) % 3 + 1 for each in range(3)] for index in range(partitions)]
    admin = confluent.admin(cluster.bootstrap_servers)
    admin.create_topics([NewTopic(name, partitions, replica_assignment=layout)])[name].result(30)
    for index in range(partitions):
        cluster.wait_for(lambda index=index: len(cluster.in_sync(name, index)) == 3, "that the topic is replicated")
    return name


def asked(cluster: Cluster, broker: int, request: object, response: type) -> object:
    host, _, port = cluster.broker(broker).bootstrap_servers.rpartition(":")
    connection = Connection(host, int(port), client_id="test", timeout_s=30)
    try:
        return connection.ask(request, response)
    finally:
        connection.close()


def coordinator(cluster: Cluster, key: str, kind: int, of: int | None = None) -> int:
    """The broker that coordinates a group or a transactional id, once there is one."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))

    def found() -> int | None:
        answer = asked(cluster, of or cluster.running[0], request, FindCoordinatorResponse)
        assert isinstance(answer, FindCoordinatorResponse)
        (only,) = answer.coordinators
        return only.node_id if only.error_code == WireError.NONE else None

    return cluster.wait_for(found, f"that {key} has a coordinator") or -1


def consumer_of(cluster: Cluster, group: str, protocol: str = "classic") -> Consumer:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    return Consumer(settings | ({"session.timeout.ms": 10_000} if protocol == "classic" else {}))


def write(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    placed = [{"value": value, "partition": number % 3} for number, value in enumerate(values)]
    confluent.write(cluster.bootstrap_servers, topic, placed, acks="all")


def polled(consumer: Consumer, count: int) -> list[bytes]:
    return [record.value or b"" for record in confluent.read_next(consumer, count)]


def read_all(cluster: Cluster, topic: str, count: int, partitions: int = 3) -> list[bytes]:
    consumer = consumer_of(cluster, named("reader"))
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values = polled(consumer, count)
    extra = consumer.poll(1.0)
    consumer.close()
    return values + ([] if extra is None or extra.error() else [extra.value() or b""])


def test_every_broker_names_the_same_coordinator_and_no_other_answers(cluster: Cluster) -> None:
    group = named("group")
    found: set[int] = set()

    def agree() -> bool:
        nonlocal found
        found = {coordinator(cluster, group, GROUPS, of=broker) for broker in cluster.broker_ids}
        return found == {cluster.leader_of("__consumer_offsets", partition_of(group, SHARDS))}

    cluster.wait_for(agree, "that all brokers name the leader of the group's partition")
    cluster.wait_for(lambda: len(cluster.in_sync("__consumer_offsets")) == 3, "that its replicas are in sync")
    request = OffsetFetchRequest(groups=(OffsetFetchGroup(group_id=group, topics=None),))

    def answers() -> dict[int, WireError]:
        responses = {each: asked(cluster, each, request, OffsetFetchResponse) for each in cluster.broker_ids}
        return {each: WireError(found.groups[0].error_code) for each, found in responses.items()}  # type: ignore[attr-defined]

    def settled() -> bool:
        return WireError.COORDINATOR_LOAD_IN_PROGRESS not in answers().values()

    cluster.wait_for(settled, "that the group is loaded")
    expected = {each: WireError.NONE if each in found else WireError.NOT_COORDINATOR for each in cluster.broker_ids}
    assert answers() == expected


def test_producer_ids_are_given_once_in_the_whole_cluster(cluster: Cluster) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    ids: list[int] = []
    for _ in range(5):
        for broker in cluster.broker_ids:
            answer = asked(cluster, broker, request, InitProducerIdResponse)
            assert isinstance(answer, InitProducerIdResponse)
            assert answer.error_code == WireError.NONE
            ids.append(answer.producer_id)
    assert len(set(ids)) == 15


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_outlives_its_coordinator(cluster: Cluster, protocol: str) -> None:
    topic, group = create(cluster), named("group")
    consumer = consumer_of(cluster, group, protocol)
    consumer.subscribe([topic])
    first = [b"a%d" % number for number in range(30)]
    write(cluster, topic, first)
    assert sorted(polled(consumer, 30)) == sorted(first)
    consumer.commit(asynchronous=False)
    cluster.kill(coordinator(cluster, group, GROUPS))
    second = [b"b%d" % number for number in range(30)]
    write(cluster, topic, second)
    assert sorted(polled(consumer, 30)) == sorted(second), "it goes on where it was, and reads nothing twice"
    consumer.commit(asynchronous=False)
    places = [TopicPartition(topic, index) for index in range(3)]
    assert [place.offset for place in consumer.committed(places, timeout=30)] == [20, 20, 20]
    consumer.close()


def test_no_commit_that_was_answered_is_lost(cluster: Cluster) -> None:
    topic, group = create(cluster), named("group")
    place = TopicPartition(topic, 0)
    consumer = consumer_of(cluster, group)
    for number in range(60):
        if number in (20, 40):
            cluster.kill(coordinator(cluster, group, GROUPS))
            time.sleep(0.2)
            for broker in cluster.broker_ids if number == 20 else ():
                cluster.start(broker)  # all three, before the next one goes
            if number == 20:
                cluster.wait_for(lambda: len(cluster.in_sync("__consumer_offsets")) == 3, "that replicas catch up")
        consumer.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
        (found,) = consumer.committed([place], timeout=30)
        assert found.offset == number
    consumer.close()


def test_markers_reach_partitions_of_all_brokers(cluster: Cluster) -> None:
    topic = create(cluster)
    assert {cluster.leader_of(topic, index) for index in range(3)} == {1, 2, 3}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": named("txn")})
    producer.init_transactions(60)
    expected = []
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            value = b"%d-%d" % (number, index)
            producer.produce(topic, value, partition=index)
            expected += [value] * (number % 2)
        if number % 2:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    assert sorted(read_all(cluster, topic, len(expected))) == sorted(expected)


def test_a_transactional_copy_outlives_its_coordinators(cluster: Cluster) -> None:
    """What is read and what is written count together, whichever coordinator dies in between: each record once."""
    source, sink, group, name = create(cluster), create(cluster), named("group"), named("txn")
    values = [b"%d" % number for number in range(120)]
    write(cluster, source, values)
    consumer = consumer_of(cluster, group)
    consumer.subscribe([source])
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 30_000}
    )
    producer.init_transactions(60)
    copied = 0
    while copied < len(values):
        if copied == 40:
            cluster.kill(coordinator(cluster, name, TRANSACTIONS))
        producer.begin_transaction()
        batch = polled(consumer, 10)
        for value in batch:
            producer.produce(sink, value, partition=copied % 3)
            copied += 1
        places = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        if copied == 80:
            for broker in cluster.broker_ids:
                cluster.start(broker)
            cluster.wait_for(lambda: len(cluster.in_sync("__consumer_offsets")) == 3, "that replicas catch up")
            cluster.kill(coordinator(cluster, group, GROUPS))
    consumer.close()
    assert sorted(read_all(cluster, sink, len(values))) == sorted(values)


def test_a_transaction_of_a_dead_producer_ends_though_its_coordinator_dies(cluster: Cluster) -> None:
    topic, name = create(cluster), named("txn")
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "transactional.id": name,
        "transaction.timeout.ms": 5_000,
    }
    left = Producer(settings)
    left.init_transactions(60)
    left.begin_transaction()
    for index in range(3):
        left.produce(topic, b"never", partition=index)
    left.flush(60)
    cluster.kill(coordinator(cluster, name, TRANSACTIONS))
    after = [b"after-%d" % index for index in range(3)]
    write(cluster, topic, after)
    assert sorted(read_all(cluster, topic, 3)) == sorted(after)


@java
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_copy_outlives_its_coordinators(cluster: Cluster, protocol: str) -> None:
    """Java speaks transaction version 2: leaders add its partitions at coordinators on other brokers (KIP-890)."""
    source, sink, name = create(cluster), create(cluster), named("copy")
    values = [b"%d" % number for number in range(300)]
    write(cluster, source, values)
    doomed = {60: TRANSACTIONS, 180: GROUPS}  # which coordinator dies after so many records
    where = [cluster.bootstrap_servers, source, sink, name, str(len(values)), "5", protocol]
    command = [str(jvm.java()), *jvm.QUICK_START, "-cp", str(jvm.classpath()), str(JAVA_COPY)]
    with subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as copy:
        assert copy.stdout is not None
        said = []
        for line in copy.stdout:
            said.append(line.strip())
            word, _, rest = said[-1].partition(" ")
            copied = int(rest) if word == "committed" else 0
            for number in [each for each in doomed if each <= copied]:
                for broker in cluster.broker_ids:
                    cluster.start(broker)
                cluster.wait_for(lambda: len(cluster.in_sync("__transaction_state")) == 3, "that replicas catch up")
                cluster.kill(coordinator(cluster, name, doomed.pop(number)))
    assert said[-1] == "done", said[-5:]
    assert not doomed
    assert sorted(read_all(cluster, sink, len(values))) == sorted(values)
