"""Transactions of the Python client's producers: commit, abort, what can be tried again, and what cannot."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.base import ids
from moldau.client.errors import (
    Aborted,
    Closed,
    DeliveryFailed,
    Fenced,
    InvalidUse,
    KafkaFailure,
    RecordTooLarge,
    TimedOut,
)
from moldau.client.producer import base
from moldau.client.producer.producer import Producer
from support.brokers.changed import changed_broker
from support.brokers.processes import AnyBroker, BrokerProcess, CreateTopic, StartBroker
from support.clients.confluent import read_values
from support.clients.producers import NewProducer, producers
from support.eventually import eventually

S = 30.0
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def new_producer(broker: AnyBroker, topic: str, short_waits: dict[str, int]) -> Iterator[NewProducer]:
    """Producers with one transactional id, which no other test uses."""
    with producers(broker.bootstrap, transactional_id=topic) as new:
        yield new


def becomes_visible(broker: AnyBroker, topic: str, *values: str) -> None:
    """A commit is answered before its markers are in all partitions."""
    eventually(lambda: read_values(broker.bootstrap, topic) == list(values), f"{values} are visible")


def test_a_transaction_is_committed_or_aborted_as_a_whole(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    topic, producer = create_topic(), new_producer()
    with producer.transaction():
        producer.send(topic, "a")
        producer.send_many(topic, ["b", "c"])
    with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012
        dropped = producer.send(topic, "d")
        raise ZeroDivisionError
    with producer.transaction() as transaction:
        producer.send(topic, "e").result(S)
        transaction.abort()
    with producer.transaction():
        producer.send(topic, "f")
    producer.flush(S)  # what was aborted is no failure of its own
    assert dropped.done()
    becomes_visible(broker, topic, "a", "b", "c", "f")


def test_aborting_at_once_after_a_commit(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    """The coordinator may still be completing the commit."""
    topic, producer = create_topic(partitions=10), new_producer()
    for number in range(20):
        with producer.transaction():
            for partition in range(10):
                producer.send(topic, str(number), partition=partition)
        with producer.transaction() as transaction:
            producer.send(topic, "aborted")
            time.sleep(number / 2_000)  # librdkafka announces the partition after 1 ms; abort before, then and after it
            transaction.abort()
    producer.flush(S)
    assert "aborted" not in read_values(broker.bootstrap, topic)


def test_a_transaction_with_a_failed_record_is_aborted_and_can_be_tried_again(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    small, producer = create_topic(configs={"max.message.bytes": "1000"}), new_producer()
    with pytest.raises(RecordTooLarge) as refused, producer.transaction():  # noqa: PT012
        producer.send(small, "lost with it").result(S)
        producer.send(small, "x" * 2_000)
    assert (refused.value.abortable, refused.value.retriable, refused.value.fatal) == (True, True, False)
    with pytest.raises(KafkaFailure) as failed, producer.transaction():  # noqa: PT012
        producer.send(small, "x" * 2_000).exception(S)
        producer.send(small, "after it")
    assert (failed.value.abortable, failed.value.fatal) == (True, False)
    eventually(lambda: _succeeds(producer, small), "it succeeds")
    producer.flush(S)
    becomes_visible(broker, small, "again")


def _succeeds(producer: Producer, topic: str) -> bool:
    """librdkafka's sequence numbers have a gap after a record that failed: it may have to abort once more."""
    try:
        with producer.transaction():
            producer.send(topic, "again")
    except KafkaFailure as failure:
        if not failure.abortable:
            raise
        return False
    return True


def test_a_second_producer_fences_the_first(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    topic, first = create_topic(), new_producer()
    with pytest.raises(Fenced) as fenced, first.transaction():  # noqa: PT012
        first.send(topic, "lost").result(S)
        second = new_producer()
        with second.transaction():
            second.send(topic, "kept")
    assert (fenced.value.fatal, fenced.value.retriable, fenced.value.name) == (True, False, "FENCED")
    with pytest.raises(Fenced):
        first.send(topic, "x")
    with pytest.raises(Fenced), first.transaction():
        raise AssertionError("it began")
    first.close()
    becomes_visible(broker, topic, "kept")


def test_a_fenced_producer_that_sends_on(new_producer: NewProducer, create_topic: CreateTopic) -> None:
    topic, first = create_topic(), new_producer()
    with pytest.raises(Fenced), first.transaction():  # noqa: PT012
        first.send(topic, "lost").result(S)
        with new_producer().transaction():
            pass
        while True:
            first.send(topic, "x")
            time.sleep(0.01)


def test_offsets_of_a_group_are_part_of_the_transaction(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    topic, producer = create_topic(), new_producer()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    place = ids.TopicPartition(topic, 0)
    with producer.transaction() as transaction:
        transaction.send_offsets({place: 5}, consumer.consumer_group_metadata())
        transaction.abort()
    assert consumer.committed([TopicPartition(topic, 0)], S)[0].offset < 0
    with producer.transaction() as transaction:
        transaction.send_offsets({place: 7}, consumer.consumer_group_metadata())
    eventually(lambda: consumer.committed([TopicPartition(topic, 0)], S)[0].offset == 7, "the offset is committed")
    consumer.close()


def test_a_coordinator_that_is_not_known_for_a_while(tmp_path: Path, on_apache: bool) -> None:
    """librdkafka asks for it a few times, and without IDLE_MS would wait for ever."""
    if on_apache:
        pytest.skip("the broker is one of ours with a fault")
    with changed_broker("hidden_coordinators", tmp_path) as bootstrap:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "hidden"})
        soon = {"connections.max.idle.ms": 500}
        with Producer(bootstrap, transactional_id="t", properties=soon) as producer:
            with producer.transaction() as transaction:
                producer.send("t", "a").result(S)
                transaction.send_offsets({ids.TopicPartition("t", 0): 5}, consumer.consumer_group_metadata())
            found = eventually(lambda: consumer.committed([TopicPartition("t", 0)], S), "the offset is committed")
        assert found[0].offset == 5
        consumer.close()


def test_uses_that_make_no_sense(broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic) -> None:
    topic = create_topic()
    with Producer(broker.bootstrap) as plain, pytest.raises(InvalidUse, match="has no transactional_id"):
        plain.transaction()
    producer = new_producer()
    with pytest.raises(InvalidUse, match="no transaction is open"):
        producer.send(topic, "x")
    with pytest.raises(InvalidUse, match="is open already"), producer.transaction(), producer.transaction():
        raise AssertionError("it began")
    with pytest.raises(InvalidUse, match="no transaction is open"):
        producer.send_many(topic, ["x"])
    producer.close()
    with pytest.raises(Closed):
        producer.transaction()


def test_closing_aborts_what_is_open(broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic) -> None:
    topic, producer = create_topic(), new_producer()
    producer.transaction().begin()
    producer.send(topic, "lost").result(S)
    producer.close()
    with new_producer() as plain, plain.transaction():
        plain.send(topic, "kept")
    becomes_visible(broker, topic, "kept")


def test_brokers_that_are_away(start_broker: StartBroker, new_producer: NewProducer) -> None:
    lost = new_producer(NOWHERE, max_block=0.5).transaction()

    def refused() -> bool:
        with pytest.raises(TimedOut, match=r"could not be initialized within 0\.5 s") as late:
            lost.begin()
        assert late.value.retriable
        return "Connection refused" in str(late.value)

    eventually(refused, "the error tells why, once it is known")
    own = start_broker()
    producer = new_producer(own.bootstrap, max_block=1.0, properties={"reconnect.backoff.max.ms": 200})
    transaction = producer.transaction()
    eventually(lambda: _in_time(transaction.begin), "a call that timed out goes on with the next one")
    producer.send("t", "a").result(S)
    own.kill()
    with pytest.raises(TimedOut, match="could not be committed"):
        transaction.commit()
    own.start()
    eventually(lambda: _in_time(transaction.commit), "the commit goes on")
    becomes_visible(own, "t", "a")


def test_closing_while_brokers_are_away(
    own_broker: BrokerProcess, new_producer: NewProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "ABORT_S", 0.5)  # for the transaction that is open
    producer = new_producer(own_broker.bootstrap)
    with producer.transaction():
        producer.send("t", "a").result(S)
        own_broker.kill()
        delivery, batch = producer.send("t", "x"), producer.send_many("t", ["x"] * 3)
        producer.close()
    error = delivery.exception(0)
    assert isinstance(error, Aborted)
    assert error.retriable
    assert isinstance(batch.exception(0), DeliveryFailed)
    with pytest.raises(Closed):
        producer.send("t", "b")


def _in_time(call: Callable[[], None]) -> bool:
    try:
        call()
    except TimedOut:
        return False
    return True
