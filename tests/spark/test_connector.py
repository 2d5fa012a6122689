"""Spark's own `format("kafka")`, with its jars on the PySpark they were made for, works on our broker unchanged."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from benchmarks.spark.connector import VERSION, Connector, obtain
from moldau.spark.pipelines.adopt import adopt_checkpoint
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import Record, read, write
from support.log.batches import CODECS
from support.spark.frames import as_records
from support.spark.process import PATIENCE_S, SparkFailed, SparkProcess, records, row

FORMAT = "kafka"
EVERYTHING = [
    {
        "key": b"k",
        "value": b"v",
        "headers": [("a", b"1"), ("a", b"2"), ("b", None), ("c", b"")],
        "timestamp": 1_600_000,
    },
    {"key": None, "value": b"", "timestamp": 1_700_000_000_123},
    {"key": b"", "value": None},
    {"key": b"\x00\xff", "value": bytes(range(256)) * 40, "headers": [("é", b"\xff")]},
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """Spark with its connector."""
    found = obtain()
    if not isinstance(found, Connector):
        pytest.skip(f"Spark's own connector was not tried: {found}")
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    conf = {"spark.jars": ",".join(map(str, found.jars)), "spark.sql.shuffle.partitions": "2"}
    process = SparkProcess(
        tmp_path_factory.mktemp("connector") / "log", ours=False, python=str(found.python), conf=conf, environment=alone
    )
    assert process.version == VERSION
    yield process
    process.close()


@pytest.fixture
def options(broker: AnyBroker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "includeHeaders": "true", "startingOffsets": "earliest"}


def test_a_batch_is_what_was_written(
    kafka: SparkProcess, broker: AnyBroker, create_topic: CreateTopic, options: dict[str, str]
) -> None:
    topic = create_topic(partitions=len(CODECS))
    for partition, codec in enumerate(CODECS):
        placed = [{**record, "partition": partition} for record in EVERYTHING]
        write(broker.bootstrap, topic, placed, compression_type=codec)
    found = records(kafka.ask("read", format=FORMAT, options={**options, "subscribe": topic}))
    assert found == read(broker.bootstrap, topic)
    assert len(found) == len(CODECS) * len(EVERYTHING)


def test_topics_by_pattern_and_by_partition(
    kafka: SparkProcess, broker: AnyBroker, create_topic: CreateTopic, topic: str, options: dict[str, str]
) -> None:
    first, second = create_topic(partitions=2), create_topic()
    for name in (first, second):
        write(broker.bootstrap, name, [{"value": f"{name} {number}".encode()} for number in range(20)])
    matched = kafka.ask("read", format=FORMAT, options={**options, "subscribePattern": f"{topic}-[0-9]+"})
    assert records(matched) == read(broker.bootstrap, first, second)
    assigned = kafka.ask("read", format=FORMAT, options={**options, "assign": f'{{"{first}":[1]}}'})
    assert records(assigned) == [record for record in read(broker.bootstrap, first) if record.partition == 1]


def test_it_begins_and_ends_at_times(
    kafka: SparkProcess, broker: AnyBroker, create_topic: CreateTopic, options: dict[str, str]
) -> None:
    topic = create_topic()
    write(broker.bootstrap, topic, [{"value": b"%d" % at, "timestamp": at} for at in range(1000, 2000, 100)])
    limits = {"startingTimestamp": "1300", "endingTimestamp": "1700", "subscribe": topic}
    found = records(kafka.ask("read", format=FORMAT, options={**options, **limits}))
    assert [record.timestamp_ms for record in found] == [1300, 1400, 1500, 1600]


def test_a_stream_goes_on_from_its_checkpoint(
    kafka: SparkProcess, broker: AnyBroker, create_topic: CreateTopic, tmp_path: Path, options: dict[str, str]
) -> None:
    topic = create_topic(partitions=2)
    asked: dict[str, Any] = {
        "format": FORMAT,
        "options": {**options, "subscribe": topic, "maxOffsetsPerTrigger": "60"},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    batches = []
    for part in range(2):
        write(broker.bootstrap, topic, [{"value": b"%d" % number} for number in range(part * 100, part * 100 + 100)])
        batches.append([records(batch) for batch in kafka.ask("stream", **asked)])
    assert all(len(batch) <= 60 for part in batches for batch in part)
    found = [_flat(part) for part in batches]
    assert [len(part) for part in found] == [100, 100], "a restart neither repeats nor leaves out"
    assert sorted(found[0] + found[1]) == sorted(read(broker.bootstrap, topic))


@pytest.mark.parametrize("finished", [True, False])
def test_our_source_takes_over_its_checkpoint(
    kafka: SparkProcess,
    spark: Any,
    broker: AnyBroker,
    create_topic: CreateTopic,
    tmp_path: Path,
    options: dict[str, str],
    finished: bool,
) -> None:
    topic = create_topic(partitions=2)
    old = tmp_path / "old"
    asked = {**options, "subscribe": topic, "maxOffsetsPerTrigger": "60"}
    write(broker.bootstrap, topic, [{"value": b"%d" % number} for number in range(100)])
    batches = [records(batch) for batch in kafka.ask("stream", format=FORMAT, options=asked, checkpoint=str(old))]
    if not finished:  # as if the driver had died then
        (old / "commits" / str(len(batches) - 1)).unlink()
        (old / "commits" / f".{len(batches) - 1}.crc").unlink()
    write(broker.bootstrap, topic, [{"value": b"%d" % number} for number in range(100, 150)])

    adopted = adopt_checkpoint(old, tmp_path / "new")
    assert adopted.repeats is not finished
    assert sum(adopted.offsets[0].values()) == 100
    taken: dict[int, list[Record]] = {}

    def take(frame: Any, batch: int) -> None:
        taken[batch] = as_records(frame.collect())

    reader = spark.readStream.format("moldau").options(**asked).load()
    writer = reader.writeStream.foreachBatch(take).option("checkpointLocation", str(adopted.path))
    assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
    assert min(taken) == len(batches) - (0 if finished else 1)
    together = dict(enumerate(batches)) | taken
    assert sorted(_flat(list(together.values()))) == sorted(read(broker.bootstrap, topic)), (
        "no record twice, and none left out"
    )


def test_what_it_writes_is_there(
    kafka: SparkProcess, broker: AnyBroker, create_topic: CreateTopic, options: dict[str, str]
) -> None:
    first, second = create_topic(partitions=3), create_topic()
    rows = [
        row(key=b"a", value=b"1", topic=first, partition=2, headers=[("h", b"x"), ("h", b"y"), ("n", None)]),
        row(key=None, value=b"2", topic=second, partition=None, headers=None),
        row(key=b"b", value=None, topic=second, partition=0, headers=[]),
    ]
    where = {"kafka.bootstrap.servers": broker.bootstrap, "includeHeaders": "true"}
    kafka.ask("write", format=FORMAT, options=where, rows=rows)
    found = read(broker.bootstrap, first, second)
    assert {(each.topic, each.partition, each.key, each.value, each.headers) for each in found} == {
        (first, 2, b"a", b"1", (("h", b"x"), ("h", b"y"), ("n", None))),
        (second, 0, None, b"2", ()),
        (second, 0, b"b", None, ()),
    }


def test_both_sinks_put_a_key_into_the_same_partition(
    kafka: SparkProcess, spark: Any, broker: AnyBroker, create_topic: CreateTopic
) -> None:
    theirs, ours = create_topic(partitions=7), create_topic(partitions=7)
    keys = [b"", *(b"key-%d" % number for number in range(100)), bytes(range(256))]
    where = {"kafka.bootstrap.servers": broker.bootstrap}
    kafka.ask(
        "write", format=FORMAT, options={**where, "topic": theirs}, rows=[row(key=key, value=key) for key in keys]
    )
    frame = spark.createDataFrame([(key, key) for key in keys], "key binary, value binary")
    frame.write.format("moldau").options(**where, topic=ours).mode("append").save()
    found = [{record.key: record.partition for record in read(broker.bootstrap, topic)} for topic in (theirs, ours)]
    assert found[0] == found[1]
    assert len(found[0]) == len(keys)


def test_transactions_that_did_not_end_or_were_aborted(
    kafka: SparkProcess, broker: AnyBroker, create_topic: CreateTopic, options: dict[str, str]
) -> None:
    topic = create_topic()
    open_one = _in_transaction(broker, topic, "committed", "aborted", "open")
    asked = {**options, "subscribe": topic}
    committed = kafka.ask("read", format=FORMAT, options={**asked, "kafka.isolation.level": "read_committed"})
    everything = kafka.ask("read", format=FORMAT, options={**asked, "kafka.isolation.level": "read_uncommitted"})
    open_one.abort_transaction(30)
    assert [each.value for each in records(committed)] == [b"committed"] * 3
    assert [each.value for each in records(everything)] == [b"committed"] * 3 + [b"aborted"] * 3 + [b"open"] * 3


def test_a_topic_that_is_not_there(kafka: SparkProcess, topic: str, options: dict[str, str]) -> None:
    asked = {**options, "subscribe": topic, "kafka.allow.auto.create.topics": "false"}
    with pytest.raises(SparkFailed, match="UnknownTopicOrPartition"):
        kafka.ask("read", format=FORMAT, options=asked)


def _in_transaction(broker: AnyBroker, topic: str, *ends: str) -> Producer:
    """Three records for each end that a transaction can have; the producer of the last, still open."""
    for end in ends:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{end}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, end)
        assert producer.flush(30) == 0
        if end == "committed":
            producer.commit_transaction(30)
        elif end == "aborted":
            producer.abort_transaction(30)
    return producer


def _flat(batches: list[list[Record]]) -> list[Record]:
    return [record for batch in batches for record in batch]
