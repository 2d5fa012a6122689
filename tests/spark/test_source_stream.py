"""`spark.readStream.format("moldau")`: each record once, over restarts, limits, new partitions and losses."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from moldau.spark.pipelines.root_cause import root_cause
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients import confluent
from support.clients.cli import runner, succeed
from support.clients.confluent import Record
from support.clients.raw import RawClient
from support.spark.frames import as_records

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

Send = Callable[..., None]
Stored = Callable[..., list[Record]]
SECONDS = 60


def numbers(*which: int, partition: int | None = None) -> list[dict[str, Any]]:
    place = {} if partition is None else {"partition": partition}
    return [{"value": b"%06d" % number, **place} for number in which]


class Stream:
    """A query into memory, with one checkpoint; it can be run again and again."""

    def __init__(self, spark: Any, bootstrap: str, directory: Path) -> None:
        self.spark, self.bootstrap, self.checkpoint = spark, bootstrap, directory / "checkpoint"
        self.batches: dict[int, list[Record]] = {}  # a batch that runs again takes the place of the one before

    def start(self, trigger: dict[str, Any] | None = None, **options: object) -> Any:
        reader = self.spark.readStream.format("moldau").option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in ({"startingOffsets": "earliest"} | options).items():
            reader = reader.option(name, value)
        writer = reader.load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"processingTime": "50 milliseconds"})).start()

    def _take(self, frame: Any, batch: int) -> None:
        self.batches[batch] = as_records(frame.collect())

    def run(self, **options: object) -> Any:
        """All that is there, and no more."""
        query = self.start({"availableNow": True}, **options)
        assert query.awaitTermination(SECONDS), "the query does not end"
        return query

    @property
    def records(self) -> list[Record]:
        return sorted(record for batch in list(self.batches.values()) for record in batch)

    @property
    def values(self) -> list[int]:
        return sorted(int(record.value or b"") for record in self.records)

    def wait_for(self, query: Any, count: int) -> None:
        until = time.monotonic() + SECONDS
        while len(self.records) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < until, self.values
            time.sleep(0.02)

    def stream_offsets(self, batch: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
        return found

    def forget_last_commit(self) -> int:
        """As if the driver had died before the last batch was finished."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
        return last


@pytest.fixture
def stream(spark: Any, broker: AnyBroker, tmp_path: Path) -> Stream:
    return Stream(spark, broker.bootstrap, tmp_path)


def test_all_that_is_there_and_then_only_what_is_new(
    stream: Stream, broker: AnyBroker, produce: Send, consume: Stored, create_topic: CreateTopic
) -> None:
    """And the group shows how far the query is."""
    topic = create_topic(partitions=2)
    options = {"subscribe": topic, "includeHeaders": True, "kafka.group.id": topic}
    produce(topic, [{"key": b"%d" % each, "value": b"%d" % each, "headers": [("h", b"x")]} for each in range(50)])
    stream.run(**options)
    assert stream.records == consume(topic)
    assert _lag(broker, topic) == 0
    produce(topic, numbers(*range(30)), compression_type="zstd")
    assert _lag(broker, topic) == 30
    stream.run(**options)
    assert stream.records == consume(topic)
    assert _lag(broker, topic) == 0
    assert stream.run(**options).lastProgress["numInputRows"] == 0


def test_the_most_for_one_batch(stream: Stream, produce: Send, create_topic: CreateTopic) -> None:
    """Large and small partitions get their shares."""
    topic = create_topic(partitions=2)
    produce(topic, numbers(*range(90), partition=0))
    produce(topic, numbers(*range(90, 100), partition=1))
    query = stream.run(subscribe=topic, maxOffsetsPerTrigger=20)
    assert [each["numInputRows"] for each in query.recentProgress][:5] == [20] * 5
    assert stream.stream_offsets(0)["offsets"] == {topic: {"0": 18, "1": 2}}
    assert stream.values == list(range(100))
    latest = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"])
    assert latest["offsets"] == {topic: {"0": 90, "1": 10}}


def test_a_batch_that_runs_again_has_the_tasks_it_had(stream: Stream, produce: Send, create_topic: CreateTopic) -> None:
    """Also if the start would be another by now, and if it would be cut otherwise."""
    topic = create_topic(partitions=2)
    produce(topic, numbers(*range(20), partition=0))
    produce(topic, numbers(*range(20, 50), partition=1))
    stream.run(subscribe=topic, minPartitions=4)
    assert stream.stream_offsets(0)["cuts"] == {topic: {"0": [0, 10, 20], "1": [0, 15, 30]}}
    again = stream.forget_last_commit()
    produce(topic, numbers(*range(50, 60), partition=0))
    query = stream.run(subscribe=topic, startingOffsets="latest", minPartitions=1)
    assert again == 0
    assert query.recentProgress[0]["numInputRows"] == 50
    assert stream.values == list(range(60))


def test_new_partitions_and_topics_are_read_from_their_beginning(
    stream: Stream, broker: AnyBroker, produce: Send, create_topic: CreateTopic, topic: str
) -> None:
    first = create_topic()
    query = stream.start(subscribePattern=f"{topic}-.*", startingOffsets="latest")
    while not query.recentProgress:
        assert query.isActive, query.exception()
        time.sleep(0.05)
    produce(first, numbers(*range(5)))
    stream.wait_for(query, 5)
    admin = confluent.admin(broker.bootstrap)
    admin.create_partitions([NewPartitions(first, 2)])[first].result()
    produce(first, numbers(*range(5, 10), partition=1))
    produce(create_topic(), numbers(*range(10, 15)))
    stream.wait_for(query, 15)
    query.stop()
    assert stream.values == list(range(15))


def test_records_that_were_deleted(stream: Stream, raw: RawClient, produce: Send, create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(topic, numbers(*range(10)))
    stream.run(subscribe=topic, maxOffsetsPerTrigger=5)
    stream.forget_last_commit()
    raw.delete_records(topic, 7)
    with pytest.raises(Exception, match=rf"{topic}-0 \[5, 7\) was deleted: the log start offset is 7.*failOnDataLoss"):
        stream.run(subscribe=topic)
    stream.run(subscribe=topic, failOnDataLoss=False)
    assert stream.values == [0, 1, 2, 3, 4, 7, 8, 9]


def test_a_query_with_other_topics_says_so_first(stream: Stream, produce: Send, create_topic: CreateTopic) -> None:
    """Its sentence, as anybody sees it who waits for the query: no traceback of Python comes before it."""
    orders, payments = create_topic(), create_topic()
    produce(orders, numbers(1))
    stream.run(subscribe=orders)
    with pytest.raises(Exception, match=f"the checkpoint is for {orders}, the query reads {payments}") as failed:
        stream.run(subscribe=payments)
    first = str(failed.value).partition("JVM stacktrace")[0]
    assert "Traceback" not in first
    assert "failOnDataLoss" not in first
    assert root_cause(str(failed.value)).startswith("the checkpoint is for ")


def test_it_names_what_is_wrong(stream: Stream, topic: str) -> None:
    for options, words in (
        ({"subscribe": topic}, f"the topic {topic} does not exist"),
        (
            {"subscribe": topic, "maxOffsetPerTrigger": 5, "endingOffsets": "latest"},
            "did you mean maxOffsetsPerTrigger",
        ),
    ):
        with pytest.raises(Exception, match=words) as failed:
            stream.run(**options)
        assert "Traceback" not in str(failed.value)


def _lag(broker: AnyBroker, group: str) -> int:
    (found,) = json.loads(succeed(runner(broker.bootstrap)("group", "describe", group, "-o", "json")))
    return int(found["lag"])


def test_values_are_decoded_and_what_does_not_fit_is_put_aside(
    spark: Any, broker: AnyBroker, produce: Send, consume: Stored, create_topic: CreateTopic, tmp_path: Path
) -> None:
    topic, letters = create_topic(partitions=2), create_topic()
    good = [{"value": b'{"id": %d, "name": "n%d"}' % (each, each), "key": b"k"} for each in range(100)]
    produce(topic, [*good, {"value": b"no JSON", "key": b"bad", "headers": [("h", b"1")]}])
    reader = spark.readStream.format("moldau").schema("id long, name string").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap).option("startingOffsets", "earliest")
    rows: list[Any] = []

    def run(**options: str) -> None:
        writer = reader.option("decode", "json").options(**options).load().writeStream
        writer = writer.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS), "the query does not end"

    with pytest.raises(Exception, match=rf"the record at offset \d+ of {topic}-[01] does not match the schema"):
        run()
    run(deadLetters=letters)
    assert sorted((row["id"], row["name"]) for row in rows) == [(each, f"n{each}") for each in range(100)]
    (letter,) = consume(letters)
    assert (letter.key, letter.value, letter.headers[0]) == (b"bad", b"no JSON", ("h", b"1"))
    assert ("moldau.topic", topic.encode()) in letter.headers
