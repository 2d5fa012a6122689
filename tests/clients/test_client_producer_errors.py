"""What a Producer raises, on a real broker: arguments, refusals, rights, time-outs, full buffers."""

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from moldau.client.errors import (
    AuthenticationFailed,
    BufferFull,
    Closed,
    DeliveryFailed,
    InvalidUse,
    KafkaFailure,
    NotAuthorized,
    RecordTooLarge,
    SerializationFailed,
    TimedOut,
    UnknownTopicOrPartition,
)
from moldau.client.producer.producer import Producer
from moldau.testing import Broker
from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients.confluent import read
from support.clients.producers import NewProducer, producers
from support.clients.raw import RawClient
from support.clients.sasl import ACLS_AND_TOKENS, PLAIN_USERS, as_admin, sasl_broker

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


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with passwords and ACLs, and the topic `orders`, on which only admin has rights."""
    with sasl_broker(tmp_path_factory.mktemp("secured") / "data", **ACLS_AND_TOKENS) as started:
        admin = as_admin(started.bootstrap_servers)  # kept, since librdkafka ends what a collected client does
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(S)
        yield started


def login(user: str, password: str = "") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or PLAIN_USERS[user],
    }


def values(broker: AnyBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in read(broker.bootstrap, topic)]


# -- errors


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"headers": {"n": 5}}, "header 'n' must be bytes, text or None, not int"),
        ({"headers": [(5, b"x")]}, "the name of a header must be text"),
        ({"partition": -1}, "partition must be a number, 0 or more"),
        ({"partition": 2**40}, "cannot be sent"),
        ({"timestamp": 0}, "a timestamp must be after 1970"),
        ({"timestamp": datetime.datetime(2024, 1, 1)}, "must have a time zone"),
    ],
)
def test_arguments_that_make_no_sense(
    producer: Producer, create_topic: CreateTopic, given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidUse, match=problem):
        producer.send(create_topic(), b"x", **given)


@pytest.mark.parametrize("wrong", [{"linger": -1}, {"max_block": -1}, {"compression": "zip"}, {"partitioner": "none"}])
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidUse):
        Producer(NOWHERE, **wrong)


def test_a_value_that_its_serializer_does_not_take(new_producer: NewProducer, create_topic: CreateTopic) -> None:
    topic = create_topic()
    with pytest.raises(SerializationFailed, match=f"the value for {topic} cannot be written: .*int"):
        new_producer(value=int).send(topic, "text")
    with pytest.raises(SerializationFailed, match=f"the key for {topic} cannot be written: ValueError: no"):
        new_producer(key=_refuse).send(topic, b"x", key=b"k")
    with pytest.raises(SerializationFailed, match="its serializer returned str, not bytes"):
        new_producer(value=lambda obj, ctx: obj).send(topic, "text")
    with pytest.raises(SerializationFailed, match="surrogates not allowed"):
        new_producer().send(topic, "\ud800")


def _refuse(obj: object, ctx: object) -> bytes:
    raise ValueError("no")


def test_a_record_that_is_too_large(producer: Producer, create_topic: CreateTopic) -> None:
    with pytest.raises(RecordTooLarge) as refused:
        producer.send(create_topic(), b"x" * 2_000_000)
    assert (refused.value.name, refused.value.retriable, refused.value.fatal) == ("MESSAGE_TOO_LARGE", False, False)
    small = create_topic(configs={"max.message.bytes": "1000"})
    with pytest.raises(RecordTooLarge) as failed:
        producer.send(small, b"x" * 2_000).result(S)
    assert (failed.value.name, failed.value.retriable, failed.value.fatal) == ("MESSAGE_TOO_LARGE", False, False)


def test_a_topic_or_partition_that_does_not_exist(
    start_broker: StartBroker, new_producer: NewProducer, topic: str
) -> None:
    own = start_broker(auto_create_topics_enable="false")
    producer = new_producer(own.bootstrap, properties={"topic.metadata.propagation.max.ms": 200}, max_block=0.3)
    with pytest.raises(UnknownTopicOrPartition, match=topic) as failed:
        producer.send(topic, b"x").result(S)
    assert (failed.value.name, failed.value.retriable) == ("UNKNOWN_TOPIC_OR_PARTITION", True)
    with pytest.raises(UnknownTopicOrPartition):
        producer.partitions(topic)
    with RawClient(own.bootstrap) as client:
        client.create_topic("t", 1, {})
    producer.send("t", b"x").result(S)
    with pytest.raises(UnknownTopicOrPartition) as refused:
        producer.send("t", b"x", partition=7)
    assert (refused.value.name, refused.value.retriable) == ("UNKNOWN_PARTITION", False)


def test_a_right_that_is_missing(secured: Broker, new_producer: NewProducer) -> None:
    alice = new_producer(secured.bootstrap_servers, properties=login("alice"))
    with pytest.raises(NotAuthorized) as failed:
        alice.send("orders", b"x").result(S)
    assert (failed.value.name, failed.value.retriable) == ("TOPIC_AUTHORIZATION_FAILED", False)
    transactional = new_producer(secured.bootstrap_servers, properties=login("alice"), transactional_id="mine")
    with pytest.raises(NotAuthorized) as refused, transactional.transaction():
        raise AssertionError("it began")
    assert refused.value.name == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def test_a_wrong_password_fails_at_once(
    secured: Broker, new_producer: NewProducer, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"properties": login("admin", "wr0ng"), "max_block": 60.0}
    producer = new_producer(secured.bootstrap_servers, **given)
    with pytest.raises(AuthenticationFailed) as failed:
        producer.send("orders", b"x").result(S)
    assert (failed.value.retriable, failed.value.fatal) == (False, False)
    with pytest.raises(AuthenticationFailed):
        producer.partitions("orders")
    transactional = new_producer(secured.bootstrap_servers, transactional_id="mine", **given)
    with pytest.raises(AuthenticationFailed), transactional.transaction():
        raise AssertionError("it began")
    new_producer(secured.bootstrap_servers, properties=login("admin")).send("orders", b"x").result(S)
    assert "Authentication failed at" in caplog.text
    assert "wr0ng" not in caplog.text


def test_no_broker(new_producer: NewProducer) -> None:
    producer = new_producer(NOWHERE, delivery_timeout=0.5, max_block=0.5)
    with pytest.raises(
        KafkaFailure, match=r"not delivered within the delivery timeout: .*Connection refused"
    ) as failed:
        producer.send("t", b"x").result(S)
    assert (failed.value.name, failed.value.retriable, failed.value.fatal) == ("MSG_TIMED_OUT", True, False)
    with pytest.raises(KafkaFailure) as asked:
        producer.partitions("t")
    assert asked.value.retriable


def test_waits_end_in_time(new_producer: NewProducer) -> None:
    producer = new_producer(NOWHERE)
    delivery = producer.send("t", b"x")
    batch = producer.send_many("t", [b"x"] * 3)
    with pytest.raises(TimedOut, match=r"no outcome within 0\.01 s"):
        delivery.result(0.01)
    with pytest.raises(TimedOut, match="0 of 3 records"):
        batch.exception(0.01)
    with pytest.raises(TimedOut, match=r"4 records have no outcome after 0\.3 s: .*Connection refused") as late:
        producer.flush(0.3)
    assert late.value.retriable
    with pytest.raises(DeliveryFailed, match="4 records were not delivered: t: dropped before it was sent"):
        producer.close(0)
    assert isinstance(delivery.exception(0), KafkaFailure)


@pytest.mark.parametrize("full", [{"buffer_messages": 5}, {"buffer_bytes": 5 * 1024}])
def test_a_full_buffer(new_producer: NewProducer, full: dict[str, int]) -> None:
    producer = new_producer(NOWHERE, max_block=0.3, **full)
    for _ in range(5):
        producer.send("t", b"x" * 1024)
    with pytest.raises(BufferFull, match=r"no room in the buffer within 0\.3 s: .*Connection refused") as refused:
        producer.send("t", b"x" * 1024)
    assert refused.value.retriable
    with pytest.raises(BufferFull):
        producer.send("t", b"x" * 1024, headers={"a": b"1"})


def test_many_records_into_a_full_buffer(new_producer: NewProducer) -> None:
    producer = new_producer(NOWHERE, max_block=0, buffer_messages=5)
    with pytest.raises(BufferFull) as refused:
        producer.send_many("t", [b"x"] * 10)
    assert refused.value.sent == 5
    with pytest.raises(DeliveryFailed, match="5 records were not delivered"):
        producer.close(0)


def test_a_small_buffer_holds_back_the_sender(
    broker: AnyBroker, new_producer: NewProducer, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    producer = new_producer(buffer_messages=10)
    for number in range(500):
        producer.send(topic, b"%d" % number)
        assert len(producer._kafka) <= 10
    assert producer.send_many(topic, [b"%d" % number for number in range(500, 1_000)]).result(S) == 500
    producer.flush(S)
    assert values(broker, topic) == [b"%d" % number for number in range(1_000)]


def test_a_closed_producer(producer: Producer, create_topic: CreateTopic) -> None:
    topic = create_topic()
    producer.close()
    producer.close()
    for use in (
        lambda: producer.send(topic, b"x"),
        lambda: producer.send(topic, "x", headers={"a": b"1"}),
        lambda: producer.send_many(topic, [b"x"]),
        lambda: producer.flush(),
        lambda: producer.partitions(topic),
        lambda: producer.transaction(),
    ):
        with pytest.raises(Closed) as refused:
            use()
        assert refused.value.fatal
