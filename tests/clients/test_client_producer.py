"""The Producer of the Python client on a real broker: what is written, outcomes of records, callbacks, statistics."""

import dataclasses
import datetime
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.client.errors import (
    Closed,
    DeliveryFailed,
    InvalidUse,
    RecordTooLarge,
    SerializationFailed,
    TimedOut,
)
from moldau.client.producer.delivery import Delivered, Delivery
from moldau.client.producer.producer import Producer
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import Record, read
from support.clients.producers import NewProducer, producers
from support.clients.raw import RawClient
from support.eventually import eventually

NOWHERE = "127.0.0.1:1"  # no broker listens there
S = 30.0
LINES = "moldau.client.producer"


@pytest.fixture
def new_producer(broker: AnyBroker) -> Iterator[NewProducer]:
    with producers(broker.bootstrap) as new:
        yield new


@pytest.fixture
def producer(new_producer: NewProducer) -> Producer[Any, Any]:
    return new_producer()


def values(broker: AnyBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in read(broker.bootstrap, topic)]


# -- what is written


def test_a_record_with_everything(broker: AnyBroker, producer: Producer, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=3)
    delivered = producer.send(
        topic,
        {"n": 1},
        key="k",
        headers=[("a", b"1"), ("a", None)],
        props={"tier": "gold"},
        partition=2,
        timestamp=1_700_000_000_000,
    ).result(S)
    assert delivered == Delivered(topic, 2, 0, 1_700_000_000_000)
    headers = (("a", b"1"), ("a", None), ("tier", b"gold"))
    assert read(broker.bootstrap, topic) == [Record(topic, 2, 0, b"k", b'{"n":1}', 1_700_000_000_000, headers=headers)]


@dataclasses.dataclass
class Order:
    id: int


def test_the_type_of_a_value_decides_how_it_is_written(
    broker: AnyBroker, producer: Producer, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    for value in (b"x", "ä", None, b"", [1], Order(7)):
        producer.send(topic, value)
    producer.flush(S)
    assert values(broker, topic) == [b"x", "ä".encode(), None, b"", b"[1]", b'{"id":7}']


def test_a_datetime_is_a_timestamp(producer: Producer, create_topic: CreateTopic) -> None:
    when = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    assert producer.send(create_topic(), b"x", timestamp=when).result(S).timestamp == 1_709_208_000_000


def test_records_stay_in_order_and_are_all_there_after_close(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    with new_producer() as producer:
        for number in range(5_000):
            producer.send(topic, str(number))
    assert values(broker, topic) == [str(number).encode() for number in range(5_000)]


def test_threads_share_a_producer(producer: Producer, create_topic: CreateTopic) -> None:
    topic, deliveries = create_topic(), []

    def send() -> None:
        deliveries.extend([producer.send(topic, b"x") for _ in range(500)])

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(delivery.result(S).offset for delivery in deliveries) == list(range(4_000))


def test_an_idempotent_producer_with_acks_all_is_the_default(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"x")
    with Producer(broker.bootstrap, properties={"acks": 1}) as producer:
        producer.send(topic, b"x")
    with RawClient(broker.bootstrap) as client:
        assert [batch.producer_id >= 0 for batch in client.fetched(topic)] == [True, False]


# -- outcomes


def test_a_callback_is_called_once_in_the_thread_of_the_producer(producer: Producer, create_topic: CreateTopic) -> None:
    topic, called = create_topic(), []

    def tell(delivery: Delivery) -> None:
        called.append((delivery, threading.current_thread().name))

    first = producer.send(topic, b"x", on_delivery=tell)
    first.result(S)
    producer.flush(S)
    assert called == [(first, "moldau-producer")]
    first.add_done_callback(tell)
    producer.flush(S)
    assert called == [(first, "moldau-producer")] * 2, "a callback that comes late is called too"


def test_callbacks_are_called_in_order(producer: Producer, create_topic: CreateTopic) -> None:
    topic, called = create_topic(), []
    for number in range(2_000):
        producer.send(topic, b"x", on_delivery=lambda delivery: called.append(delivery.result().offset))
        assert number < 2_000
    producer.flush(S)
    assert called == list(range(2_000))


def test_a_callback_that_raises_is_logged_and_the_others_are_called(
    producer: Producer, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic, called = create_topic(), []

    def fail(_: Delivery) -> None:
        raise ValueError("of the callback")

    first = producer.send(topic, b"x", on_delivery=fail)
    first.add_done_callback(called.append)
    second = producer.send(topic, b"x", on_delivery=called.append)
    producer.flush(S)
    assert called == [first, second]
    assert "of the callback" in caplog.text


def test_a_callback_may_send_wait_flush_and_close(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    topic, done = create_topic(), threading.Event()
    producer = new_producer(buffer_messages=2)

    def work(delivery: Delivery) -> None:
        producer.send(topic, b"of the callback").result(S)
        for _ in range(10):
            producer.send(topic, b"more than the buffer has room for")
        producer.flush(S)
        producer.close()
        done.set()

    producer.send(topic, b"x", on_delivery=work)
    assert done.wait(S)
    assert len(values(broker, topic)) == 12
    with pytest.raises(Closed):
        producer.send(topic, b"x")


def test_flush_waits_for_callbacks(producer: Producer, create_topic: CreateTopic) -> None:
    returns = threading.Event()
    producer.send(create_topic(), "x", on_delivery=lambda _: returns.wait(S)).result(S)
    with pytest.raises(TimedOut):
        producer.flush(0.1)
    returns.set()
    producer.flush(S)


def test_flush_and_close_raise_failures_that_nobody_looked_at(
    new_producer: NewProducer, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    small, good = create_topic(configs={"max.message.bytes": "1000"}), create_topic()
    producer = new_producer(linger=0)
    for _ in range(3):
        producer.send(small, b"x" * 2_000)
    producer.send(good, b"x")
    with pytest.raises(
        DeliveryFailed, match=rf"3 records were not delivered: {small}: Message size too large"
    ) as found:
        producer.flush(S)
    assert [type(error) for error in found.value.errors] == [RecordTooLarge] * 3
    assert not found.value.retriable
    producer.flush(S)  # they are told once
    producer.send(small, b"x" * 2_000)
    with pytest.raises(DeliveryFailed, match="1 record was not delivered"):
        producer.close()
    assert caplog.text.count("Records were not delivered") == 1, "one line for all of them"


def test_a_failure_that_somebody_looked_at_is_not_raised_again(producer: Producer, create_topic: CreateTopic) -> None:
    small = create_topic(configs={"max.message.bytes": "1000"})
    called: list[Delivery] = []
    with pytest.raises(RecordTooLarge):
        producer.send(small, b"x" * 2_000).result(S)
    assert isinstance(producer.send(small, b"x" * 2_000).exception(S), RecordTooLarge)
    producer.send(small, b"x" * 2_000, on_delivery=called.append)
    producer.send(small, b"x" * 2_000).add_done_callback(called.append)
    late = producer.send(small, b"x" * 2_000)
    eventually(late.done, "the record failed")
    assert isinstance(late.exception(), RecordTooLarge)
    producer.flush(S)
    assert len(called) == 2


def test_an_exception_in_the_body_is_not_hidden_by_failed_records(
    broker: AnyBroker, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    small = create_topic(configs={"max.message.bytes": "1000"})
    with pytest.raises(ZeroDivisionError), Producer(broker.bootstrap) as producer:  # noqa: PT012
        producer.send(small, b"x" * 2_000)
        raise ZeroDivisionError
    assert "Closing after ZeroDivisionError: 1 record was not delivered" in caplog.text


# -- many


def test_many_records_have_one_outcome(broker: AnyBroker, producer: Producer, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=4)
    batch = producer.send_many(topic, (str(number).encode() for number in range(3_000)))
    assert batch.result(S) == 3_000
    assert sorted(values(broker, topic), key=lambda value: int(value or 0)) == [b"%d" % n for n in range(3_000)]
    assert producer.send_many(topic, []).result(S) == 0


def test_many_records_with_keys_and_of_other_types(
    broker: AnyBroker, producer: Producer, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=4)
    keys = ["a", b"b", None, 3]
    assert producer.send_many(topic, ["text", b"bytes", {"n": 1}, None], keys=keys).result(S) == 4
    found = {(record.key, record.value) for record in read(broker.bootstrap, topic)}
    assert found == {(b"a", b"text"), (b"b", b"bytes"), (None, b'{"n":1}'), (b"\0\0\0\0\0\0\0\3", None)}


def test_some_of_many_fail(broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic) -> None:
    """One is too large for the client, one for the topic; librdkafka drops the latter with its whole batch."""
    topic = create_topic(configs={"max.message.bytes": "100000"})
    producer = new_producer(properties={"message.max.bytes": 200_000, "batch.num.messages": 1}, linger=0)
    sizes = [10, 300_000, 20, 150_000, 30]
    with pytest.raises(DeliveryFailed, match="2 records were not delivered") as failed:
        producer.send_many(topic, [b"x" * size for size in sizes]).result(S)
    assert [type(error) for error in failed.value.errors] == [RecordTooLarge, RecordTooLarge]
    producer.flush(S)
    assert sorted(len(value or b"") for value in values(broker, topic)) == [10, 20, 30]


def test_nothing_is_sent_if_one_of_many_cannot_be_serialized(
    broker: AnyBroker, producer: Producer, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    with pytest.raises(SerializationFailed):
        producer.send_many(topic, [b"x", object()])
    with pytest.raises(InvalidUse, match="2 values and 1 keys"):
        producer.send_many(topic, [b"x", b"y"], keys=["a"])
    producer.flush(S)
    assert values(broker, topic) == []


# -- statistics


def test_statistics(new_producer: NewProducer, create_topic: CreateTopic) -> None:
    found: list[dict[str, Any]] = []
    producer = new_producer(on_stats=found.append, client_id="mine", properties={"statistics.interval.ms": 50})
    producer.send(create_topic(), b"x").result(S)
    eventually(lambda: found and found[-1]["txmsgs"] == 1, "the record is counted", lambda: found[-1:])
    assert found[-1]["client_id"] == "mine"


def test_statistics_that_are_not_taken(
    new_producer: NewProducer, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: dict[str, Any]) -> None:
        raise ValueError("of on_stats")

    with caplog.at_level(logging.ERROR, LINES):
        producer = new_producer(on_stats=fail, properties={"statistics.interval.ms": 50})
        eventually(lambda: "of on_stats" in caplog.text, "the failure is logged")
        producer.send(create_topic(), b"x").result(S)
