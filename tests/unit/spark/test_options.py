"""Options for reading and writing: what they become, and every way to get them wrong."""

import pickle
import time
from typing import Any

import pytest

from moldau.base.ids import TopicPartition
from moldau.base.settings import SettingsRefused
from moldau.spark.offsets import (
    EARLIEST,
    LATEST,
    Assign,
    GlobalOffset,
    GlobalTimestamp,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
)
from moldau.spark.option_tables import READ, WRITE, time_ms
from moldau.spark.options import ReadOptions, WriteOptions, read_options, write_options

REGISTRY = {"schema.registry.url": "http://localhost:8081"}
SERVER = {"kafka.bootstrap.servers": "localhost:9092"}


def row_reader(stream: bool = False, /, **more: str) -> ReadOptions:
    return read_options({**SERVER, "subscribe": "orders", **more}, stream=stream)


def refused(call: Any, *arguments: Any, **options: Any) -> list[str]:
    with pytest.raises(SettingsRefused) as caught:
        call(*arguments, **options)
    return [problem.message for problem in caught.value.problems]


def test_what_spark_takes_for_granted() -> None:
    batch = row_reader()
    assert (batch.start, batch.end) == (GlobalOffset(EARLIEST), GlobalOffset(LATEST))
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    stream = row_reader(True)
    assert (stream.start, stream.end) == (GlobalOffset(LATEST), None)
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert stream.connection.bootstrap == (("localhost", 9092),)
    assert stream.group_id is None


def test_names_in_any_case_as_spark_hands_them_over() -> None:
    options = {
        "kafka.bootstrap.servers": "a:1, [::1]:2,SSL://b.example:3",
        "SUBSCRIBE": " orders , payments,orders,",
        "startingoffsets": "EARLIEST",
        "INCLUDEHEADERS": "TRUE",
        "failondataloss": "False",
        "MinPartitions": "8",
        "maxRecordsPerPartition": "1000",
        "minoffsetspertrigger": "5",
        "maxoffsetspertrigger": "10",
        "maxTriggerDelay": "30s",
        "kafka.group.id": "report",
        "Kafka.Isolation.Level": "READ_COMMITTED",
        "kafka.fetch.max.bytes": "2048",
        "kafka.check.crcs": "false",
        "kafka.session.timeout.ms": "1000",
        "decode": "JSON",
        "valueschema": "id bigint",
        "deadLetters": "bad",
        "delivery": "Exactly-Once",
        "checkpointLocation": "/somewhere",
    }
    found = read_options(options, stream=True)
    assert found.topics == Subscribe(("orders", "payments"))
    assert found.start == GlobalOffset(EARLIEST)
    assert found.include_headers
    assert not found.fail_on_data_loss
    assert (found.min_partitions, found.max_records_per_partition) == (8, 1000)
    assert (found.min_offsets_per_trigger, found.max_offsets_per_trigger) == (5, 10)
    assert found.max_trigger_delay_ms == 30_000
    assert found.group_id == "report"
    assert found.fetching.read_committed
    assert found.fetching.max_bytes == 2048
    assert not found.fetching.check_crcs
    assert (found.decode, found.value_schema) == ("json", "id bigint")
    assert (found.dead_letters, found.dead_letters_once) == ("bad", True)
    assert found.connection.bootstrap == (("a", 1), ("::1", 2), ("b.example", 3))
    assert found.without_effect == ("kafka.session.timeout.ms",)
    assert pickle.loads(pickle.dumps(found)) == found, "readers travel to Python workers"


def test_which_topics() -> None:
    pattern = read_options({**SERVER, "subscribePattern": "orders-."}, stream=True).topics
    assert isinstance(pattern, SubscribePattern)
    assert pattern.matches("orders-1")
    assert pattern.matches("my-orders-1-eu"), "anywhere in the name, as Spark's source has it"
    assert not SubscribePattern("^orders-.$").matches("my-orders-1")
    assigned = read_options({**SERVER, "assign": '{"b": [1, 0], "a": [2]}'}, stream=False).topics
    assert assigned == Assign((TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1)))


def test_where_to_start_and_end() -> None:
    found = row_reader(startingOffsets='{"orders": {"0": 5, "1": -2}}', endingOffsets='{"orders": {"0": 9, "1": -1}}')
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert found.start == SpecificOffsets({first: 5, second: EARLIEST})
    assert found.end == SpecificOffsets({first: 9, second: LATEST})
    assert row_reader(startingTimestamp=" 1000 ").start == GlobalTimestamp(1000)
    assert row_reader(endingTimestamp="2000").end == GlobalTimestamp(2000)
    assert row_reader(startingTimestamp="2026-01-31T12:00:00Z").start == GlobalTimestamp(1_769_860_800_000)
    before = time.time_ns() // 1_000_000
    ago = row_reader(startingTimestamp="10m ago").start
    assert isinstance(ago, GlobalTimestamp)
    assert before - 600_000 <= ago.ms <= time.time_ns() // 1_000_000 - 600_000
    found = row_reader(startingOffsetsByTimestamp='{"orders": {"0": 1}}', startingOffsetsByTimestampStrategy="LATEST")
    assert found.start == SpecificTimestamps({first: 1})
    assert found.when_too_late == "latest"
    assert row_reader(True, startingOffsets='{"orders": {"0": -1}}').start == SpecificOffsets({first: LATEST})


def test_which_start_wins_is_as_spark_documents() -> None:
    by_time = '{"orders": {"0": 7}}'
    all_three = {"startingTimestamp": "1", "startingOffsetsByTimestamp": by_time, "startingOffsets": "latest"}
    assert row_reader(**all_three).start == GlobalTimestamp(1)
    del all_three["startingTimestamp"]
    assert row_reader(**all_three).start == SpecificTimestamps({TopicPartition("orders", 0): 7})


def test_rates_of_streams_mean_nothing_to_a_batch() -> None:
    found = row_reader(maxOffsetsPerTrigger="5", maxTriggerDelay="1m")
    assert found.max_offsets_per_trigger is None
    assert found.without_effect == ("maxOffsetsPerTrigger", "maxTriggerDelay")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"subscribe": " , "}, "subscribe must name at least one topic"),
        ({"subscribe": "or ders"}, "subscribe must name topics of"),
        ({"subscribe": "."}, "subscribe must name topics of"),
        ({"subscribe": "x" * 250}, "subscribe must name topics of"),
        ({"assign": '{"orders":[0]}'}, "only one of them can be, got subscribe and assign"),
        ({"startingOffsets": "newest"}, 'startingOffsets must be earliest, latest, or like {"orders":{"0":23,"1":-1}}'),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest (-1) in a batch query"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets cannot be latest (-1) in a batch query"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "startingOffsets must be"),
        ({"startingOffsets": '{"orders":{"0":1.5}}'}, "startingOffsets must be"),
        ({"startingOffsets": '{"orders":{"0":true}}'}, "startingOffsets must be"),
        ({"startingOffsets": '{"orders":{"0":9223372036854775808}}'}, "startingOffsets must be"),
        ({"startingOffsets": '{"orders":{"x":1}}'}, "startingOffsets must be"),
        ({"startingOffsets": '{"orders":{"-1":1}}'}, "startingOffsets must be"),
        ({"startingOffsets": '{"orders":[1]}'}, "startingOffsets must be"),
        ({"startingOffsets": "[1]"}, "startingOffsets must be"),
        ({"startingOffsets": "{"}, "startingOffsets must be"),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets must be"),
        ({"startingOffsets": "{}"}, "startingOffsets must name at least one partition"),
        ({"startingOffsets": '{"or ders":{"0":1}}'}, "startingOffsets must name topics of"),
        ({"startingOffsets": '{"orders":{"0":1,"0":2}}'}, "startingOffsets names 0 twice"),
        ({"startingOffsets": '{"orders":{"0":1,"00":2}}'}, "startingOffsets names partition 0 of orders twice"),
        ({"startingOffsets": '{"other":{"0":1}}'}, "startingOffsets names the topic other, which subscribe does not"),
        ({"startingOffsets": '{"other":{"0":1}}'}, "startingOffsets lacks the topic orders, which subscribe names"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest (-2) in a batch query"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "endingOffsets cannot be earliest (-2) in a batch query"),
        ({"startingTimestamp": "-1"}, "milliseconds since 1970, got '-1'"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be an ISO 8601 time such as"),
        ({"startingTimestamp": "9" * 19}, "startingTimestamp must be an ISO 8601 time such as"),
        ({"startingTimestamp": "9" * 9999}, "startingTimestamp must be an ISO 8601 time such as"),
        ({"endingTimestamp": ""}, "endingTimestamp must be an ISO 8601 time such as"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "startingOffsetsByTimestamp must be milliseconds"),
        ({"endingOffsetsByTimestamp": "latest"}, "endingOffsetsByTimestamp must be milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "must be one of error, latest, got 'earliest'"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "the start (2) is later than the end (1)"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false, got 'maybe'"),
        ({"includeHeaders": "1"}, "includeHeaders must be true or false, got '1'"),
        ({"minPartitions": "0"}, "minPartitions must be at least 1, got 0"),
        ({"minPartitions": "many"}, "minPartitions must be a plain whole number"),
        ({"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition must be at least 1, got -5"),
        ({"maxOffsetsPerTrigger": "10k"}, "maxOffsetsPerTrigger must be a plain whole number, got 10k"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be at least 1"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "(9) must not be more than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as 500ms, 30s, 15m or 2h, got 'soon'"),
        ({"partition.metadata.cache.ttl.ms": "0"}, "partition.metadata.cache.ttl.ms must be between 1 and"),
        ({"decode": "xml"}, "decode must be one of json, avro, protobuf, json-schema, got 'xml'"),
        ({"decode": "Protobuf"}, "decode cannot be protobuf in this version, which has no decoder for it; leave"),
        ({"decode": "avro"}, "schema.registry.url must be set: decode=avro needs a schema registry, such as http"),
        ({"decode": "avro", **REGISTRY, "use.schema.id": "1"}, "use.schema.id is an option for writing, not for"),
        ({"decode": "json", **REGISTRY}, "schema.registry.url has no effect with decode=json"),
        (REGISTRY, "schema.registry.url has no effect without decode"),
        ({"schema.registry.url": "localhost"}, "schema.registry.url must be an address such as http://localhost:8081"),
        ({"valueSchema": "id int"}, "valueSchema needs decode"),
        ({"decode": "json", "includeHeaders": "true"}, "includeHeaders needs valueSchema with decode"),
        ({"delivery": "exactly-once"}, "delivery has no effect without deadLetters when reading"),
        (
            {"decode": "json", "deadLetters": "bad", "delivery": "exactly-once"},
            "delivery cannot be exactly-once in a batch query",
        ),
        ({"deadLetters": "bad"}, "deadLetters needs decode"),
        ({"decode": "json", "deadLetters": "b a d"}, "deadLetters must be the name of one topic"),
        (
            {"decode": "json", "deadLetters": "orders"},
            "deadLetters must not be a topic that the query reads, got orders",
        ),
        ({"startingOffset": "latest"}, "startingOffset is not an option for reading; did you mean startingOffsets?"),
        (
            {"starting_offsets": "latest"},
            "starting_offsets is not an option for reading; did you mean startingOffsets?",
        ),
        ({"bootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"xyzzy": "1"}, "xyzzy is not an option for reading; there are: subscribe,"),
        ({"topic": "orders"}, "topic is an option for writing, not for reading"),
        ({"path": "orders"}, "a path has no meaning here: name topics with subscribe or subscribePattern or assign"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers must be set, such as localhost:9092"),
        ({"kafka.bootstrap.servers": "localhost"}, "kafka.bootstrap.servers must be host:port with commas"),
        ({"kafka.bootstrap.servers": "localhost:0"}, "kafka.bootstrap.servers must be host:port with commas"),
        ({"kafka.bootstrap.servers": "a:1,b:99999"}, "got 'b:99999'"),
        ({"kafka.bootstrap.servers": ":9092"}, "kafka.bootstrap.servers must be host:port with commas"),
        ({"kafka.bootstrap.servers": "http://a/b:1"}, "kafka.bootstrap.servers must be host:port with commas"),
    ],
)
def test_what_is_wrong_with_reading(more: dict[str, str], said: str) -> None:
    assert any(said in message for message in refused(row_reader, **more)), refused(row_reader, **more)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert f"{name} is for batch queries" in refused(row_reader, True, **{name: "latest"})[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of subscribe, subscribePattern, assign must be set to say what to read; none of them is"),
        ({"subscribePattern": " "}, "subscribePattern must be a regular expression, got nothing"),
        ({"subscribePattern": "a("}, "subscribePattern must be a regular expression, got 'a(': missing )"),
        (
            {"subscribePattern": "a.*", "decode": "json", "deadLetters": "ab"},
            "must not be a topic that the query reads",
        ),
        ({"assign": "orders"}, "assign must be {\"orders\":[0,1]}, got 'orders'"),
        ({"assign": '{"orders":0}'}, 'assign must be {"orders":[0,1]}'),
        ({"assign": '{"orders":["0"]}'}, 'assign must be {"orders":[0,1]}'),
        ({"assign": '{"orders":[-1]}'}, 'assign must be {"orders":[0,1]}'),
        ({"assign": '{"orders":[2147483648]}'}, 'assign must be {"orders":[0,1]}'),
        ({"assign": '{"orders":[0],"orders":[1]}'}, "assign names orders twice"),
        ({"assign": '{"o/o":[0]}'}, "assign must name topics of"),
        ({"assign": "{}"}, "assign must name at least one partition"),
        ({"assign": '{"orders":[]}'}, "assign must name at least one partition"),
        ({"assign": '{"a":[0]}', "decode": "json", "deadLetters": "a"}, "must not be a topic that the query reads"),
        (
            {"assign": '{"orders":[0,1]}', "startingOffsets": '{"orders":{"0":1}}'},
            "startingOffsets must name every partition that is read; it lacks orders-1",
        ),
        (
            {"assign": '{"orders":[0]}', "endingOffsets": '{"orders":{"0":1,"7":2}}'},
            "endingOffsets names orders-7, which the query does not read",
        ),
    ],
)
def test_what_is_wrong_with_the_topics(options: dict[str, str], said: str) -> None:
    messages = refused(read_options, {**SERVER, **options}, stream=False)
    assert any(said in message for message in messages), messages


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ('{"orders":{"0":9}}', '{"orders":{"0":8}}', "the start of orders-0 (9) is after its end (8)"),
        ('{"orders":{"0":1}}', '{"orders":{"0":2,"1":2}}', "must name the same partitions; they differ in orders-1"),
    ],
)
@pytest.mark.parametrize("kind", ["Offsets", "OffsetsByTimestamp"])
def test_a_start_behind_the_end(start: str, end: str, said: str, kind: str) -> None:
    assert said in refused(row_reader, **{f"starting{kind}": start, f"ending{kind}": end})[0]


def test_everything_wrong_is_said_at_once() -> None:
    messages = refused(read_options, {"minPartitions": "0", "Xyzzy": "1", "kafka.retrys": "3"}, stream=False)
    assert len(messages) == 5, messages


def writing(**more: str) -> WriteOptions:
    return write_options({**SERVER, **more})


def test_writing() -> None:
    plain = writing()
    assert (plain.topic, plain.exactly_once, plain.acks, plain.idempotent) == (None, False, -1, True)
    found = writing(TOPIC=" orders ", Delivery="Exactly-Once", sinkname="main.1", checkpointLocation="/x")
    assert (found.topic, found.exactly_once, found.sink_name) == ("orders", True, "main.1")
    tuned = writing(
        **{"kafka.acks": "1", "kafka.compression.type": "ZSTD", "kafka.batch.size": "9", "kafka.linger.ms": "5"}
    )
    assert (tuned.acks, tuned.compression, tuned.batch_bytes) == (1, "zstd", 9)
    assert not tuned.idempotent, "as in Java's producer"
    assert tuned.without_effect == ("kafka.linger.ms",)
    assert pickle.loads(pickle.dumps(found)) == found, "writers travel to Python workers"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"topic": ""}, "topic must be the name of one topic"),
        ({"topic": "a,b"}, "topic must be the name of one topic"),
        ({"tpoic": "a"}, "tpoic is not an option for writing; did you mean topic?"),
        ({"subscribe": "a"}, "subscribe is an option for reading, not for writing"),
        ({"path": "a"}, "a path has no meaning here: name topics with topic"),
        ({"delivery": "at-most-once"}, "delivery must be one of at-least-once, exactly-once, got 'at-most-once'"),
        ({"encode": "json-schema"}, "encode cannot be json-schema in this version, which has no encoder for it; make"),
        ({"encode": "avro"}, "schema.registry.url must be set: encode=avro needs a schema registry, such as http"),
        ({"encode": "avro", **REGISTRY}, "valueSubject or use.schema.id must be set with encode when rows name the"),
        (
            {"encode": "avro", **REGISTRY, "topic": "a", "delivery": "exactly-once"},
            "use.schema.id must be set with delivery=exactly-once",
        ),
        ({"encode": "avro", **REGISTRY, "use.schema.id": "0"}, "use.schema.id must be at least 1"),
        ({"encode": "json"}, "make the column value with to_json(struct(...))"),
        (REGISTRY, "schema.registry.url has no effect without encode"),
        ({"sinkName": "a b"}, "sinkName must be up to 100 letters"),
        ({"sinkName": ""}, "sinkName must be up to 100 letters"),
        ({"delivery": "exactly-once", "kafka.acks": "1"}, "kafka.acks must be all with delivery=exactly-once, got 1"),
        ({"delivery": "exactly-once", "kafka.enable.idempotence": "false"}, "must be true with delivery=exactly-once"),
        (
            {"kafka.enable.idempotence": "true", "kafka.acks": "0"},
            "kafka.enable.idempotence needs kafka.acks=all, got 0",
        ),
        ({"kafka.acks": "2"}, "kafka.acks must be one of all, -1, 0, 1, got '2'"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type must be one of none, gzip"),
    ],
)
def test_what_is_wrong_with_writing(more: dict[str, str], said: str) -> None:
    assert any(said in message for message in refused(writing, **more)), refused(writing, **more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("15m", 900_000), ("1min", 60_000), (" 2H ", 7_200_000), ("1d", 86_400_000), ("5", 5), ("0ms", 0)]
    + [(bad, None) for bad in ("", "m", "-1s", "1.5s", "1 s", "1w", "9" * 13)],
)
def test_times(text: str, expected: int | None) -> None:
    assert time_ms(text) == expected


def test_every_option_says_what_it_does() -> None:
    for setting in (*READ, *WRITE):
        assert setting.doc.endswith("."), setting.name
