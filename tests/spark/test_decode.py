"""`option("decode", "json")` in a real Spark: typed columns; mismatches go to a topic or fail the query."""

import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import Record

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

Send = Callable[..., None]
Stored = Callable[..., list[Record]]

SCHEMA = """
    id bigint, name string, price decimal(9,2), ratio double, small tinyint, ok boolean, raw binary, day date,
    at timestamp, local timestamp_ntz, tags array<string>, who struct<age: int, next: struct<x: float>>,
    counts map<string, int>
"""
WHOLE = {
    "id": 7,
    "name": "č",
    "price": 12.5,
    "ratio": 1,
    "small": -128,
    "ok": True,
    "raw": "YWI=",
    "day": "2026-11-16",
    "at": "2026-11-16T10:00:00.123456+02:00",
    "local": "2026-11-16T10:00:00",
    "tags": ["a", None],
    "who": {"age": 5, "next": {"x": 0.5}},
    "counts": {"a": 1},
    "more": [],
}
LINE = {field: WHOLE[field] for field in ("id", "name", "at", "tags", "who")}
ORDERS = "id bigint not null, name string, at timestamp, tags array<string>, who struct<age: int>"


def reader(source: Any, broker: AnyBroker, topic: str, schema: str, **options: str) -> Any:
    source = source.format("moldau").schema(schema).option("kafka.bootstrap.servers", broker.bootstrap)
    return source.options(subscribe=topic, decode="json", **options)


def as_value(document: object) -> dict[str, bytes]:
    return {"value": json.dumps(document).encode()}


def test_values_become_typed_columns(spark: Any, broker: AnyBroker, produce: Send, create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(topic, [as_value(WHOLE), as_value({})])
    frame = reader(spark.read, broker, topic, SCHEMA).load()
    full, empty = (row.asDict(recursive=True) for row in frame.orderBy("id", ascending=False).collect())
    assert set(empty.values()) == {None}
    at = full.pop("at")
    assert at.timestamp() == datetime.fromisoformat(str(WHOLE["at"])).timestamp()
    assert {**full, "raw": bytes(full["raw"])} == {
        "id": 7,
        "name": "č",
        "price": Decimal("12.50"),
        "ratio": 1.0,
        "small": -128,
        "ok": True,
        "raw": b"ab",
        "day": date(2026, 11, 16),
        "local": datetime(2026, 11, 16, 10),
        "tags": ["a", None],
        "who": {"age": 5, "next": {"x": 0.5}},
        "counts": {"a": 1},
    }


def test_misfits_go_to_their_topic_and_the_others_through_the_query(
    spark: Any,
    broker: AnyBroker,
    produce: Send,
    consume: Stored,
    create_topic: CreateTopic,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    topic, dead = create_topic(partitions=2), create_topic()

    def run() -> list[int]:
        stream = reader(spark.readStream, broker, topic, ORDERS, deadLetters=dead, startingOffsets="earliest").load()
        writer = stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.format("parquet").start(str(tmp_path / "out")).awaitTermination(120)
        return sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "out")).collect())

    produce(topic, [{**as_value({**LINE, "id": number}), "partition": number % 2} for number in range(2000)])
    assert run() == list(range(2000))
    misfits = [
        {"key": b"k", "value": b"?", "headers": [("h", b"x")], "timestamp": 1_700_000_000_000, "partition": 0},
        {"value": json.dumps({**LINE, "id": None}).encode(), "partition": 1},
        {"value": None, "key": b"gone", "partition": 1},
    ]
    more = [{**as_value({**LINE, "id": number}), "partition": number % 2} for number in range(2000, 4000)]
    produce(topic, [*more[:1000], *misfits, *more[1000:]])
    assert run() == list(range(4000))
    found = {each.value: each for each in consume(dead)}
    assert set(found) == {each["value"] for each in misfits}
    letter = found[b"?"]
    assert (letter.key, letter.timestamp_ms) == (b"k", 1_700_000_000_000)
    assert list(letter.headers or ()) == [
        ("h", b"x"),
        ("moldau.reason", b"not JSON: expecting value at character 0"),
        ("moldau.topic", topic.encode()),
        ("moldau.partition", b"0"),
        ("moldau.offset", b"1500"),
        ("moldau.timestamp", b"1700000000000"),
    ]
    reasons = {dict(each.headers or ())["moldau.reason"] for each in found.values()}
    assert {b"no value", b"id: it must not be missing or null"} < reasons


def test_decoded_values_beside_the_columns_of_their_records(
    spark: Any, broker: AnyBroker, produce: Send, create_topic: CreateTopic, checkpoint: str, tmp_path: Path
) -> None:
    topic = create_topic()
    document = {"id": 7, "at": "2026-11-16T10:00:00Z", "offset": "of the document"}
    headers, told = [("trace", b"x")], {"key": b"k", "timestamp": 1_700_000_000_123}
    produce(topic, [{**as_value(document), **told, "headers": headers}, {"key": b"gone", "value": None}])
    source = spark.readStream.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap)
    source = source.options(subscribe=topic, decode="json", includeHeaders=True, startingOffsets="earliest")
    frame = source.option("valueSchema", "id bigint not null, at timestamp, offset string").load()
    writer = frame.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.format("parquet").start(str(tmp_path / "out")).awaitTermination(300)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").selectExpr("*", "unix_millis(timestamp) AS ms")
    full, empty = (row.asDict(recursive=True) for row in rows.collect())
    assert (full["value"]["id"], full["value"]["offset"]) == (7, "of the document")
    assert (bytes(full["key"]), full["topic"], full["partition"], full["offset"]) == (b"k", topic, 0, 0)
    assert (full["ms"], full["timestampType"]) == (1_700_000_000_123, 0)
    assert [(each["key"], bytes(each["value"])) for each in full["headers"]] == headers
    assert (empty["value"], bytes(empty["key"]), empty["headers"], empty["offset"]) == (None, b"gone", None, 1)


def test_schemas_that_would_be_null_in_silence_are_refused(
    spark: Any, broker: AnyBroker, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    with pytest.raises(Exception, match=r'and offset would be null .* by option\("valueSchema"'):
        reader(spark.read, broker, topic, "id int, offset bigint").load().collect()
    source = spark.read.format("moldau").options(subscribe=topic, decode="json")
    with pytest.raises(Exception, match="or the option valueSchema for rows with the record's columns"):
        source.load()


def test_a_misfit_ends_a_query_that_has_no_topic_for_it(
    spark: Any, broker: AnyBroker, produce: Send, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(topic, [as_value({"id": 1}), as_value({"id": 1.5})])
    with pytest.raises(Exception, match=rf"offset 1 of {topic}-0 does not match the schema: id: 1\.5 is not a whole"):
        reader(spark.read, broker, topic, "id int").load().collect()


def test_columns_that_no_json_has_are_refused(spark: Any, broker: AnyBroker, create_topic: CreateTopic) -> None:
    with pytest.raises(Exception, match="decode=json cannot fill the schema: id: JSON has no maps"):
        reader(spark.read, broker, create_topic(), "id map<int, int>").load().collect()
