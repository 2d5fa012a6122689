"""Consumer on a real broker: partitions without a group, tails and patterns; positions, lag, seeks and pauses."""

import datetime
import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from moldau.base.ids import TopicPartition
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.rebalances import RebalanceListener
from moldau.client.errors import InvalidUse
from moldau.client.producer.producer import Producer
from support.brokers.processes import CreateTopic
from support.clients import confluent
from support.clients.consuming import both_protocols, fill, read, read_all
from support.eventually import PATIENCE_S, eventually


@pytest.fixture
def group(topic: str, short_waits: dict[str, int]) -> str:
    return f"group-{topic}"


# ── without a group ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_group_it_reads_all_and_commits_nothing(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, 100, partitions=2)
    for _ in range(2):
        with Consumer(bootstrap, topic, value=str) as consumer:
            assert sorted(read(consumer, 100)) == list(range(100))
            with pytest.raises(InvalidUse, match="no group"):
                consumer.commit()
            with pytest.raises(InvalidUse, match="no group"):
                consumer.committed()


def test_without_a_group_new_partitions_are_found(
    bootstrap: str, create_topic: CreateTopic, topic: str, admin: AdminClient
) -> None:
    """A topic that is created later, and partitions that are added to it."""
    from confluent_kafka.admin import NewPartitions, NewTopic

    name = f"{topic}-later"
    properties = {"topic.metadata.refresh.interval.ms": 200}
    with Consumer(bootstrap, re.compile(f"{topic}-l.*"), start="latest", value=str, properties=properties) as consumer:
        admin.create_topics([NewTopic(name, 1)])[name].result(30)
        eventually(lambda: len(consumer.assignment()) == 1, "the topic is found")
        admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
        confluent.write(bootstrap, name, [{"value": "1", "partition": 1}])
        assert read(consumer, 1) == [1]


def test_assign(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic(partitions=3)
    fill(bootstrap, topic, 300, partitions=3)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 2)
    with Consumer(bootstrap, group=group, value=str) as consumer:
        consumer.assign({one: 95})
        assert read(consumer, 5) == [285, 288, 291, 294, 297]
        consumer.commit()
        consumer.assign([other])
        assert consumer.assignment() == {other}
        assert read(consumer, 2) == [2, 5]
        consumer.assign([one, other])
        assert read(consumer, 2) == [5, 8], "on from what was committed when the assignment changed"
    with Consumer(bootstrap, topic) as consumer, pytest.raises(InvalidUse, match="without topics"):
        consumer.assign([one])


def test_tail(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """The last messages of each partition, then those that come; the group notices nothing."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, 100, partitions=2)
    consumer = Consumer(bootstrap, topic, group=group, value=str)
    with consumer.tail(3) as tail:
        stream = iter(tail)
        assert sorted(int(next(stream).value) for _ in range(6)) == [94, 95, 96, 97, 98, 99]
        confluent.write(bootstrap, topic, ["new"])
        assert next(stream).value == "new"
    with consumer.tail(1000) as tail:
        assert len(read_all(tail, 101)) == 101
    with consumer.tail() as tail:
        eventually(tail.assignment, "it is assigned")
        assert tail.poll(0.2) is None
    assert consumer.committed(TopicPartition(topic, 0)) == {TopicPartition(topic, 0): None}
    consumer.close()


@both_protocols
def test_patterns(bootstrap: str, create_topic: CreateTopic, group: str, protocol: Any) -> None:
    """A pattern is for whole names."""
    topics = [create_topic() for _ in range(3)]
    for name in topics:
        confluent.write(bootstrap, name, [name])
    pattern = re.compile(f"{re.escape(topics[0])[:-1]}[01]")
    with Consumer(bootstrap, pattern, group=group, protocol=protocol, value=str) as consumer:
        assert {message.topic for message in read_all(consumer, 2)} == set(topics[:2])
        assert consumer.assignment() == {TopicPartition(name, 0) for name in topics[:2]}


# ── positions ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def hundred(bootstrap: str, create_topic: CreateTopic, group: str) -> Iterator[Consumer[bytes | None, str]]:
    """A consumer of one partition with a hundred messages, each a second later than the one before."""
    topic = create_topic()
    records = [{"value": str(number), "timestamp": 1_000_000 + number * 1000} for number in range(100)]
    confluent.write(bootstrap, topic, records)
    with Consumer(bootstrap, topic, group=group, value=str) as consumer:
        yield consumer


def test_position_and_lag(hundred: Consumer[Any, Any]) -> None:
    assert read(hundred, 10) == list(range(10))
    (part,) = hundred.assignment()
    assert hundred.position() == {part: 10}
    assert hundred.lag() == {part: 90}
    hundred.seek_to_end()
    assert hundred.poll(0.1) is None
    assert hundred.position(part) == {part: 100}
    assert hundred.lag(part) == {part: 0}


def test_markers_of_transactions_are_no_lag(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """Nothing more will come, so a loop up to the end ends."""
    topic, part = (name := create_topic()), TopicPartition(name, 0)
    with Producer(bootstrap, transactional_id=group) as producer, Consumer(bootstrap, topic, group=group) as consumer:
        for number in range(3):
            with producer.transaction():
                producer.send(topic, str(number))
        for _ in range(3):
            assert consumer.poll(PATIENCE_S)
        eventually(lambda: consumer.lag() == {part: 0}, "only the marker is left", consumer.position)
        assert consumer.position() == {part: 6}
        consumer.seek(part, 2)
        assert consumer.position() == {part: 2}
        assert consumer.poll(PATIENCE_S).offset == 2
        consumer.pause()
        assert consumer.position() == {part: 3}
        consumer.commit()
        assert consumer.committed(part)[part] == OffsetAndMetadata(3)


def test_seek(hundred: Consumer[Any, Any]) -> None:
    """Also in the middle of a loop: the next message is the one that was sought."""
    seen = []
    for message in hundred:
        seen.append(int(message.value))
        if seen[-1] == 2:
            hundred.seek(message.topic_partition, 50)
        elif seen[-1] == 51:
            hundred.seek({message.topic_partition: 98})
        elif seen[-1] == 99:
            hundred.seek_to_beginning()
        elif len(seen) > 6:
            hundred.seek_to_time(1_000_000 + 77_000 - 1)
        if len(seen) == 9:
            break
    assert seen == [0, 1, 2, 50, 51, 98, 99, 0, 77]
    hundred.seek_to_time(datetime.datetime.fromtimestamp(1012.5, tz=datetime.UTC))
    assert read(hundred, 1) == [13]
    hundred.seek_to_time(5_000_000)
    assert hundred.poll(0.1) is None
    with pytest.raises(InvalidUse, match="not assigned"):
        hundred.seek(TopicPartition("other", 0), 1)
    with pytest.raises(InvalidUse, match="0 or more"):
        hundred.seek(next(iter(hundred.assignment())), -1)


def test_seek_in_a_rebalance_listener(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, 100, partitions=2)

    class FromTheEnd(RebalanceListener):
        def on_assigned(self, partitions: Any) -> None:
            consumer.seek(dict.fromkeys(partitions, 48))

    with Consumer(bootstrap, topic, group=group, value=str, listener=FromTheEnd()) as consumer:
        assert sorted(read(consumer, 4)) == [96, 97, 98, 99]


def test_pause_and_resume(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """A paused partition gives nothing, the others go on, and nothing is skipped after it is resumed."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, 2000, partitions=2)
    even, odd = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap, topic, group=group, value=str, buffer_messages=100) as consumer:
        first = read(consumer, 50)
        consumer.pause(even)
        assert consumer.paused() == {even}
        left = 1000 - sum(value % 2 for value in first)
        during = read(consumer, left)
        assert all(value % 2 for value in during)
        assert consumer.poll(0.2) is None
        consumer.resume()
        assert consumer.paused() == set()
        rest = read(consumer, 2000 - 50 - left)
        assert not any(value % 2 for value in rest)
    assert sorted(first + during + rest) == list(range(2000))
    assert odd not in consumer.paused()
