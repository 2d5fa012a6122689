"""Consumer.arrow on a real broker: rows of Arrow RecordBatches are done, committed and rebalanced as messages are."""

import asyncio
import sys
import threading
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from moldau.base.ids import TopicPartition
from moldau.client.consumer.aio import AsyncConsumer
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.consumer import Consumer
from moldau.client.errors import InvalidUse, KafkaFailure
from support.brokers.processes import CreateTopic
from support.clients import confluent
from support.eventually import PATIENCE_S, eventually

pytest.importorskip("pyarrow", reason="needs the extra arrow: pip install 'moldau[arrow]'")
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def group(topic: str, short_waits: dict[str, int]) -> str:
    return f"group-{topic}"


def fill(bootstrap: str, topic: str, values: range, partitions: int = 1) -> None:
    confluent.write(bootstrap, topic, [{"value": str(each), "partition": each % partitions} for each in values])


def numbers(batch: Any) -> list[int]:
    return [int(value) for value in batch.column("value").to_pylist()]


def read(consumer: Consumer[Any, Any], count: int, n: int = 10_000) -> list[int]:
    """The values of the next rows."""
    found: list[int] = []
    for batch in consumer.arrow(n):
        assert 0 < batch.num_rows <= n
        found += numbers(batch)
        if len(found) >= count:
            break
    return found


@both_protocols
def test_rows_are_committed_as_messages_are(
    bootstrap: str, create_topic: CreateTopic, group: str, protocol: Any
) -> None:
    """A batch is done when the next one is asked for; after that, other loops and members go on from there."""
    topic = create_topic(partitions=3)
    fill(bootstrap, topic, range(3000), partitions=3)
    with Consumer(bootstrap, topic, group=group, protocol=protocol, value=str) as consumer:
        batches = consumer.arrow(1000, wait=PATIENCE_S)
        rows = [next(batches) for _ in range(2)]
        assert [batch.num_rows for batch in rows] == [1000, 1000]
        batches.close()
        assert sum(consumer.position().values()) == 2000
        consumer.commit()
        assert sum(each.offset for each in consumer.committed().values() if each) == 2000
        after = [int(message.value) for message, _ in zip(consumer, range(100), strict=False)][:100]
    with Consumer(bootstrap, topic, group=group, protocol=protocol) as consumer:
        rest = read(consumer, 900, n=700)
        assert consumer.lag() == {TopicPartition(topic, number): 0 for number in range(3)}
    first = [number for batch in rows for number in numbers(batch)]
    assert sorted(first + after + rest) == list(range(3000))
    for partition in range(3):
        seen = [number for number in first + after + rest if number % 3 == partition]
        assert seen == sorted(seen)


def test_a_batch_in_hand_is_not_done(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(30))
    part = TopicPartition(topic, 0)
    with Consumer(bootstrap, topic, group=group) as consumer:
        for number, batch in enumerate(consumer.arrow(10)):
            assert numbers(batch) == list(range(number * 10, number * 10 + 10))
            if number == 2:
                break
    with Consumer(bootstrap, topic, group=group) as consumer:
        assert consumer.committed(part) == {part: OffsetAndMetadata(20)}


def test_columns(bootstrap: str, create_topic: CreateTopic) -> None:
    """Those of Spark's Kafka source; a DataFrame of pandas is a call away."""
    topic = create_topic()
    record = {"key": "k", "value": None, "headers": [("a", b"1"), ("b", None)], "timestamp": 1_234_567}
    confluent.write(bootstrap, topic, [record, "text"])
    with Consumer(bootstrap, topic) as consumer:
        batch = next(consumer.arrow(2, wait=PATIENCE_S, headers=True))
        plain = next(consumer.tail(2).arrow(2, wait=PATIENCE_S))
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert plain.schema.names == names
    assert batch.schema.names == [*names, "headers"]
    rows = batch.to_pylist()
    assert (rows[0]["key"], rows[0]["value"], rows[1]["value"]) == (b"k", None, b"text")
    assert rows[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert rows[0]["timestamp"].timestamp() == 1234.567
    pandas = pytest.importorskip("pandas")
    frame = batch.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["offset"]) == [0, 1]


def test_rows_that_come_later_and_wakeup(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(5))
    with Consumer(bootstrap, topic, group=group) as consumer:
        seen: list[int] = []
        for batch in consumer.arrow(100, wait=0):
            seen += numbers(batch)
            if seen[-1] == 4:
                fill(bootstrap, topic, range(5, 10))
            if seen[-1] == 9:
                threading.Timer(0.05, consumer.wakeup).start()
        assert seen == list(range(10))


def test_seek_and_pause(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, range(200), partitions=2)
    even = TopicPartition(topic, 0)
    with Consumer(bootstrap, topic, group=group) as consumer:
        batches = consumer.arrow(200, wait=0.1)
        seen: list[int] = []
        while len(seen) < 200:
            seen += numbers(next(batches))
        assert sorted(seen) == list(range(200))
        consumer.seek(even, 98)
        assert numbers(next(batches)) == [196, 198]
        consumer.pause(even)
        consumer.seek_to_beginning()
        assert numbers(next(batches)) == list(range(1, 200, 2))
        consumer.resume()
        assert numbers(next(batches)) == list(range(0, 200, 2))


def test_records_that_were_deleted(bootstrap: str, create_topic: CreateTopic, group: str, admin: AdminClient) -> None:
    """Retention took the records at the committed offset: reading goes on by `start`."""
    topic = create_topic()
    fill(bootstrap, topic, range(10))
    part = TopicPartition(topic, 0)
    with Consumer(bootstrap, group=group) as consumer:
        consumer.assign({part: 2})
        (deleted,) = admin.delete_records([KafkaPartition(topic, 0, 6)]).values()
        deleted.result(30)
        assert read(consumer, 4) == [6, 7, 8, 9]
    with Consumer(bootstrap, group=group, start="error") as consumer:
        consumer.assign({part: 2})
        with pytest.raises(KafkaFailure, match="OFFSET_OUT_OF_RANGE"):
            next(consumer.arrow())


@both_protocols
def test_members_share_partitions(bootstrap: str, create_topic: CreateTopic, group: str, protocol: Any) -> None:
    """Another member joins while a batch is in hand: it waits for the batch, and no row comes twice."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, range(2000), partitions=2)
    options: Any = {"group": group, "protocol": protocol}
    seen: dict[str, list[int]] = {"first": [], "second": []}

    def read_all(name: str, consumer: Consumer[Any, Any]) -> None:
        for batch in consumer.arrow(50):
            seen[name] += numbers(batch)

    second: Consumer[Any, Any] = Consumer(bootstrap, topic, **options)
    with Consumer(bootstrap, topic, **options) as first:
        batches = first.arrow(1500, wait=PATIENCE_S)
        seen["first"] += numbers(next(batches))
        threads = [threading.Thread(target=read_all, args=("second", second))]
        threads[0].start()
        eventually(lambda: first.engine._handover.awaited, "a partition is being revoked")
        first.commit()
        batches.close()
        threads.append(threading.Thread(target=read_all, args=("first", first)))
        threads[1].start()
        eventually(second.assignment, "the partition moves")
        fill(bootstrap, topic, range(2000, 2100), partitions=2)
        eventually(lambda: sum(map(len, seen.values())) >= 2100, "all rows are read", lambda: seen)
        for consumer in (first, second):
            consumer.wakeup()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        second.close()
    assert sorted(seen["first"] + seen["second"]) == list(range(2100))
    assert seen["second"]


def test_async_arrow(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(50))

    async def main() -> list[int]:
        found: list[int] = []
        async with AsyncConsumer(bootstrap, topic, group=group) as consumer:
            async for batch in consumer.arrow(20):
                found += numbers(batch)
                if len(found) == 50:
                    await consumer.commit()
                    consumer.wakeup()
            committed = await consumer.committed()
        assert committed == {TopicPartition(topic, 0): OffsetAndMetadata(50)}
        return found

    assert asyncio.run(main()) == list(range(50))


def test_what_arrow_does_not_do(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidUse, match="where"):
        next(Consumer(bootstrap, "t", where={"a": "b"}).arrow())
    with pytest.raises(InvalidUse, match="one message at least"):
        next(Consumer(bootstrap, "t").arrow(0))
    oauth = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(InvalidUse, match="SASL OAUTHBEARER is not supported"):
        next(Consumer(bootstrap, "t", properties=oauth).arrow())
    import moldau.client.direct.arrow

    monkeypatch.delitem(sys.modules, "moldau.client.direct.arrow")
    monkeypatch.delattr(moldau.client.direct, "arrow")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidUse, match=r"pip install 'moldau\[arrow\]'"):
        next(Consumer(bootstrap, "t").arrow())


def test_the_group_goes_on_while_a_batch_is_worked_on(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """The membership is librdkafka's: a batch may take longer than max.poll.interval.ms."""
    topic = create_topic()
    fill(bootstrap, topic, range(20))
    properties = {"session.timeout.ms": 1000, "max.poll.interval.ms": 1000}
    with Consumer(bootstrap, topic, group=group, properties=properties) as consumer:
        batches = consumer.arrow(10, wait=PATIENCE_S)
        assert numbers(next(batches)) == list(range(10))
        assert not threading.Event().wait(2.5)
        assert numbers(next(batches)) == list(range(10, 20))
        eventually(lambda: consumer.assignment(), "it is still a member")
