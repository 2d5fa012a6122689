"""`spark.read.format("moldau")`: every byte as confluent-kafka reads it, from and to where the options say."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import Record
from support.clients.raw import RawClient
from support.log.batches import CODECS
from support.spark.frames import as_records

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

from pyspark.sql.functions import spark_partition_id

from moldau.spark.datasource import MoldauDataSource
from moldau.spark.source.plan import CORES

Load = Callable[..., Any]
Send = Callable[..., None]
Stored = Callable[..., list[Record]]

EVERYTHING = [
    {"key": b"k", "value": b"v", "headers": [("a", b"1"), ("a", b"2"), ("b", None), ("c", b"")], "timestamp": 1_600},
    {"key": None, "value": b"", "timestamp": 1_700_000_000_123},
    {"key": b"", "value": None},
    {"key": b"\x00\xff", "value": bytes(range(256)) * 40, "headers": [("é", b"\xff")]},
]
TIMES = [{"value": b"%d" % at, "timestamp": at} for at in range(1000, 2000, 100)]


@pytest.fixture
def load(spark: Any, broker: AnyBroker) -> Load:
    """`load(subscribe=…, startingOffsets=…)`: a DataFrame."""

    def of(**options: object) -> Any:
        reader = spark.read.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load()

    return of


def values(frame: Any) -> list[bytes]:
    return [
        bytes(row["value"])
        for row in frame.select("value", "partition", "offset").orderBy("partition", "offset").collect()
    ]


def test_all_columns_are_what_confluent_kafka_reads(
    load: Load, produce: Send, consume: Stored, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=len(CODECS) + 1)
    for partition, codec in enumerate(CODECS):
        produce(topic, [{**each, "partition": partition} for each in EVERYTHING], compression_type=codec)
    found = load(subscribe=topic, includeHeaders=True).collect()
    assert as_records(found) == consume(topic)
    assert len(found) == len(CODECS) * len(EVERYTHING)
    assert [row["headers"] is None for row in found if row["key"] in (None, b"")] == [True] * 2 * len(CODECS)
    assert as_records(load(subscribe=topic).collect()) == [
        Record(each.topic, each.partition, each.offset, each.key, each.value, each.timestamp_ms)
        for each in consume(topic)
    ]


def test_the_time_of_appending(load: Load, produce: Send, consume: Stored, create_topic: CreateTopic) -> None:
    topic = create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    produce(topic, [{"value": b"x", "timestamp": 1000}] * 3)
    found = as_records(load(subscribe=topic).collect())
    assert found == consume(topic)
    assert {each.timestamp_type for each in found} == {1}


def test_topics_by_name_pattern_and_partition(
    load: Load, produce: Send, consume: Stored, create_topic: CreateTopic, topic: str
) -> None:
    first, second = create_topic(partitions=2), create_topic()
    for name in (first, second):
        produce(name, [{"value": f"{name} {number}".encode()} for number in range(20)])
    both = consume(first, second)
    assert as_records(load(subscribe=f"{first}, {second}").collect()) == both
    assert as_records(load(subscribePattern=f"{topic}-[0-9]+").collect()) == both
    assert load(subscribePattern=".*no-topic-has-this-name").count() == 0
    assigned = load(assign=json.dumps({first: [1]}))
    assert as_records(assigned.collect()) == [each for each in both if (each.topic, each.partition) == (first, 1)]


def test_an_empty_topic_gives_no_rows(load: Load, create_topic: CreateTopic) -> None:
    assert load(subscribe=create_topic(partitions=2)).collect() == []


def test_from_and_to_offsets(load: Load, produce: Send, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    for partition in (0, 1):
        produce(topic, [{"value": b"%d" % number, "partition": partition} for number in range(10)])
    frame = load(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 7, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 2}}),
    )
    assert values(frame) == [b"7", b"8", b"9", b"0", b"1"]


def test_from_and_to_times(load: Load, produce: Send, create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(topic, TIMES)
    assert values(load(subscribe=topic, startingTimestamp=1250, endingTimestamp=1500)) == [b"1300", b"1400"]
    by_partition = json.dumps({topic: {"0": 1900}})
    assert values(load(subscribe=topic, startingOffsetsByTimestamp=by_partition, endingTimestamp=9999)) == [b"1900"]
    assert len(values(load(subscribe=topic, startingTimestamp="1970-01-01T00:00:01.8Z", endingTimestamp="1h ago"))) == 2
    late = rf"startingTimestamp: no record is at or after the timestamp in {topic}-0 \(5000\)"
    with pytest.raises(Exception, match=rf"{late}\. To start at the end there, set startingOffsetsByTimestampStrategy"):
        load(subscribe=topic, startingTimestamp=5000).collect()
    assert load(subscribe=topic, startingTimestamp=5000, startingOffsetsByTimestampStrategy="latest").collect() == []


def test_partitions_are_cut_into_tasks(load: Load, produce: Send, create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(topic, [{"value": b"%06d" % number} for number in range(1000)], compression_type="lz4")
    expected = [b"%06d" % number for number in range(1000)]
    for options, tasks in ({"minPartitions": 7}, 7), ({"maxRecordsPerPartition": 300}, 4), ({}, 1):
        frame = load(subscribe=topic, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert values(frame) == expected


def test_one_partition_is_work_for_all_cores(
    spark: Any, load: Load, produce: Send, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the session told our source; here three, whatever the machine has."""
    assert spark.sparkContext.environment[CORES] == "2"
    topic = create_topic()
    produce(topic, ({"value": b"x"} for _ in range(150_000)), compression_type="lz4")
    with monkeypatch.context() as changed:
        changed.setitem(spark.sparkContext.environment, CORES, "3")
        spark.dataSource.register(MoldauDataSource)
        sizes = load(subscribe=topic).groupBy(spark_partition_id()).count().collect()
    spark.dataSource.register(MoldauDataSource)
    assert [row["count"] for row in sizes] == [50_000] * 3


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(
    load: Load, broker: AnyBroker, consume: Stored, create_topic: CreateTopic, isolation: str
) -> None:
    """Committed, aborted and open, with markers in the middle and at the end of what is read."""
    topic = create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 2 + (None,)):
        producer.begin_transaction()
        for each in range(5):
            producer.produce(topic, value=b"%d %d" % (number, each))
        producer.flush()
        if end is not None:
            end()
    frame = load(subscribe=topic, kafka__isolation__level=isolation, maxRecordsPerPartition=6)
    found = as_records(frame.collect())
    assert found == consume(topic, isolation=isolation)
    assert len(found) == (10 if isolation == "read_committed" else 25)
    producer.abort_transaction()


def test_records_that_are_gone(load: Load, raw: RawClient, produce: Send, create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(topic, [{"value": b"%d" % number} for number in range(10)])
    raw.delete_records(topic, 4)
    assert values(load(subscribe=topic)) == [b"%d" % number for number in range(4, 10)]
    for name, offset in ("startingOffsets", 2), ("endingOffsets", 20):
        places = {name: json.dumps({topic: {"0": offset}})}
        with pytest.raises(Exception, match=rf"Some data may have been lost.*{topic}-0 \[.*failOnDataLoss"):
            load(subscribe=topic, **places).collect()
        assert values(load(subscribe=topic, failOnDataLoss=False, **places)) == [b"%d" % each for each in range(4, 10)]


def test_what_is_not_there_is_said(load: Load, create_topic: CreateTopic, topic: str) -> None:
    there = create_topic(partitions=2)
    for options, words in (
        ({"subscribe": topic}, f"the topic {topic} does not exist"),
        ({"assign": json.dumps({there: [1, 7]})}, f"partitions that do not exist: {there}-7"),
        ({"subscribe": there, "startingOffsets": json.dumps({there: {"0": 0}})}, f"it lacks {there}-1"),
        ({"subscribe": there, "startingOffsets": json.dumps({there: dict.fromkeys("012", 0)})}, f"names {there}-2"),
        ({"subscribe": there, "startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": there, "startingOffsets": json.dumps({there: {"0": 5, "1": 0}})}, "before its start at 5"),
    ):
        with pytest.raises(Exception, match=words):
            load(**options).collect()
