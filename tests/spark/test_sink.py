"""Writing with format("moldau"): what confluent-kafka reads afterwards, and what is refused before a row is written."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients.confluent import Record, write

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

Consume = Callable[..., list[Record]]
HEADERS = "array(named_struct('key', 'trace', 'value', binary(string(id))), named_struct('key', 'no', 'value', null))"


def options(broker: AnyBroker, **more: object) -> dict[str, str]:
    given = {name.replace("__", "."): str(value) for name, value in more.items()}
    return {"kafka.bootstrap.servers": broker.bootstrap} | given


def save(frame: Any, broker: AnyBroker, **more: object) -> None:
    frame.write.format("moldau").options(**options(broker, **more)).mode("append").save()


def refused(frame: Any, broker: AnyBroker, **more: object) -> str:
    with pytest.raises(Exception, match=r"\S") as caught:
        save(frame, broker, **more)
    return str(caught.value)


def test_every_column_arrives(spark: Any, broker: AnyBroker, create_topic: CreateTopic, consume: Consume) -> None:
    topics = [create_topic(partitions=4), create_topic(partitions=4)]
    frame = spark.range(200).selectExpr(
        f"if(id < 100, '{topics[0]}', '{topics[1]}') as topic",
        "if(id % 10 = 0, null, concat('k', id)) as key",
        "if(id % 7 = 0, null, concat('ü', id)) as value",
        f"if(id % 2 = 0, {HEADERS}, null) as headers",
        "if(id % 3 = 0, 3, null) as partition",
        "id as ignored",
    )
    save(frame, broker)
    records = consume(*topics)
    assert len(records) == 200
    assert sum(record.value is None for record in records) == len(range(0, 200, 7)), "null is a tombstone"
    for record in records:
        if record.value is None:
            continue
        number = int(record.value.decode().removeprefix("ü"))
        assert record.topic == topics[number >= 100]
        assert record.key == (None if number % 10 == 0 else f"k{number}".encode())
        assert record.headers == ((("trace", str(number).encode()), ("no", None)) if number % 2 == 0 else ())
        assert number % 3 or record.partition == 3


def test_keys_go_where_java_sends_them(
    spark: Any, broker: AnyBroker, create_topic: CreateTopic, consume: Consume
) -> None:
    ours, javas = create_topic(partitions=7), create_topic(partitions=7)
    save(spark.range(500).selectExpr("concat('key-', id) as key", "'v' as value"), broker, topic=ours)
    write(
        broker.bootstrap, javas, [{"key": f"key-{n}", "value": b"v"} for n in range(500)], partitioner="murmur2_random"
    )
    places: dict[bytes | None, set[int]] = defaultdict(set)
    for record in consume(ours, javas):
        places[record.key].add(record.partition)
    assert len(places) == 500
    assert all(len(partitions) == 1 for partitions in places.values())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(spark: Any, broker: AnyBroker, create_topic: CreateTopic, consume: Consume, codec: str) -> None:
    name = create_topic(partitions=2)
    save(
        spark.range(3000).selectExpr("cast(repeat(id, 20) as binary) as value"),
        broker,
        topic=name,
        kafka__compression__type=codec,
        kafka__batch__size=10_000,
        kafka__acks=1,
    )
    assert sorted(record.value or b"" for record in consume(name)) == sorted(f"{n}".encode() * 20 for n in range(3000))


def test_the_option_topic_wins_and_the_topic_comes_by_itself(
    spark: Any, broker: AnyBroker, topic: str, consume: Consume
) -> None:
    save(spark.range(5).selectExpr("'other' as topic", "string(id) as value"), broker, topic=topic)
    assert len(consume(topic)) == 5


def test_a_stream_writes_each_batch(
    spark: Any, broker: AnyBroker, create_topic: CreateTopic, consume: Consume, checkpoint: str, tmp_path: Path
) -> None:
    name = create_topic(partitions=2)
    (tmp_path / "in").mkdir()
    for batch in range(3):
        (tmp_path / "in" / f"{batch}.txt").write_text("\n".join(f"{batch}-{n}" for n in range(50)))
        query = (
            spark.readStream.text(str(tmp_path / "in"))
            .writeStream.format("moldau")
            .options(**options(broker, topic=name))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert {record.value for record in consume(name)} == {f"{b}-{n}".encode() for b in range(3) for n in range(50)}
    assert len(consume(name)) == 150


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["id as value"], "the column value must be string or binary, not bigint"),
        (["'k' as key"], "there must be a column value (string or binary); there are: key"),
        (["'v' as value", "1L as partition"], "the column partition must be int, not bigint"),
        (["'v' as value", "map('a', 'b') as headers"], "must be array<struct<key:string,value:binary>>, not map<"),
        (["'v' as value", "id as key"], "the column key must be string or binary, not bigint"),
    ],
)
def test_columns_that_do_not_fit(spark: Any, broker: AnyBroker, columns: list[str], says: str) -> None:
    assert says in refused(spark.range(1).selectExpr(*columns), broker, topic="t")


def test_somebody_must_say_where_to(spark: Any, broker: AnyBroker) -> None:
    frame = spark.range(1).selectExpr("string(id) as value")
    assert "the option topic or a column topic (string) must name the topic" in refused(frame, broker)
    nowhere = spark.range(1).selectExpr("string(id) as value", "string(null) as topic")
    assert "a row has null as its topic" in refused(nowhere, broker)
    assert "did you mean topic?" in refused(frame, broker, topik="t")


def test_rows_that_cannot_be_sent(spark: Any, broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2, configs={"max.message.bytes": "20000"})
    frame = spark.range(1).selectExpr("repeat('x', 30000) as value")
    assert "is larger than a request may be (max.request.size, 20000 bytes)" in refused(
        frame, broker, topic=name, kafka__max__request__size=20000
    )
    assert "a single record is larger than the topic's max.message.bytes" in refused(frame, broker, topic=name)
    save(spark.range(50).selectExpr("repeat('x', 1000) as value"), broker, topic=name)
    beyond = spark.range(1).selectExpr("'v' as value", "2 as partition")
    assert f"a row is for partition 2 of {name}, which has 2 (0 to 1)" in refused(beyond, broker, topic=name)
    nameless = spark.range(1).selectExpr(
        "'v' as value", "array(named_struct('key', string(null), 'value', binary('x'))) as headers"
    )
    assert "a header with null as its name" in refused(nameless, broker, topic=name)


def test_a_topic_that_nobody_creates(spark: Any, start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(auto_create_topics_enable=False)
    frame = spark.range(1).selectExpr("string(id) as value")
    assert f"cannot write to the topic {topic}" in refused(frame, broker, topic=topic)


def test_modes(spark: Any, broker: AnyBroker) -> None:
    writing = spark.range(1).selectExpr("'v' as value").write.format("moldau").options(**options(broker, topic="t"))
    with pytest.raises(Exception, match=r"records can only be appended to a topic\. Use mode append"):
        writing.mode("overwrite").save()
    with pytest.raises(Exception, match=r"Ignore"):
        writing.mode("ignore").save()
    counts = spark.readStream.format("rate").load().groupBy("value").count().selectExpr("string(count) AS value")
    stream = counts.writeStream.format("moldau").options(**options(broker, topic="totals"))
    with pytest.raises(
        Exception, match=r"Spark does not support it for Python sinks\. .* foreachBatch\(moldau\.spark\.sink"
    ):
        stream.outputMode("update").start()
    with pytest.raises(Exception, match=r"foreachBatch\(moldau\.spark\.sink"):
        stream.start(outputMode="update")
