"""Committed offsets and the administration of groups with confluent-kafka (librdkafka), all in this process."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients.raw import RawClient
from support.eventually import eventually

SECONDS = 30
PROTOCOLS = {
    "classic": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
    "consumer": {"group.protocol": "consumer"},
}
LOADING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)
both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
NewConsumer = Callable[..., Consumer]


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


@pytest.fixture
def new_consumer(broker: AnyBroker, group: str) -> Iterator[NewConsumer]:
    """`new_consumer("classic", **{"auto.offset.reset": "latest"})`; closed at the end of the test."""
    made: list[Consumer] = []

    def make(protocol: str = "classic", bootstrap: str = broker.bootstrap, **more: Any) -> Consumer:
        always = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        quiet = {"enable.auto.commit": False, "fetch.wait.max.ms": 100}
        made.append(Consumer({**always, **quiet, **PROTOCOLS[protocol], **more}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(SECONDS) == 0


def read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records"
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.value()) for message in messages]


def committed(consumer: Consumer, topic: str, *partitions: int) -> list[int]:
    asked = [TopicPartition(topic, partition) for partition in partitions]
    return [each.offset for each in consumer.committed(asked, timeout=SECONDS)]


def refusal(call: Callable[[], object]) -> int:
    """The code of the error that a call ends with."""
    with pytest.raises(KafkaException) as refused:
        call()
    return refused.value.args[0].code()


# -- commits


@both_protocols
def test_each_way_to_commit(new_consumer: NewConsumer, broker: AnyBroker, create_topic: CreateTopic, protocol) -> None:
    name = create_topic(partitions=2)
    fill(broker.bootstrap, name, 10, partitions=2)
    called: list[tuple[KafkaError | None, list[TopicPartition]]] = []
    consumer = new_consumer(protocol, on_commit=lambda error, parts: called.append((error, parts)))
    consumer.subscribe([name])
    messages = read(consumer, 20)
    assert committed(consumer, name, 0, 1) == [OFFSET_INVALID, OFFSET_INVALID]
    third = next(message for message in messages if (message.partition(), message.offset()) == (1, 2))
    consumer.commit(third, asynchronous=False)
    assert committed(consumer, name, 0, 1) == [OFFSET_INVALID, 3]
    consumer.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
    assert committed(consumer, name, 0, 1) == [7, 3]
    consumer.commit(asynchronous=False)  # all that was read
    assert committed(consumer, name, 0, 1) == [10, 10]
    consumer.commit(offsets=[TopicPartition(name, 0, 2), TopicPartition(name, 1, 4)], asynchronous=True)

    def answered() -> bool:
        consumer.poll(0)
        return bool(called) and [part.offset for part in called[-1][1]] == [2, 4]

    eventually(answered, "the asynchronous commit is answered")
    assert all(error is None for error, _ in called)
    assert committed(consumer, name, 0, 1) == [2, 4]
    consumer.close()
    assert numbers(read(subscribed(new_consumer(protocol), name), 14))[:2] in ([2, 3], [4, 5]), "goes on from there"


def subscribed(consumer: Consumer, name: str) -> Consumer:
    consumer.subscribe([name])
    return consumer


def test_notes_and_leader_epochs_are_kept(new_consumer: NewConsumer, create_topic: CreateTopic) -> None:
    name, consumer = create_topic(), new_consumer()
    consumer.commit(offsets=[TopicPartition(name, 0, 5, "a note: žluťoučký", 0)], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(name, 0)], timeout=SECONDS)
    assert (found.offset, found.metadata, found.leader_epoch) == (5, "a note: žluťoučký", 0)
    consumer.commit(offsets=[TopicPartition(name, 0, 6)], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(name, 0)], timeout=SECONDS)
    assert (found.offset, found.metadata or "") == (6, "")
    long = TopicPartition(name, 0, 7, "x" * 5000)
    assert refusal(lambda: consumer.commit(offsets=[long], asynchronous=False)) == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert committed(consumer, name, 0) == [6]


def test_what_is_wrong_in_one_partition_does_not_stop_another(
    new_consumer: NewConsumer, create_topic: CreateTopic
) -> None:
    name, consumer = create_topic(), new_consumer()
    good, bad = TopicPartition(name, 0, 1), TopicPartition(name, 99, 1)
    commit = consumer.commit
    assert refusal(lambda: commit(offsets=[good, bad], asynchronous=False)) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert committed(consumer, name, 0) == [1]


@both_protocols
def test_automatic_commits(new_consumer: NewConsumer, broker: AnyBroker, create_topic: CreateTopic, protocol) -> None:
    name = create_topic()
    fill(broker.bootstrap, name, 10)
    automatic = {"enable.auto.commit": True, "auto.commit.interval.ms": 100}
    consumer = subscribed(new_consumer(protocol, **automatic), name)
    assert numbers(read(consumer, 10)) == list(range(10))
    asking = new_consumer()
    eventually(lambda: consumer.poll(0) or committed(asking, name, 0) == [10], "it commits by itself")
    fill(broker.bootstrap, name, 5)
    read(consumer, 5)
    consumer.close()
    assert committed(asking, name, 0) == [15], "closing commits the rest"


def test_standalone_commits(new_consumer: NewConsumer, broker: AnyBroker, create_topic: CreateTopic) -> None:
    """A consumer that assigns its partitions itself keeps its place in a group that has no members."""
    name = create_topic(partitions=2)
    fill(broker.bootstrap, name, 10, partitions=2)
    alone = new_consumer()
    alone.assign([TopicPartition(name, 1)])
    assert numbers(read(alone, 4)) == [0, 1, 2, 3]
    alone.commit(asynchronous=False)
    alone.close()
    again = new_consumer()
    again.assign([TopicPartition(name, 1)])
    assert numbers(read(again, 6)) == [4, 5, 6, 7, 8, 9]
    member = subscribed(new_consumer(), name)
    read(member, 16)
    assert refusal(lambda: again.commit(asynchronous=False)) == KafkaError.UNKNOWN_MEMBER_ID
    assert committed(member, name, 0, 1) == [OFFSET_INVALID, 4]


# -- reading in a group


@both_protocols
def test_seek(new_consumer: NewConsumer, broker: AnyBroker, create_topic: CreateTopic, protocol) -> None:
    name = create_topic()
    fill(broker.bootstrap, name, 10)
    consumer = subscribed(new_consumer(protocol), name)
    assert numbers(read(consumer, 10)) == list(range(10))
    consumer.seek(TopicPartition(name, 0, 4))
    assert numbers(read(consumer, 6)) == [4, 5, 6, 7, 8, 9]
    consumer.commit(asynchronous=False)
    consumer.seek(TopicPartition(name, 0, 0))
    consumer.close()
    assert committed(new_consumer(), name, 0) == [10], "where a consumer reads is not what it committed"


@both_protocols
def test_pause_and_resume(new_consumer: NewConsumer, broker: AnyBroker, create_topic: CreateTopic, protocol) -> None:
    """A paused partition stays its member's, however long nothing is read of it."""
    name = create_topic(partitions=2)
    consumer = subscribed(new_consumer(protocol), name)
    eventually(lambda: consumer.poll(0.1) or len(consumer.assignment()) == 2, "both partitions are assigned")
    consumer.pause([TopicPartition(name, 0)])
    fill(broker.bootstrap, name, 10, partitions=2)
    assert {message.partition() for message in read(consumer, 10)} == {1}
    assert consumer.poll(1) is None
    consumer.resume([TopicPartition(name, 0)])
    assert {message.partition() for message in read(consumer, 10)} == {0}


@both_protocols
def test_patterns(
    new_consumer: NewConsumer, broker: AnyBroker, create_topic: CreateTopic, topic: str, protocol
) -> None:
    names = [create_topic(), create_topic()]
    for name in names:
        fill(broker.bootstrap, name, 5)
    consumer = subscribed(new_consumer(protocol, **{"topic.metadata.refresh.interval.ms": 500}), f"^{topic}-.*")
    assert {message.topic() for message in read(consumer, 10)} == set(names)
    consumer.commit(asynchronous=False)
    if protocol == "classic":  # under the consumer protocol the broker looks for new topics every ten minutes
        late = create_topic()
        fill(broker.bootstrap, late, 5)
        assert {message.topic() for message in read(consumer, 5)} == {late}
    consumer.close()


# -- administration


@both_protocols
def test_groups_are_listed_and_described(
    new_consumer: NewConsumer, admin: AdminClient, broker: AnyBroker, create_topic: CreateTopic, group: str, protocol
) -> None:
    name = create_topic(partitions=2)
    fill(broker.bootstrap, name, 1, partitions=2)
    consumer = subscribed(new_consumer(protocol, **{"client.id": "the-client"}), name)
    read(consumer, 2)
    found = admin.describe_consumer_groups([group])[group].result(SECONDS)
    assert (found.state, found.type.name.lower()) == (ConsumerGroupState.STABLE, protocol)
    assert found.partition_assignor == ("range" if protocol == "classic" else "uniform")
    assert f"{found.coordinator.host}:{found.coordinator.port}" == broker.bootstrap
    (member,) = found.members
    assert (member.client_id, member.group_instance_id) == ("the-client", None)
    assert member.host.strip("/") == "127.0.0.1"
    assert {part.partition for part in member.assignment.topic_partitions} == {0, 1}

    def listed(**wanted: Any) -> dict[str, Any]:
        return {each.group_id: each for each in admin.list_consumer_groups(**wanted).result(SECONDS).valid}

    row = listed()[group]
    assert (row.state, row.type, row.is_simple_consumer_group) == (found.state, found.type, False)
    assert group in listed(states={ConsumerGroupState.STABLE})
    assert group not in listed(states={ConsumerGroupState.EMPTY})
    assert (group in listed(types={ConsumerGroupType.CLASSIC})) == (protocol == "classic")
    assert (group in listed(types={ConsumerGroupType.CONSUMER})) == (protocol == "consumer")
    consumer.commit(asynchronous=False)
    consumer.close()
    assert listed(states={ConsumerGroupState.EMPTY})[group].state == ConsumerGroupState.EMPTY


@both_protocols
def test_groups_are_deleted(
    new_consumer: NewConsumer, admin: AdminClient, broker: AnyBroker, create_topic: CreateTopic, group: str, protocol
) -> None:
    name = create_topic()
    fill(broker.bootstrap, name, 1)
    consumer = subscribed(new_consumer(protocol), name)
    read(consumer, 1)

    def delete() -> None:
        admin.delete_consumer_groups([group])[group].result(SECONDS)

    assert refusal(delete) == KafkaError.NON_EMPTY_GROUP
    consumer.commit(asynchronous=False)
    consumer.close()
    delete()
    assert refusal(delete) == KafkaError.GROUP_ID_NOT_FOUND
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(SECONDS).valid}
    assert committed(new_consumer(), name, 0) == [OFFSET_INVALID]


@both_protocols
def test_offsets_are_listed_and_altered(
    new_consumer: NewConsumer, admin: AdminClient, broker: AnyBroker, create_topic: CreateTopic, group: str, protocol
) -> None:
    name = create_topic(partitions=2)
    fill(broker.bootstrap, name, 10, partitions=2)

    def alter(offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, offset)])
        (answer,) = admin.alter_consumer_group_offsets([wanted])[group].result(SECONDS).topic_partitions
        if answer.error:
            raise KafkaException(answer.error)

    def offsets() -> dict[int, int]:
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(SECONDS)
        return {each.partition: each.offset for each in found.topic_partitions}

    consumer = subscribed(new_consumer(protocol), name)
    read(consumer, 20)
    consumer.commit(asynchronous=False)
    assert offsets() == {0: 10, 1: 10}
    assert refusal(lambda: alter(3)) == KafkaError.UNKNOWN_MEMBER_ID
    consumer.close()
    alter(3)
    assert offsets() == {0: 3, 1: 10}
    assert numbers(read(subscribed(new_consumer(protocol), name), 7)) == list(range(3, 10))


# -- restarts


@pytest.mark.parametrize("way", ["SIGTERM", "kill -9"])
def test_offsets_survive_a_restart(start_broker: StartBroker, new_consumer: NewConsumer, group: str, way: str) -> None:
    own = start_broker()
    with RawClient(own.bootstrap) as client:
        client.create_topic("kept", 2)
    consumer = new_consumer(bootstrap=own.bootstrap)
    consumer.commit(offsets=[TopicPartition("kept", 0, 5, "a note"), TopicPartition("kept", 1, 6)], asynchronous=False)
    consumer.commit(offsets=[TopicPartition("kept", 0, 4, "another")], asynchronous=False)
    for _ in range(2):
        own.stop() if way == "SIGTERM" else own.kill()
        own.start()
        found = eventually(lambda: kept(consumer), "the offsets are loaded")
        assert [(each.offset, each.metadata or "") for each in found] == [(4, "another"), (6, "")]


def kept(consumer: Consumer) -> list[TopicPartition] | None:
    """What is committed; None while the coordinator is still reading it."""
    try:
        return consumer.committed([TopicPartition("kept", 0), TopicPartition("kept", 1)], timeout=SECONDS)
    except KafkaException as refused:
        if refused.args[0].code() in LOADING:
            return None
        raise
