"""`decode` and `encode` with Avro in a real Spark, with schemas of a registry over HTTP."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import Record

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")
pytest.importorskip("fastavro", reason="needs fastavro: pip install '.[spark]'")

from moldau.spark.value_formats import READER_ID
from support.spark.registry import SmallRegistry, avro, small_registry

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "currency", "type": "string", "default": "CZK"},
    ],
}
AT_MS = 1_700_000_000_123


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as found:
        yield found


def test_from_avro_to_avro(
    spark: Any,
    broker: AnyBroker,
    registry: SmallRegistry,
    produce: Callable[..., None],
    consume: Callable[..., list[Record]],
    create_topic: CreateTopic,
    checkpoint: str,
) -> None:
    """Columns of the latest version, old values with its defaults, dead letters, and exactly once back to Avro."""
    topic, dead, target = create_topic(), create_topic(), create_topic()
    old, new = registry.register(f"{topic}-value", V1), registry.register(f"{topic}-value", V2)
    good = avro(new, V2, {"id": 2, "at": AT_MS, "currency": "EUR"})
    values = [avro(old, V1, {"id": 1}), good, b"?", None, b"\0\0\0\x03\xe7"]
    produce(topic, [{"key": b"k", "value": value, "headers": [("h", b"x")]} for value in values])
    where = {"kafka.bootstrap.servers": broker.bootstrap, "schema.registry.url": registry.url}
    source = {"subscribe": topic, "decode": "avro", "deadLetters": dead, "includeHeaders": "true"}

    whole = spark.read.format("moldau").options(**where, **source).load()
    assert whole.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert [each.metadata for each in whole.schema["value"].dataType] == [{READER_ID: new}] * 3
    rows = whole.selectExpr("offset", "value.*", "unix_millis(value.at) AS ms", "headers[0].key AS h").collect()
    found = [(row["offset"], row["id"], row["ms"], row["currency"], row["h"]) for row in rows]
    assert found == [(0, 1, None, "CZK", "h"), (1, 2, AT_MS, "EUR", "h"), (3, None, None, None, "h")]

    flat = spark.read.format("moldau").options(**where, subscribe=topic, decode="avro", deadLetters=dead)
    assert [row["id"] for row in flat.schema("id bigint").load().collect()] == [1, 2]

    stream = spark.readStream.format("moldau").options(**where, **source, startingOffsets="earliest").load()
    writer = stream.selectExpr("key", "value").writeStream.format("moldau").options(**where, topic=target)
    writer = writer.options(encode="avro", delivery="exactly-once", checkpointLocation=checkpoint)
    writer = writer.option("use.schema.id", new).trigger(availableNow=True)
    assert writer.start().awaitTermination(300)
    first = avro(new, V2, {"id": 1, "at": None, "currency": "CZK"})
    assert [record.value for record in consume(target)] == [first, good, None]
    reasons = {dict(each.headers)["moldau.reason"] for each in consume(dead)}
    assert b"schema 999 is not in the registry" in reasons


def test_what_a_user_is_told(spark: Any, broker: AnyBroker, registry: SmallRegistry, create_topic: CreateTopic) -> None:
    topic = create_topic()
    source = spark.read.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    with pytest.raises(Exception, match="decode=avro needs a schema registry"):
        source.option("decode", "avro").load()
    with pytest.raises(Exception, match=rf"returned 404 for /subjects/{topic}-value/versions/latest: Subject not"):
        source.option("schema.registry.url", registry.url).load()
    registry.register(f"{topic}-value", V1)
    where = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "schema.registry.url": registry.url}
    frame = spark.sql("SELECT named_struct('id', 1L, 'price', 2.5) AS value")
    with pytest.raises(Exception, match="schema 1 has no field price, which the rows have in value"):
        frame.write.format("moldau").options(**where, encode="avro").mode("append").save()
    with pytest.raises(Exception, match="the column value must be a struct with encode=avro, not string"):
        spark.sql("SELECT 'x' AS value").write.format("moldau").options(**where, encode="avro").mode("append").save()
