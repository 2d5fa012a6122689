"""Transactions with confluent-kafka (librdkafka): what readers see, fencing, time-outs, offsets, restarts."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from support.brokers.processes import AnyBroker, BrokerProcess, CreateTopic, StartBroker
from support.clients.confluent import end_offset, read_values, values_by_partition
from support.clients.raw import RawClient
from support.eventually import eventually

SECONDS = 30
READ_COMMITTED, READ_UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
NewProducer = Callable[..., Producer]


def producer_on(bootstrap: str, name: str, **more: Any) -> Producer:
    """A transactional producer that is ready to begin."""
    settings = {"linger.ms": 0, "reconnect.backoff.max.ms": 200, "transaction.timeout.ms": 60_000}
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **settings, **more})
    made.init_transactions(SECONDS)
    return made


@pytest.fixture
def new_producer(broker: AnyBroker, topic: str) -> NewProducer:
    """`new_producer("a")`: a producer whose transactional id nobody else has."""
    return lambda name="a", **more: producer_on(broker.bootstrap, f"{topic}-{name}", **more)


def send(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    """And wait until all are stored."""
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(SECONDS) == 0


def becomes_visible(bootstrap: str, topic: str, *values: str) -> None:
    """A commit is answered before its markers are in all partitions; so readers may see it a moment later."""

    def seen() -> list[str]:
        return read_values(bootstrap, topic)

    eventually(
        lambda: seen() == list(values),
        f"{values} are visible",
        lambda: [seen(), read_values(bootstrap, topic, "read_uncommitted")],
    )


def failure(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as refused:
        call()
    return refused.value.args[0]


# -- what readers see


def test_a_transaction_is_visible_once_it_is_committed(
    broker: AnyBroker, new_producer: NewProducer, admin: AdminClient, create_topic: CreateTopic
) -> None:
    name, producer = create_topic(), new_producer()
    producer.begin_transaction()
    send(producer, name, "a", "b")
    assert read_values(broker.bootstrap, name) == []
    assert read_values(broker.bootstrap, name, "read_uncommitted") == ["a", "b"]
    assert end_offset(admin, name, READ_COMMITTED) == 0
    assert end_offset(admin, name, READ_UNCOMMITTED) == 2
    producer.commit_transaction(SECONDS)
    becomes_visible(broker.bootstrap, name, "a", "b")
    assert end_offset(admin, name, READ_COMMITTED) == end_offset(admin, name, READ_UNCOMMITTED) == 3, "and a marker"


def test_an_aborted_transaction_is_never_visible(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    name, producer = create_topic(), new_producer()
    for values in (("a",), ("b", "c"), ("d",)):
        producer.begin_transaction()
        send(producer, name, *values)
        producer.abort_transaction(SECONDS) if "b" in values else producer.commit_transaction(SECONDS)
    becomes_visible(broker.bootstrap, name, "a", "d")
    assert read_values(broker.bootstrap, name, "read_uncommitted") == ["a", "b", "c", "d"]


def test_readers_wait_for_the_oldest_open_transaction(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    """What was committed behind it, and what was written outside of transactions, waits with it."""
    name, first, second = create_topic(), new_producer("a"), new_producer("b")
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    first.begin_transaction()
    second.begin_transaction()
    send(first, name, "a1")
    send(second, name, "b1")
    send(plain, name, "plain")
    send(first, name, "a2")
    second.commit_transaction(SECONDS)
    assert read_values(broker.bootstrap, name) == []
    first.abort_transaction(SECONDS)
    becomes_visible(broker.bootstrap, name, "b1", "plain")


def test_a_transaction_is_whole_over_partitions_and_topics(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    names = [create_topic(partitions=10), create_topic(partitions=10)]
    producer = new_producer()
    for number, end in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        for name in names:
            for partition in range(10):
                producer.produce(name, str(number), partition=partition)
        end(SECONDS)
    for name in names:
        eventually(
            lambda name=name: values_by_partition(broker.bootstrap, name, 10) == [["0", "2"]] * 10, "the committed ones"
        )


def test_an_empty_transaction_is_fine(broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic) -> None:
    name, producer = create_topic(), new_producer()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        end(SECONDS)
    producer.begin_transaction()
    send(producer, name, "a")
    producer.commit_transaction(SECONDS)
    becomes_visible(broker.bootstrap, name, "a")


# -- fencing and time-outs


def test_a_zombie_is_fenced(broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic) -> None:
    """A second producer under the same id ends what the first one left open; the first can do nothing any more."""
    name, zombie = create_topic(), new_producer()
    zombie.begin_transaction()
    send(zombie, name, "of the zombie")
    successor = new_producer()
    successor.begin_transaction()
    send(successor, name, "of the successor")
    zombie.produce(name, "too late")
    error = failure(lambda: zombie.commit_transaction(SECONDS))
    assert error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    assert error.fatal()
    successor.commit_transaction(SECONDS)
    becomes_visible(broker.bootstrap, name, "of the successor")


def test_a_transaction_that_takes_too_long_is_aborted(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic, short_waits: dict[str, int]
) -> None:
    name, slow = create_topic(), new_producer(**{"transaction.timeout.ms": 1000})
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    slow.begin_transaction()
    send(slow, name, "slow")
    send(plain, name, "plain")
    becomes_visible(broker.bootstrap, name, "plain")
    failure(lambda: slow.commit_transaction(SECONDS))
    again = new_producer()
    again.begin_transaction()
    send(again, name, "again")
    again.commit_transaction(SECONDS)
    becomes_visible(broker.bootstrap, name, "plain", "again")


def test_a_time_out_above_the_brokers_limit_is_refused(new_producer: NewProducer) -> None:
    error = failure(lambda: new_producer(**{"transaction.timeout.ms": 900_001}))
    assert error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


# -- offsets


@pytest.fixture
def reader(broker: AnyBroker, topic: str) -> Any:
    settings = {"group.id": f"group-{topic}", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    quick = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
    made: list[Consumer] = []

    def make(**more: Any) -> Consumer:
        protocol = {} if "group.protocol" in more else quick
        made.append(Consumer({"bootstrap.servers": broker.bootstrap, **settings, **protocol, **more}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def assigned(consumer: Consumer, name: str) -> None:
    consumer.subscribe([name])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it has partitions")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_part_of_the_transaction(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic, reader: Any, protocol: str
) -> None:
    name, producer = create_topic(), new_producer()
    consumer = reader(**({"group.protocol": "consumer"} if protocol == "consumer" else {}))
    assigned(consumer, name)
    asking = reader()

    def committed() -> int:
        return asking.committed([TopicPartition(name, 0)], timeout=SECONDS)[0].offset

    def transaction(offset: int, end: Callable[[float], None]) -> None:
        producer.begin_transaction()
        at = [TopicPartition(name, 0, offset, f"note {offset}")]
        producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), SECONDS)
        end(SECONDS)

    transaction(5, producer.abort_transaction)
    assert committed() < 0
    transaction(6, producer.commit_transaction)
    eventually(lambda: committed() == 6, "the committed offset is there")
    transaction(7, producer.abort_transaction)
    assert committed() == 6
    (found,) = asking.committed([TopicPartition(name, 0)], timeout=SECONDS)
    assert found.metadata == "note 6"


def test_offsets_of_an_open_transaction_are_waited_for(
    new_producer: NewProducer, create_topic: CreateTopic, reader: Any
) -> None:
    """A reader of committed records asks for stable offsets (KIP-447): it does not start behind an open commit."""
    name, producer = create_topic(), new_producer()
    consumer, asking = reader(), reader(**{"isolation.level": "read_committed"})
    part = TopicPartition(name, 0)
    consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(name, 0, 9)], consumer.consumer_group_metadata(), SECONDS)
    error = failure(lambda: asking.committed([part], timeout=1))
    assert error.code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
    producer.commit_transaction(SECONDS)
    eventually(lambda: stable(asking, part) == 9, "the offset is stable")


def stable(asking: Consumer, part: TopicPartition) -> int | None:
    try:
        return asking.committed([part], timeout=2)[0].offset
    except KafkaException as refused:
        if refused.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT):
            return None
        raise


def test_offsets_of_a_former_generation_are_refused(
    new_producer: NewProducer, create_topic: CreateTopic, reader: Any
) -> None:
    name, producer = create_topic(), new_producer()
    one, other = reader(), reader()
    assigned(one, name)
    former = one.consumer_group_metadata()
    other.subscribe([name])
    one.close()
    eventually(lambda: other.poll(0.1) or other.assignment(), "the other one has the partition")
    producer.begin_transaction()
    error = failure(lambda: producer.send_offsets_to_transaction([TopicPartition(name, 0, 9)], former, SECONDS))
    assert error.code() in (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)
    assert error.txn_requires_abort()
    producer.abort_transaction(SECONDS)
    assert other.committed([TopicPartition(name, 0)], timeout=SECONDS)[0].offset < 0


# -- restarts


WAYS = {"SIGTERM": BrokerProcess.stop, "kill -9": BrokerProcess.kill}


@pytest.mark.parametrize("way", WAYS)
def test_transactions_go_on_over_a_restart(start_broker: StartBroker, way: str) -> None:
    """One is committed and one aborted by its producer after the restart."""
    own = start_broker()
    with RawClient(own.bootstrap) as client:
        client.create_topic("kept")
    producers = {name: producer_on(own.bootstrap, name) for name in ("committed", "aborted")}
    for name, producer in producers.items():
        producer.begin_transaction()
        send(producer, "kept", f"{name} before")
    WAYS[way](own)
    own.start()
    for name, producer in producers.items():
        send(producer, "kept", f"{name} after")
    producers["committed"].commit_transaction(2 * SECONDS)
    producers["aborted"].abort_transaction(2 * SECONDS)
    becomes_visible(own.bootstrap, "kept", "committed before", "committed after")
    successor = producer_on(own.bootstrap, "committed")
    successor.begin_transaction()
    send(successor, "kept", "next")
    successor.commit_transaction(SECONDS)
    becomes_visible(own.bootstrap, "kept", "committed before", "committed after", "next")


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_whose_time_ends_while_the_broker_is_away(start_broker: StartBroker, way: str) -> None:
    own = start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=200)
    with RawClient(own.bootstrap) as client:
        client.create_topic("kept")
    forgotten = producer_on(own.bootstrap, "forgotten", **{"transaction.timeout.ms": 1000})
    forgotten.begin_transaction()
    send(forgotten, "kept", "forgotten")
    WAYS[way](own)
    own.start()
    send(Producer({"bootstrap.servers": own.bootstrap}), "kept", "plain")
    becomes_visible(own.bootstrap, "kept", "plain")
