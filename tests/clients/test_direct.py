"""The direct client against a real broker: what it writes others read, what others write it reads."""

import os
import re
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct import produce
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import FetchedBatches, FetchSizes, read_range
from moldau.client.direct.metadata import Cluster, Topic
from moldau.client.direct.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    commit,
    committed,
    list_offsets,
)
from moldau.client.direct.partitioning import partition_of
from moldau.client.direct.records import Columns, decode
from moldau.wire.compression import Codec
from support.brokers.processes import AnyBroker, BrokerProcess, CreateTopic, StartBroker
from support.clients import confluent
from support.clients.raw import RawClient

CODECS = [str(codec) for codec in Codec]
TIME = 1_700_000_000_000


@pytest.fixture
def cluster(broker: AnyBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeout_s=20) as cluster:
        yield cluster


def columns_of(cluster: Cluster, place: TopicPartition, start: int, end: int, **options: Any) -> Columns:
    """All records of a range."""
    whole = Columns()
    for chunk in read_range(cluster, place, start, end, **options):
        assert isinstance(chunk, FetchedBatches), chunk
        found = decode(chunk.batches, start=start, end=end)
        for name in Columns.__slots__:
            getattr(whole, name).extend(getattr(found, name))
    return whole


def read_by_confluent(broker: AnyBroker, topic: str, partition: int, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"direct-{uuid.uuid4().hex}", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Any] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), 5)
    consumer.close()
    assert not [each.error() for each in found if each.error()]
    return found


def unknown(found: object) -> bool:
    return isinstance(found, Failure) and found.code == WireError.UNKNOWN_TOPIC_OR_PARTITION


def sample(count: int) -> list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]:
    """Keys, values, times and headers, with nulls and empties among them."""
    return [
        (
            None if number % 5 == 0 else b"key-%d" % number,
            None if number % 7 == 0 else b"" if number % 7 == 1 else b"value %d " % number * (number % 40),
            TIME + number,
            [("h", b"x"), ("číslo", None), ("h", b"")][: number % 4],
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_it_reads_what_others_wrote(broker: AnyBroker, cluster: Cluster, create_topic: CreateTopic, codec: str) -> None:
    topic = create_topic()
    rows = sample(300)
    writer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20})
    for key, value, time, headers in rows:
        writer.produce(topic, value, key, partition=0, timestamp=time, headers=headers)
    assert writer.flush(30) == 0
    found = columns_of(cluster, TopicPartition(topic, 0), 0, 300)
    assert found.offsets == list(range(300))
    assert list(zip(found.keys, found.values, found.timestamps, map(list, found.headers), strict=True)) == rows
    part = columns_of(cluster, TopicPartition(topic, 0), 17, 203, sizes=FetchSizes(partition_max_bytes=500))
    assert part.offsets == list(range(17, 203))


@pytest.mark.parametrize("codec", CODECS)
def test_others_read_what_it_wrote(broker: AnyBroker, cluster: Cluster, create_topic: CreateTopic, codec: str) -> None:
    topic = create_topic()
    keys, values, times, headers = (list(column) for column in zip(*sample(300), strict=True))
    with produce.Producer(cluster, codec=Codec.named(codec), batch_bytes=4096) as producer:
        assert producer.start() is None
        assert producer.write(topic, keys[:200], values[:200], times[:200], headers[:200]) is None
        assert producer.write(topic, keys[200:], values[200:], times[200:], headers[200:]) is None
        assert producer.flush() is None
        assert producer.written == 300
    found = read_by_confluent(broker, topic, 0, 300)
    assert [each.key() for each in found] == keys
    assert [each.value() for each in found] == values
    assert [each.timestamp()[1] for each in found] == times
    assert [each.headers() or [] for each in found] == headers


def test_keys_go_where_java_sends_them(broker: AnyBroker, cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=5)
    keys: list[bytes | None] = [b"customer-%d" % number for number in range(200)]
    with produce.Producer(cluster) as producer:
        assert (producer.start() or producer.write(topic, keys, keys) or producer.flush()) is None
    ends = list_offsets(cluster, {TopicPartition(topic, partition): LATEST for partition in range(5)})
    for place, end in ends.items():
        assert isinstance(end, OffsetAndTimestamp)
        found = columns_of(cluster, place, 0, end.offset)
        assert found.keys == [key for key in keys if key and partition_of(key, 5) == place.partition]


def test_records_without_a_key_spread_over_partitions(cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=3)
    with produce.Producer(cluster, batch_bytes=1000) as producer:
        assert producer.start() is None
        assert producer.write(topic, [None] * 500, [b"x" * 99] * 500) is None
        assert producer.flush() is None
    ends = list_offsets(cluster, {TopicPartition(topic, partition): LATEST for partition in range(3)})
    counts = [end.offset for end in ends.values() if isinstance(end, OffsetAndTimestamp)]
    assert sum(counts) == 500
    assert min(counts) > 0


def test_offsets_by_time(cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic()
    place = TopicPartition(topic, 0)
    with produce.Producer(cluster, idempotent=False, acks=1) as producer:
        assert producer.write(topic, [None] * 10, [b"v"] * 10, [TIME + 10 * each for each in range(10)]) is None
        assert producer.flush() is None

    def at(time: int) -> OffsetAndTimestamp | Failure:
        return list_offsets(cluster, {place: time})[place]

    assert [at(time)[:2] for time in (TIME, TIME + 45, TIME + 90)] == [(0, TIME), (5, TIME + 50), (9, TIME + 90)]  # type: ignore[index]
    assert at(TIME + 91) == OffsetAndTimestamp(-1, -1, -1)
    assert at(EARLIEST)[0] == 0  # type: ignore[index]
    assert at(LATEST)[0] == 10  # type: ignore[index]
    assert at(MAX_TIMESTAMP)[:2] == (9, TIME + 90)  # type: ignore[index]


def test_committed_offsets_come_back_with_their_metadata(cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    group = f"direct-{uuid.uuid4().hex}"
    assert committed(cluster, group, [TopicPartition(topic, 0)]) == {}
    assert commit(cluster, group, {TopicPartition(topic, 1): OffsetAndMetadata(7, "note")}) is None
    found = committed(cluster, group)
    assert isinstance(found, dict)
    assert {place: each[:2] for place, each in found.items()} == {TopicPartition(topic, 1): (7, "note")}  # type: ignore[index]
    assert committed(cluster, group, [TopicPartition(topic, 0), TopicPartition(topic, 1)]) == found


def test_an_offset_that_is_not_there_is_a_value(cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic()
    (found,) = read_range(cluster, TopicPartition(topic, 0), 5, 10)
    assert isinstance(found, Failure)
    assert (found.name, found.retriable) == ("OFFSET_OUT_OF_RANGE", False)


def test_what_never_comes_is_waited_for_and_then_a_value(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    with Cluster(broker.bootstrap, timeout_s=0.5) as impatient:
        (found,) = read_range(impatient, TopicPartition(topic, 0), 0, 1, sizes=FetchSizes(max_wait_ms=100))
        assert isinstance(found, Failure)
        assert found.code == WireError.REQUEST_TIMED_OUT
        missing = impatient.describe([f"{topic}-none"])
        assert isinstance(missing, dict)
        (problem,) = missing.values()
        assert isinstance(problem, Failure)
        assert problem.code == WireError.UNKNOWN_TOPIC_OR_PARTITION
        (found,) = read_range(impatient, TopicPartition(f"{topic}-none", 0), 0, 1)
        assert isinstance(found, Failure)


def test_a_topic_that_was_created_anew_is_not_the_topic_that_was_read(
    broker: AnyBroker, cluster: Cluster, create_topic: CreateTopic, raw: Any
) -> None:
    topic = create_topic()
    with produce.Producer(cluster) as producer:
        assert producer.start() is None
        assert producer.write(topic, [None] * 9, [b"x" * 500] * 9) is None
        assert producer.flush() is None
    chunks = read_range(cluster, TopicPartition(topic, 0), 0, 100, sizes=FetchSizes(max_wait_ms=100))
    assert isinstance(next(chunks), FetchedBatches)
    raw.delete_topics([topic])
    raw.create_topic(topic)
    found = next(chunks)
    assert isinstance(found, Failure)
    assert found.name == "INCONSISTENT_TOPIC_ID"


def test_a_record_that_is_too_large_is_a_value(cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic(configs={"max.message.bytes": "2000"})
    with produce.Producer(cluster) as producer:
        assert producer.start() is None
        problem = producer.write(topic, [None], [b"x" * 5000]) or producer.flush()
        assert problem is not None
        assert problem.code == WireError.MESSAGE_TOO_LARGE
        assert re.search(r"max\.message\.bytes is less than the 50\d\d bytes", problem.message), problem.message
        assert producer.write(topic, [None], [b"x"]) == problem, "a producer that failed stays failed"


def test_a_record_that_no_request_may_have_is_a_value(cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic()
    with produce.Producer(cluster, request_bytes=3000) as producer:
        assert producer.start() is None
        assert producer.write(topic, [None] * 9, [b"x" * 1000] * 9) is None, "many small ones may go"
        problem = producer.write(topic, [None], [b"x" * 5000])
        assert problem is not None
        assert "max.request.size, 3000 bytes" in problem.message


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batches_that_are_too_large_are_split(
    cluster: Cluster, create_topic: CreateTopic, codec: Codec, idempotent: bool
) -> None:
    topic = create_topic(partitions=2, configs={"max.message.bytes": "2000"})
    values: list[bytes | None] = [b"%d" % number + os.urandom(number % 500) for number in range(600)]
    places = [number % 2 for number in range(600)]
    headers = [[("h", b"%d" % number)] for number in range(600)]
    with produce.Producer(cluster, codec=codec, idempotent=idempotent, batch_bytes=20_000) as producer:
        assert producer.start() is None
        for part in (slice(300), slice(300, None)):
            assert producer.write(topic, values[part], values[part], None, headers[part], places[part]) is None
        assert producer.flush() is None
        assert producer.written == 600
    for partition in (0, 1):
        found = columns_of(cluster, TopicPartition(topic, partition), 0, 300)
        order = (lambda rows: rows) if idempotent else (lambda rows: sorted(rows))
        assert order(found.values) == order(values[partition::2])
        assert found.keys == found.values
        assert order([list(each) for each in found.headers]) == order(headers[partition::2])


def test_a_producer_that_asks_for_no_answer_writes_too(cluster: Cluster, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    values: list[bytes | None] = [b"%d" % number for number in range(1000)]
    with produce.Producer(cluster, acks=0, idempotent=False, batch_bytes=500) as producer:
        problem = producer.start() or producer.write(topic, values, values) or producer.flush()
        assert problem is None
        assert producer.written == 1000
        read: list[bytes | None] = []
        while len(read) < 1000:  # nobody says when they have arrived
            ends = list_offsets(cluster, {TopicPartition(topic, 0): LATEST, TopicPartition(topic, 1): LATEST})
            read = [
                value
                for place, end in ends.items()
                if isinstance(end, OffsetAndTimestamp)
                for value in columns_of(cluster, place, 0, end.offset).values
            ]
    assert sorted(map(str, read)) == sorted(map(str, values))


def test_a_cluster_that_is_not_there_is_a_value() -> None:
    with Cluster("127.0.0.1:1", timeout_s=0.2) as nowhere:
        found = nowhere.describe(None)
        assert isinstance(found, Failure)
        assert found.code == WireError.NETWORK_EXCEPTION


@pytest.mark.parametrize("partitions", [None, [0, 0]])
def test_a_topic_that_does_not_exist_is_created_by_writing_to_it(
    cluster: Cluster, topic: str, partitions: list[int] | None
) -> None:
    assert unknown(cluster.topic(topic)), "asking creates nothing"
    with produce.Producer(cluster) as producer:
        assert (producer.start() or producer.write(topic, [b"k", b"k"], [b"1", b"2"], partitions=partitions)) is None
        assert producer.flush() is None
    assert columns_of(cluster, TopicPartition(topic, 0), 0, 2).values == [b"1", b"2"]


def test_a_topic_that_nobody_creates_is_a_value(start_broker: StartBroker) -> None:
    own = start_broker(auto_create_topics_enable="false")
    with Cluster(own.bootstrap, timeout_s=1) as cluster, produce.Producer(cluster) as producer:
        assert producer.start() is None
        assert unknown(producer.write("nowhere", [None], [b"v"]))


def test_the_absence_of_a_topic_is_an_answer_for_those_who_say_so(cluster: Cluster, create_topic: CreateTopic) -> None:
    there, missing = TopicPartition(create_topic(), 0), TopicPartition("nowhere", 0)
    beyond = TopicPartition(there.topic, 7)
    asked = list_offsets(cluster, dict.fromkeys((there, missing, beyond), LATEST), await_topics=False)
    found = asked[there]
    assert isinstance(found, OffsetAndTimestamp)
    assert found.offset == 0
    assert unknown(asked[missing])
    assert unknown(asked[beyond])


def test_every_topic_is_described(cluster: Cluster, create_topic: CreateTopic, broker: AnyBroker) -> None:
    topic = create_topic(partitions=4)
    found = cluster.describe(None)
    assert isinstance(found, dict)
    described = found[topic]
    assert isinstance(described, Topic)
    assert described.partitions == [TopicPartition(topic, partition) for partition in range(4)]
    assert set(confluent.admin(broker.bootstrap).list_topics(timeout=10).topics) >= {topic}


def test_reading_and_writing_go_on_when_the_broker_restarts(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.bootstrap) as raw:
        raw.create_topic("t", 2)
    with (
        Cluster(own_broker.bootstrap, timeout_s=60) as cluster,
        produce.Producer(cluster, batch_bytes=2000) as producer,
    ):
        assert producer.start() is None
        keys: list[bytes | None] = [b"%d" % number for number in range(3000)]
        for start in range(0, 3000, 1000):
            assert producer.write("t", keys[start : start + 1000], keys[start : start + 1000]) is None
            own_broker.restart()
        assert producer.flush() is None
        own_broker.restart()
        read: list[bytes | None] = []
        for place, end in list_offsets(
            cluster, {TopicPartition("t", 0): LATEST, TopicPartition("t", 1): LATEST}
        ).items():
            assert isinstance(end, OffsetAndTimestamp)
            read += columns_of(cluster, place, 0, end.offset, isolation=READ_COMMITTED).values
        assert sorted(map(str, read)) == sorted(map(str, keys)), "each once"
