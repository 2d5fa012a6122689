"""What `format("moldau")` reads is what confluent-kafka reads: every byte, header, timestamp and offset.

Records are generated; a batch and a stream of Spark are each compared with the other client. Both brokers' odd cases
are here too: gaps as compaction leaves them, transactions and their markers, records larger than a fetch.
"""

import os
import uuid
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.brokers.disk import partition_directory
from support.brokers.processes import AnyBroker, BrokerProcess, CreateTopic
from support.clients.confluent import Record, read, write
from support.clients.raw import RawClient
from support.log.batches import AFTER_CRC, CODECS, COMPRESS, PREFIX, Written, encode_record
from support.spark.rows import records, streamed, without_spark

PARTITIONS = 4  # the last of which stays empty
BIG = 3 << 20
FULL = bool(os.environ.get("MOLDAU_FULL"))
NOW_MS = 1_790_000_000_000

some_bytes = st.none() | st.binary(max_size=20)
longer = st.builds(lambda size, seed: Random(seed).randbytes(size), st.integers(60, 3000), st.integers(0, 2**32))
names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
header_lists = st.lists(st.tuples(names | st.just("twice"), some_bytes), max_size=3)
one_record = st.fixed_dictionaries(
    {
        "key": some_bytes,
        "value": some_bytes | longer,
        "headers": header_lists,
        "timestamp": st.integers(1, NOW_MS),
        "partition": st.integers(0, PARTITIONS - 2),
    }
)
several = settings(  # the first example is always the plainest there is, the next is by chance
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def everything(broker: AnyBroker, topic: str) -> dict[str, str]:
    where = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    return {**where, "startingOffsets": "earliest", "includeHeaders": "true"}


def batch(spark: Any, options: dict[str, str]) -> list[Record]:
    return records(spark.read.format("moldau").options(**options).load())


def stream(spark: Any, options: dict[str, str], checkpoint: str) -> list[Record]:
    return sorted(record for each in streamed(spark, options, checkpoint) for record in each)


@pytest.mark.parametrize("codec", CODECS)
@several
@given(written=st.lists(one_record, min_size=20, max_size=50))
def test_a_batch_of_whatever_was_written(
    spark: Any, broker: AnyBroker, codec: str, written: list[dict[str, Any]]
) -> None:
    topic = f"equal-{uuid.uuid4().hex[:12]}"
    with RawClient(broker.bootstrap) as client:
        client.create_topic(topic, PARTITIONS, {})
    write(broker.bootstrap, topic, written, compression_type=codec)
    expected = read(broker.bootstrap, topic)
    assert len(expected) == len(written)
    assert batch(spark, everything(broker, topic)) == expected


@pytest.mark.parametrize("codec", CODECS)
@settings(several, max_examples=100 if FULL else 12)
@given(
    written=st.lists(one_record, min_size=1, max_size=50),
    in_a_batch=st.sampled_from([1, 3, 1000]),
    pieces=st.sampled_from([1, 7, 50]),
)
def test_tasks_of_whatever_was_written(
    broker: AnyBroker, codec: str, written: list[dict[str, Any]], in_a_batch: int, pieces: int
) -> None:
    """Many small batches, few large ones, and tasks that begin and end in the midst of one."""
    topic = f"equal-{uuid.uuid4().hex[:12]}"
    with RawClient(broker.bootstrap) as client:
        client.create_topic(topic, PARTITIONS, {})
    write(broker.bootstrap, topic, written, compression_type=codec, batch_num_messages=in_a_batch)
    options = everything(broker, topic) | {"minPartitions": str(pieces)}
    assert without_spark(options) == read(broker.bootstrap, topic)


@several
@given(data=st.data())
def test_a_stream_of_whatever_was_written(
    spark: Any, broker: AnyBroker, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """One topic for each codec, all read by one query."""
    group = f"equal-{uuid.uuid4().hex[:12]}"
    topics = [f"{group}-{codec}" for codec in CODECS]
    for topic, codec in zip(topics, CODECS, strict=True):
        with RawClient(broker.bootstrap) as client:
            client.create_topic(topic, PARTITIONS, {})
        written = data.draw(st.lists(one_record, min_size=5, max_size=20))
        write(broker.bootstrap, topic, written, compression_type=codec)
    options = everything(broker, "") | {"subscribePattern": f"{group}-.*"}
    del options["subscribe"]
    found = streamed(spark, options, str(tmp_path_factory.mktemp("equal")))
    expected = read(broker.bootstrap, *topics)
    assert [record for each in found for record in each] == expected, "one batch has all of it"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_larger_than_a_fetch(
    spark: Any, broker: AnyBroker, create_topic: CreateTopic, checkpoint: str, codec: str
) -> None:
    topic = create_topic(partitions=2, configs={"max.message.bytes": str(2 * BIG)})
    noise = [bytes((number * 7 + at) % 251 for at in range(1009)) for number in range(6)]
    written = [{"value": block * (BIG // 1009), "key": b"%d" % number} for number, block in enumerate(noise)]
    write(broker.bootstrap, topic, written, compression_type=codec)
    options = everything(broker, topic) | {"kafka.max.partition.fetch.bytes": "1000", "kafka.fetch.max.bytes": "2000"}
    expected = read(broker.bootstrap, topic)
    assert batch(spark, options) == expected
    assert stream(spark, options, checkpoint) == expected


def test_times_that_the_broker_set(spark: Any, broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    write(broker.bootstrap, topic, [{"value": b"x", "timestamp": 1000 + number} for number in range(10)])
    found = batch(spark, everything(broker, topic))
    assert found == read(broker.bootstrap, topic)
    assert {record.timestamp_type for record in found} == {1}
    assert min(record.timestamp_ms for record in found) > 1_000_000


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_and_their_markers(
    spark: Any, broker: AnyBroker, create_topic: CreateTopic, checkpoint: str, isolation: str
) -> None:
    """Partition 0 ends with a marker, 1 with an aborted transaction, 2 with an open one that hides what follows it."""
    topic = create_topic(partitions=4)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-ended"})
    producer.init_transactions(30)
    for number, partitions in enumerate([(0, 1), (1,), (0, 2), (0,), (1,)]):
        producer.begin_transaction()
        for partition in partitions * 5:
            producer.produce(topic, f"{number} to {partition}", partition=partition)
        assert producer.flush(30) == 0, "else what is to be aborted might never be sent"
        ends = producer.abort_transaction if number in (1, 4) else producer.commit_transaction
        ends(30)
    still_open = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-open"})
    still_open.init_transactions(30)
    still_open.begin_transaction()
    still_open.produce(topic, "open", partition=2)
    assert still_open.flush(30) == 0
    write(broker.bootstrap, topic, [{"value": b"behind it", "partition": 2}])

    options = everything(broker, topic) | {"kafka.isolation.level": isolation}
    try:
        expected = read(broker.bootstrap, topic, isolation=isolation)
        assert batch(spark, options) == expected
        assert stream(spark, options, checkpoint) == expected
        assert len(expected) == (25 if isolation == "read_committed" else 37)
    finally:
        still_open.abort_transaction(30)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_gaps_as_compaction_leaves_them(
    spark: Any, start_broker: Any, topic: str, checkpoint: str, codec: str, on_apache: bool
) -> None:
    """Single records are gone, a whole batch, those at a batch's end, and of the last batch all but its header."""
    if on_apache:
        pytest.skip("writes the files of a Moldau broker")
    broker: BrokerProcess = start_broker()
    with RawClient(broker.bootstrap) as client:
        client.create_topic(topic, 1, {})
    directory = partition_directory(broker, topic)
    broker.stop()
    number = CODECS[codec]
    left = [_batch(0, {0, 3, 9}, 10, number), _batch(20, {1, 2}, 5, number), _batch(30, set(), 6, number)]
    for file in (*directory.glob("*.index"), *directory.glob("*.timeindex"), broker.data / ".kafka_cleanshutdown"):
        file.unlink(missing_ok=True)
    (directory / "00000000000000000000.log").write_bytes(b"".join(left))
    broker.start()

    expected = read(broker.bootstrap, topic)
    assert [record.offset for record in expected] == [0, 3, 9, 21, 22]
    assert batch(spark, everything(broker, topic)) == expected
    assert stream(spark, everything(broker, topic), checkpoint) == expected
    for first, last in [(1, 3), (4, 9), (10, 20), (23, 36), (0, 36), (35, 36)]:
        limits = {"startingOffsets": f'{{"{topic}":{{"0":{first}}}}}', "endingOffsets": f'{{"{topic}":{{"0":{last}}}}}'}
        found = without_spark(everything(broker, topic) | limits)
        assert found == [record for record in expected if first <= record.offset < last]


def _batch(base: int, deltas: set[int], span: int, codec: int) -> bytes:
    """A batch that had `span` records, of which those at `deltas` are left."""
    payload = b"".join(encode_record(Written(b"%d" % (base + delta)), delta) for delta in sorted(deltas))
    compressed = bytes(COMPRESS[codec](payload)) if deltas else b""
    attributes = codec if deltas else 0
    after = AFTER_CRC.pack(attributes, span - 1, NOW_MS, NOW_MS, -1, -1, -1, len(deltas)) + compressed
    head = (0).to_bytes(4) + b"\x02" + crc32c(after).to_bytes(4)
    return PREFIX.pack(base, len(head) + len(after)) + head + after
