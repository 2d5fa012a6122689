"""Functions that a user gives to a Producer, on a real broker: partitioners and interceptors."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from moldau.client.direct.partitioning import partition_of
from moldau.client.errors import (
    ClientError,
    DeliveryFailed,
    InvalidUse,
    RecordTooLarge,
    SerializationFailed,
)
from moldau.client.interceptors import OutgoingRecord, ProducerInterceptor
from moldau.client.producer import partitioners
from moldau.client.producer.delivery import Delivered
from moldau.client.producer.producer import Producer
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import read
from support.clients.producers import NewProducer, producers
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


# -- partitions


def test_keys_go_where_java_puts_them(producer: Producer, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=7)
    keys = [f"key-{number}" for number in range(50)]
    found = [producer.send(topic, b"x", key=key).result(S).partition for key in keys]
    assert found == [partition_of(key.encode(), 7) for key in keys]


def test_a_partitioner_of_the_users(
    admin: AdminClient, new_producer: NewProducer, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(partitions=3)
    asked: list[tuple[str, bytes | None, bytes | None, int]] = []

    def last(name: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        asked.append((name, key, value, partitions))
        return partitions - 1

    producer = new_producer(partitioner=last)
    assert producer.partitions(topic) == 3
    assert producer.send(topic, {"n": 1}, key="k").result(S).partition == 2
    assert asked == [(topic, b"k", b'{"n":1}', 3)]
    assert producer.send(topic, b"x", partition=1).result(S).partition == 1, "an explicit one wins"
    for done in admin.create_partitions([NewPartitions(topic, 5)]).values():
        done.result(S)
    assert producer.send(topic, b"x").result(S).partition == 2, "the number is known for a while"
    monkeypatch.setattr(partitioners, "REFRESH_S", 0.0)
    producer = new_producer(partitioner=last)
    eventually(lambda: producer.send(topic, b"x").result(S).partition == 4, "the new partitions are seen")


@pytest.mark.parametrize("wrong", [3, -1, "1", None])
def test_a_partitioner_that_returns_no_partition(
    new_producer: NewProducer, create_topic: CreateTopic, wrong: Any
) -> None:
    topic = create_topic(partitions=3)
    producer = new_producer(partitioner=lambda *_: wrong)
    with pytest.raises(InvalidUse, match=f"the partitioner returned {wrong!r} for {topic}, which has 3 partitions"):
        producer.send(topic, b"x")


def test_a_partitioner_of_librdkafkas(new_producer: NewProducer, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=64)
    found = [new_producer(partitioner=name).send(topic, b"x", key="k").result(S) for name in ("fnv1a", "consistent")]
    assert found[0].partition != found[1].partition


# -- interceptors


class Stamp(ProducerInterceptor):
    """Adds a header, and remembers what became of records."""

    def __init__(self) -> None:
        self.told: list[tuple[object, Delivered | ClientError]] = []

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        record.headers.append(("stamp", b"1"))
        return dataclasses.replace(record, value=f"<{record.value}>")

    def on_delivery(self, record: OutgoingRecord, outcome: Delivered | ClientError) -> None:
        self.told.append((record.value, outcome))


class Broken(ProducerInterceptor):
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        raise ValueError("of on_send")

    def on_delivery(self, record: OutgoingRecord, outcome: Delivered | ClientError) -> None:
        raise ValueError("of on_delivery")


def test_interceptors_change_records_and_learn_what_became_of_them(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    topic, stamp = create_topic(), Stamp()
    producer = new_producer(interceptors=[stamp])
    delivered = producer.send(topic, "a").result(S)
    producer.send_many(topic, ["b", "c"]).result(S)
    with pytest.raises(RecordTooLarge) as refused:
        producer.send(topic, "x" * 2_000_000)
    producer.flush(S)
    assert [(record.value, record.headers) for record in read(broker.bootstrap, topic)] == [
        (b"<a>", (("stamp", b"1"),)),
        (b"<b>", (("stamp", b"1"),)),
        (b"<c>", (("stamp", b"1"),)),
    ]
    assert stamp.told[0] == ("<a>", delivered)
    assert [value for value, _ in stamp.told[1:3]] == ["<b>", "<c>"]
    assert stamp.told[3][1] is refused.value


def test_an_interceptor_sees_a_failure_and_flush_raises_it_all_the_same(
    new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    small, stamp = create_topic(configs={"max.message.bytes": "1000"}), Stamp()
    producer = new_producer(interceptors=[stamp])
    producer.send(small, "x" * 2_000)
    with pytest.raises(DeliveryFailed):
        producer.flush(S)
    assert isinstance(stamp.told[0][1], RecordTooLarge)


def test_an_interceptor_learns_of_a_record_that_cannot_be_serialized(
    new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    topic, stamp = create_topic(), Stamp()
    producer = new_producer(interceptors=[stamp])
    with pytest.raises(SerializationFailed) as refused:
        producer.send(topic, "a", key=object())
    producer.flush(S)
    assert stamp.told == [("<a>", refused.value)]


def test_a_failing_interceptor_is_logged_once_and_breaks_nothing(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic, stamp = create_topic(), Stamp()
    producer = new_producer(interceptors=[Broken(), stamp])
    for _ in range(10):
        producer.send(topic, "a")
    producer.flush(S)
    assert values(broker, topic) == [b"<a>"] * 10
    assert len(stamp.told) == 10
    assert caplog.text.count("Interceptor Broken.on_send raised") == 1
    assert caplog.text.count("Interceptor Broken.on_delivery raised") == 1
