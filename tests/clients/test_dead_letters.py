"""Records that do not fit, written to a topic of their own on a real broker, and read back by another client."""

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pip install '.[spark]'")

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from moldau.client.direct.arrow import SCHEMA, SCHEMA_WITH_HEADERS
from moldau.spark.cluster import QueryFailed
from moldau.spark.connection import Connection
from moldau.spark.options import ReadOptions, read_options
from moldau.spark.source.dead_letters import DeadLetters, RecordRejected, reject_handler
from moldau.spark.source.plan import OffsetRange, ReadTask
from moldau.spark.value_formats import Rejected
from support.brokers.processes import AnyBroker, CreateTopic

TIME = 1_700_000_000_123


TASK = ReadTask(OffsetRange("orders", 5, 40, 43), None)


@pytest.fixture
def options(broker: AnyBroker) -> ReadOptions:
    return read_options({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"}, stream=False)


@pytest.fixture
def connection(options: ReadOptions) -> Connection:
    return options.connection


def records(schema: pa.Schema) -> pa.RecordBatch:
    """Three records at offsets 40 to 42 of orders-5."""
    rows = [
        {
            "key": None if number == 1 else b"k%d" % number,
            "value": None if number == 2 else b"?%d\xff" % number,
            "topic": "orders",
            "partition": 5,
            "offset": 40 + number,
            "timestamp": (TIME + number) * 1000,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}] if number == 0 else None,
        }
        for number in range(3)
    ]
    return pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


def letters(broker: AnyBroker, topic: str, count: int) -> list[tuple[object, ...]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = consumer.consume(count, 30)
    consumer.close()
    return [(each.key(), each.value(), each.timestamp()[1], each.headers()) for each in found]


def told(reason: str, offset: int, time: int) -> list[tuple[str, bytes | None]]:
    return [
        ("moldau.reason", reason.encode()),
        ("moldau.topic", b"orders"),
        ("moldau.partition", b"5"),
        ("moldau.offset", b"%d" % offset),
        ("moldau.timestamp", b"%d" % time),
    ]


def test_a_dead_letter_is_the_record_and_why(
    broker: AnyBroker, options: ReadOptions, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    with reject_handler(replace(options, dead_letters=topic), TASK) as misfits:
        misfits.take(records(SCHEMA_WITH_HEADERS), [Rejected(0, "not JSON: č"), Rejected(2, "no value")])
        misfits.take(records(SCHEMA_WITH_HEADERS), [])
        misfits.take(records(SCHEMA), [Rejected(1, "a: 1 is not a string")])
    assert letters(broker, topic, 3) == [
        (b"k0", b"?0\xff", TIME, [("h", b"x"), ("h", None), *told("not JSON: č", 40, TIME)]),
        (b"k2", None, TIME + 2, told("no value", 42, TIME + 2)),
        (None, b"?1\xff", TIME + 1, told("a: 1 is not a string", 41, TIME + 1)),
    ]


def test_without_a_topic_the_first_misfit_ends_the_query(options: ReadOptions) -> None:
    with reject_handler(options, TASK) as misfits:
        misfits.take(records(SCHEMA), [])
        with pytest.raises(RecordRejected, match="offset 41 of orders-5 does not match the schema: no value") as ended:
            misfits.take(records(SCHEMA), [Rejected(1, "no value"), Rejected(2, "no value")])
    assert (ended.value.topic, ended.value.partition, ended.value.offset) == ("orders", 5, 41)


def test_letters_that_cannot_be_written_fail_the_task(connection: Connection, create_topic: CreateTopic) -> None:
    topic = create_topic(configs={"max.message.bytes": "50"})
    with pytest.raises(QueryFailed, match=f"cannot write dead letters to {topic}: .*max.message.bytes"):  # noqa: SIM117
        with DeadLetters(connection, topic) as misfits:
            misfits.take(records(SCHEMA), [Rejected(0, "not JSON")])
