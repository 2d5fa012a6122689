"""Transactions of the direct client: all or nothing, offsets included, fenced when another takes over."""

import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.base.ids import TopicPartition
from moldau.client.direct import transactions
from moldau.client.direct.connection import Connection, ConnectionLost
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import FetchedBatches, FetchSizes, read_range
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import (
    LATEST,
    READ_COMMITTED,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    committed,
    list_offsets,
)
from moldau.client.direct.records import decode
from moldau.client.direct.transactions import TransactionalProducer
from support.brokers.processes import AnyBroker, CreateTopic

Column = list[bytes | None]


@pytest.fixture
def cluster(broker: AnyBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeout_s=20) as cluster:
        yield cluster


@pytest.fixture(params=["today", "before KIP-890"])
def start(cluster: Cluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`start(id)`: a producer that is ready, as this cluster has transactions and as older ones do."""
    if request.param != "today":
        monkeypatch.setattr(transactions, "FEATURE", "none of this name")
    made: list[TransactionalProducer] = []

    def make(name: str, **options: Any) -> TransactionalProducer:
        made.append(TransactionalProducer(cluster, name, **options))
        assert made[-1].start() is None
        return made[-1]

    yield make
    for producer in made:
        producer.close()


@pytest.fixture
def name() -> str:
    return f"direct-{uuid.uuid4().hex}"


def visible(cluster: Cluster, topic: str, partitions: int = 1, most_bytes: int = 1 << 20) -> Column:
    """What a reader of committed records sees, once no transaction is open."""
    latest = {TopicPartition(topic, each): LATEST for each in range(partitions)}
    ends = list_offsets(cluster, latest)
    while (
        list_offsets(cluster, latest, isolation=READ_COMMITTED) != ends
    ):  # Apache Kafka answers before it writes markers
        ends = list_offsets(cluster, latest)
    found: Column = []
    for place, end in ends.items():
        assert isinstance(end, OffsetAndTimestamp), end
        for chunk in read_range(cluster, place, 0, end.offset, isolation=READ_COMMITTED, sizes=FetchSizes(most_bytes)):
            assert isinstance(chunk, FetchedBatches), chunk
            found += decode(chunk.batches, end=end.offset).values
    return found


def test_commits_count_and_aborts_do_not(cluster: Cluster, create_topic: CreateTopic, start: Any, name: str) -> None:
    topic = create_topic(partitions=2)
    producer = start(name)
    wanted: Column = []
    for number in range(6):
        values: Column = [b"%d-%d" % (number, each) for each in range(20)]
        assert producer.write(topic, values, values) is None
        if number % 3 == 1:
            assert producer.abort() is None
        else:
            assert producer.commit() is None
            wanted += values
    assert producer.commit() is None, "nothing to commit is fine"
    assert sorted(map(str, visible(cluster, topic, 2))) == sorted(map(str, wanted))


def test_batches_that_are_too_large_are_split(
    cluster: Cluster, create_topic: CreateTopic, start: Any, name: str
) -> None:
    topic = create_topic(configs={"max.message.bytes": "1000"})
    values: Column = [b"%d" % number + b"x" * (number % 300) for number in range(200)]
    producer = start(name, batch_bytes=10_000)
    for half in (slice(100), slice(100, None)):
        assert (producer.write(topic, values[half], values[half]) or producer.commit()) is None
    assert visible(cluster, topic) == values


def test_offsets_and_their_metadata_are_part_of_it(
    cluster: Cluster, create_topic: CreateTopic, start: Any, name: str
) -> None:
    topic = create_topic()
    place, group = TopicPartition(topic, 0), f"{name}-control"
    producer = start(name)
    assert producer.write(topic, [None], [b"one"]) is None
    assert producer.commit_offsets(group, {place: OffsetAndMetadata(1, "rows=1")}) is None
    assert producer.commit() is None
    found = committed(cluster, group, [place])
    assert isinstance(found, dict)
    assert found[place][:2] == (1, "rows=1")  # type: ignore[index]

    assert producer.commit_offsets(group, {place: OffsetAndMetadata(2, "rows=9")}) is None
    assert producer.abort() is None
    assert committed(cluster, group, [place]) == found


def test_offsets_alone_make_a_transaction(cluster: Cluster, create_topic: CreateTopic, start: Any, name: str) -> None:
    place = TopicPartition(create_topic(), 0)
    producer = start(name)
    for number in range(1, 4):
        assert producer.commit_offsets(name, {place: OffsetAndMetadata(number)}) is None
        assert producer.commit() is None
        found = committed(cluster, name, [place])
        assert isinstance(found, dict)
        assert found[place][0] == number  # type: ignore[index]


def test_the_producer_before_is_fenced_and_what_it_left_open_is_gone(
    cluster: Cluster, create_topic: CreateTopic, start: Any, name: str
) -> None:
    topic = create_topic()
    first = start(name)
    assert (first.write(topic, [None], [b"lost"]) or first.flush()) is None
    second = start(name)
    assert (second.write(topic, [None], [b"kept"]) or second.commit()) is None
    problem = first.write(topic, [None], [b"late"]) or first.commit()
    assert isinstance(problem, Failure)
    assert problem.fenced, problem
    assert first.abort() == problem, "it stays fenced"
    assert visible(cluster, topic) == [b"kept"]


def test_an_abort_after_a_failure_makes_it_usable_again(
    cluster: Cluster, create_topic: CreateTopic, start: Any, name: str
) -> None:
    topic, narrow = create_topic(), create_topic(configs={"max.message.bytes": "500"})
    producer = start(name)
    assert producer.write(topic, [None], [b"lost"]) is None
    problem = producer.write(narrow, [None], [b"x" * 5000]) or producer.flush()
    assert problem is not None
    assert producer.commit() == problem
    assert producer.abort() is None
    assert (producer.write(topic, [None], [b"kept"]) or producer.commit()) is None
    assert visible(cluster, topic) == [b"kept"]


def test_answers_that_get_lost_lose_and_double_nothing(
    cluster: Cluster, create_topic: CreateTopic, start: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections break after the broker has done what it was asked, whatever that was: ends of transactions too."""
    topic, group = create_topic(partitions=3), f"{name}-control"
    chance = random.Random(name)
    read = Connection._read_frame
    losing = False

    def read_and_lose(connection: Connection) -> bytearray:
        frame = read(connection)
        if losing and chance.random() < 0.1:
            connection.close()
            raise ConnectionLost("lost on the way")
        return frame

    monkeypatch.setattr(Connection, "_read_frame", read_and_lose)
    producer = start(name)
    losing = True
    wanted: Column = []
    for number in range(15):
        values: Column = [b"%d-%d" % (number, each) for each in range(30)]
        for part in (values[:10], values[10:]):
            assert producer.write(topic, part, part) is None
        assert producer.commit_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(number)}) is None
        assert (producer.abort() if number % 4 == 3 else producer.commit()) is None
        wanted += [] if number % 4 == 3 else values
    losing = False
    assert sorted(map(str, visible(cluster, topic, 3))) == sorted(map(str, wanted))
    found = committed(cluster, group)
    assert isinstance(found, dict)
    assert found[TopicPartition(topic, 0)][0] == 14  # type: ignore[index]


def test_transactions_of_others_are_read_as_they_ended(
    broker: AnyBroker, cluster: Cluster, create_topic: CreateTopic, name: str
) -> None:
    """Two producers at once, one commits and one aborts, and plain records among theirs."""
    topic = create_topic()
    writers = []
    for number in range(2):
        writers.append(Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{name}-{number}"}))
        writers[-1].init_transactions(30)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for turn in range(3):
        for writer in writers:
            writer.begin_transaction()
        for each in range(5):
            for number, writer in enumerate((*writers, plain)):
                writer.produce(topic, f"{turn}-{number}-{each}", partition=0)
                assert writer.flush(20) == 0
        writers[turn % 2].commit_transaction(30)
        writers[(turn + 1) % 2].abort_transaction(30)
    wanted = [b"%d-%d-%d" % (turn, who, each) for turn in range(3) for each in range(5) for who in (turn % 2, 2)]
    for most_bytes in (1, 300, 1 << 20):
        found = visible(cluster, topic, most_bytes=most_bytes)
        assert sorted(map(str, found)) == sorted(map(str, wanted)), f"{most_bytes} bytes at a time"
