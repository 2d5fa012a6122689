"""The Producer of the Python client on a real broker: what is written, outcomes, partitions, interceptors, errors."""

import contextlib
import dataclasses
import datetime
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from moldau.client.direct.partitioning import partition_of
from moldau.client.errors import (
    AuthenticationFailed,
    BufferFull,
    ClientError,
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
from moldau.client.interceptors import OutgoingRecord, ProducerInterceptor
from moldau.client.producer import partitioners
from moldau.client.producer.delivery import Delivered, Delivery
from moldau.client.producer.producer import Producer
from moldau.testing import Broker
from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients.confluent import Record, read
from support.clients.raw import RawClient
from support.clients.sasl import ACLS_AND_TOKENS, PLAIN_USERS, as_admin, sasl_broker
from support.eventually import eventually

NOWHERE = "127.0.0.1:1"  # no broker listens there
S = 30.0
LINES = "moldau.client.producer"

NewProducer = Callable[..., Producer[Any, Any]]


@pytest.fixture
def new_producer(broker: AnyBroker) -> Iterator[NewProducer]:
    """Producers on the shared broker, closed at the end without looking at what failed."""
    made: list[Producer[Any, Any]] = []

    def new(bootstrap: str = broker.bootstrap, **settings: Any) -> Producer[Any, Any]:
        made.append(Producer(bootstrap, **settings))
        return made[-1]

    yield new
    for producer in made:
        with contextlib.suppress(DeliveryFailed):
            producer.close(0)


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
