"""Consumer and AsyncConsumer of the Python client on a real broker: every method, in both group protocols."""

import asyncio
import datetime
import gc
import itertools
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from moldau.base.ids import TopicPartition
from moldau.client.consumer.aio import AsyncConsumer, AsyncRebalanceListener
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.rebalances import RebalanceListener
from moldau.client.errors import Closed, DeserializationFailed, Fenced, InvalidUse, KafkaFailure
from moldau.client.interceptors import ConsumerInterceptor
from support.brokers.processes import CreateTopic, StartBroker
from support.clients import confluent
from support.eventually import PATIENCE_S, eventually

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def group(topic: str, short_waits: dict[str, int]) -> str:
    return f"group-{topic}"


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1, **more: Any) -> None:
    """So many records, by turns in each partition; their values are numbers."""
    records = [{"value": str(number), "partition": number % partitions, **more} for number in range(count)]
    confluent.write(bootstrap, topic, records)


def read(consumer: Consumer[Any, Any], count: int) -> list[int]:
    """The values of the next messages."""
    found = []
    for message in consumer:
        found.append(int(message.value))
        if len(found) == count:
            break
    return found


def members(admin: AdminClient, group: str) -> int:
    return len(admin.describe_consumer_groups([group])[group].result(30).members)


# ── groups and progress ─────────────────────────────────────────────────────────────────────────────────────────────


@both_protocols
def test_a_group_goes_on_where_it_was(bootstrap: str, create_topic: CreateTopic, group: str, protocol: Any) -> None:
    """What was asked past is done and committed on close; the message in hand when the loop is left is not."""
    topic = create_topic(partitions=3)
    fill(bootstrap, topic, 300, partitions=3)
    with Consumer(bootstrap, topic, group=group, protocol=protocol, value=str) as consumer:
        first = read(consumer, 100)
        assert consumer.assignment() == {TopicPartition(topic, number) for number in range(3)}
    with Consumer(bootstrap, topic, group=group, protocol=protocol, value=str) as consumer:
        second = read(consumer, 201)
    assert sorted(first[:-1] + second) == list(range(300))


def test_order_within_a_partition(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic(partitions=4)
    fill(bootstrap, topic, 4000, partitions=4)
    with Consumer(bootstrap, topic, group=group, value=str, buffer_messages=150) as consumer:
        values = read(consumer, 4000)
    for partition in range(4):
        assert [value for value in values if value % 4 == partition] == list(range(partition, 4000, 4))


def test_committed_in_the_background(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 10)
    part = TopicPartition(topic, 0)
    with Consumer(bootstrap, topic, group=group, commit_interval=0.05) as consumer:
        stream = iter(consumer)
        for _ in range(5):
            next(stream)
        eventually(lambda: consumer.committed(part)[part] == OffsetAndMetadata(4), "four messages are committed")


def test_at_most_once_commits_first(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """A crash in the body: nothing comes twice. After a clean close nothing is lost either."""
    topic = create_topic()
    fill(bootstrap, topic, 1000)
    part = TopicPartition(topic, 0)
    consumer = Consumer(bootstrap, topic, group=group, delivery="at-most-once", value=str)
    message = next(iter(consumer))
    assert message.value == "0"
    ahead = consumer.committed(part)[part]
    assert ahead is not None
    assert ahead.offset > message.offset
    consumer.close()
    with Consumer(bootstrap, topic, group=group, delivery="at-most-once", value=str) as consumer:
        assert read(consumer, 999) == list(range(1, 1000))


def test_exactly_once_is_refused_without_transactions(bootstrap: str, group: str) -> None:
    with Consumer(bootstrap, "any", group=group, delivery="exactly-once") as consumer:
        for ask in (lambda: next(iter(consumer)), consumer.poll, lambda: next(consumer.batches())):
            with pytest.raises(InvalidUse, match=r"consumer\.transactions\("):
                ask()


def test_manual_commits(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """Nothing is committed unless asked for: the message in hand, messages, offsets with metadata."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, 40, partitions=2)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap, topic, group=group, commit="manual", commit_interval=0.01, value=str) as consumer:
        read(consumer, 20)
    with Consumer(bootstrap, topic, group=group, commit="manual", value=str) as consumer:
        for number, _ in enumerate(consumer):
            if number == 9:
                consumer.commit()
                break
        done = consumer.committed(one, other)
        assert sum(each.offset for each in done.values() if each is not None) == 10
        message = next(iter(consumer))
        consumer.commit(message, metadata="checked")
        assert consumer.committed(message.topic_partition) == {
            message.topic_partition: OffsetAndMetadata(message.offset + 1, "checked")
        }
        consumer.commit({one: 3, other: OffsetAndMetadata(4, "text")})
        assert consumer.committed() == {one: OffsetAndMetadata(3), other: OffsetAndMetadata(4, "text")}
        with pytest.raises(Fenced, match="not assigned"):
            consumer.commit({TopicPartition("other", 0): 1})


def test_commits_without_waiting_keep_their_order(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 200)
    with Consumer(bootstrap, topic, group=group, commit="manual") as consumer:
        for message in consumer:
            consumer.commit(message, wait=False)
            if message.offset == 199:
                break
    with Consumer(bootstrap, topic, group=group) as consumer:
        part = TopicPartition(topic, 0)
        assert consumer.committed(part) == {part: OffsetAndMetadata(200)}


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


def read_all(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    return list(itertools.islice(consumer, count))


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


# ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic()
    headers = [("tier", b"gold"), ("raw", b"\xff"), ("none", None)]
    record = {"key": "7", "value": '{"a": 1}', "headers": headers, "timestamp": 1_234_567}
    confluent.write(bootstrap, topic, [record, {"value": None, "key": None}])
    with Consumer(bootstrap, topic, key=str, value=dict) as consumer:
        message, tombstone = read_all(consumer, 2)
    assert (message.topic, message.partition, message.offset) == (topic, 0, 0)
    assert (message.key, message.value, message.raw_key, message.raw_value) == ("7", {"a": 1}, b"7", b'{"a": 1}')
    assert message.headers == headers
    assert message.props == {"tier": "gold", "none": ""}
    assert message.timestamp == 1_234_567
    assert (tombstone.key, tombstone.value, tombstone.headers) == (None, None, [])


def test_a_value_that_cannot_be_read(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """The body decides: the iteration goes on after it."""
    topic = create_topic()
    confluent.write(bootstrap, topic, ["{", '{"a": 1}'])
    with Consumer(bootstrap, topic, group=group, value=dict) as consumer:
        broken, good = read_all(consumer, 2)
        with pytest.raises(DeserializationFailed) as failed:
            _ = broken.value
        assert (failed.value.partition, failed.value.offset) == (TopicPartition(topic, 0), 0)
        assert good.value == {"a": 1}


def test_batches(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """A batch is done when the next one is asked for."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, 1000, partitions=2)
    with Consumer(bootstrap, topic, group=group, value=str) as consumer:
        seen = []
        for batch in consumer.batches(300):
            assert 0 < len(batch) <= 300
            seen.append([int(message.value) for message in batch])
            if sum(map(len, seen)) == 1000:
                break
        assert sorted(value for batch in seen for value in batch) == list(range(1000))
        with pytest.raises(InvalidUse):
            next(consumer.batches(0))
    with Consumer(bootstrap, topic, group=group, value=str) as consumer:
        again = next(consumer.batches(len(seen[-1]), wait=PATIENCE_S))
        assert sorted(int(message.value) for message in again) == sorted(seen[-1])


def test_poll(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 3)
    with Consumer(bootstrap, topic, group=group, value=str) as consumer:
        found = [consumer.poll(PATIENCE_S) for _ in range(3)]
        assert [message.value for message in found if message is not None] == ["0", "1", "2"]
        assert consumer.poll(0) is None
        assert consumer.poll(0.05) is None
    with Consumer(bootstrap, topic, group=group) as consumer:
        assert consumer.committed(TopicPartition(topic, 0)) == {TopicPartition(topic, 0): OffsetAndMetadata(3)}


def test_where(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    tiers = ["gold", "iron", "silver", "iron"] * 25
    records = [{"value": str(number), "headers": [("tier", tier)]} for number, tier in enumerate(tiers)]
    confluent.write(bootstrap, topic, records)
    with Consumer(bootstrap, topic, group=group, value=str, where={"tier": "gold"}) as consumer:
        assert read(consumer, 25) == list(range(0, 100, 4))
        assert consumer.poll(0.1) is None
        assert consumer.passed_over == 75
        assert set(consumer.lag().values()) == {0}
    with Consumer(bootstrap, topic, value=str, where=lambda message: int(message.value) > 97) as consumer:
        assert read(consumer, 2) == [98, 99]
    with pytest.raises(InvalidUse, match="where"):
        Consumer(bootstrap, topic, where={"tier": 7})


def test_interceptors(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 20)
    committed: list[Any] = []

    class Odd(ConsumerInterceptor):
        def on_consume(self, messages: Any) -> Any:
            return [message for message in messages if int(message.value) % 2]

        def on_commit(self, offsets: Any) -> None:
            committed.append(offsets)

    class Broken(ConsumerInterceptor):
        def on_consume(self, messages: Any) -> Any:
            raise RuntimeError("ignored")

    with Consumer(bootstrap, topic, group=group, value=str, interceptors=[Broken(), Odd()]) as consumer:
        assert read(consumer, 10) == list(range(1, 20, 2))
        consumer.commit()
    assert committed[-1] == {TopicPartition(topic, 0): 20}


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_wakeup_from_another_thread(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """It ends the loop normally, and the consumer can be iterated again."""
    topic = create_topic()
    fill(bootstrap, topic, 5)
    with Consumer(bootstrap, topic, group=group, value=str) as consumer:
        values = []
        for message in consumer:
            values.append(int(message.value))
            if len(values) == 5:
                threading.Timer(0.05, consumer.wakeup).start()
        fill(bootstrap, topic, 5)
        assert values + read(consumer, 5) == [0, 1, 2, 3, 4] * 2
        consumer.wakeup()
        assert list(consumer) == []
        consumer.wakeup()
        assert list(consumer.batches()) == []


def test_after_close(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    consumer = Consumer(bootstrap, topic, group=group)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(consumer.poll)
        eventually(consumer.assignment, "it waits for messages")
        consumer.close()
        assert isinstance(waiting.exception(PATIENCE_S), Closed)
    consumer.close()
    for use in (consumer.poll, consumer.commit, lambda: next(iter(consumer))):
        with pytest.raises(Closed):
            use()


@both_protocols
def test_a_consumer_that_nobody_closed_leaves_its_group(
    bootstrap: str, create_topic: CreateTopic, group: str, admin: AdminClient, protocol: Any
) -> None:
    """When it is garbage: also in the middle of a loop. What was done is committed."""
    topic = create_topic()
    fill(bootstrap, topic, 10)
    for message in Consumer(bootstrap, topic, group=group, protocol=protocol):
        if message.offset == 5:
            break
    gc.collect()
    eventually(lambda: members(admin, group) == 0, "the group is empty")
    with Consumer(bootstrap, topic, group=group, protocol=protocol) as consumer:
        part = TopicPartition(topic, 0)
        assert consumer.committed(part) == {part: OffsetAndMetadata(5)}


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_arguments_that_make_no_sense(bootstrap: str) -> None:
    for wrong in (
        {"delivery": "twice"},
        {"start": "middle"},
        {"protocol": "new"},
        {"commit": "never"},
        {"delivery": "at-most-once"},
        {"commit_interval": 0},
        {"properties": {"enable.auto.commit": "true"}},
    ):
        with pytest.raises(InvalidUse):
            Consumer(bootstrap, "t", **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidUse, match="flags"):
        Consumer(bootstrap, re.compile("t", re.IGNORECASE))
    with pytest.raises(InvalidUse, match=r"no\.such\.property"):
        Consumer(bootstrap, "t", properties={"no.such.property": "1"}).poll(0)


def test_no_offset_to_start_at(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 1)
    with (
        Consumer(bootstrap, topic, group=group, start="error") as consumer,
        pytest.raises(KafkaFailure, match="AUTO_OFFSET_RESET"),
    ):
        consumer.poll(PATIENCE_S)


def test_a_broker_that_is_away_for_a_while(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    """The iteration goes on when it is back; one line in the log when it goes, one when it is back."""
    broker = start_broker(group_initial_rebalance_delay_ms=0)
    confluent.write(broker.bootstrap, "orders", ["0"])
    properties = {"reconnect.backoff.max.ms": 200, "session.timeout.ms": 6000}
    caplog.set_level("INFO", "moldau.client.consumer")
    with Consumer(broker.bootstrap, "orders", group="g", value=str, properties=properties) as consumer:
        assert read(consumer, 1) == [0]
        consumer.commit()
        broker.stop()
        eventually(lambda: "Brokers are not reachable" in caplog.text, "it is noticed")
        assert consumer.poll(0.1) is None
        broker.start()
        confluent.write(broker.bootstrap, "orders", ["1"])
        assert read(consumer, 1) == [1]
    lines = [record.message for record in caplog.records if "reachable" in record.message]
    assert len(lines) == 2, lines


def test_close_while_the_broker_is_away(start_broker: StartBroker) -> None:
    """The commit is given up when the time is over."""
    broker = start_broker(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=500)
    confluent.write(broker.bootstrap, "orders", ["0", "1"])
    properties = {"session.timeout.ms": 1000}
    consumer = Consumer(broker.bootstrap, "orders", group="g", value=str, properties=properties)
    assert read(consumer, 2) == [0, 1]
    broker.stop()
    consumer.close(timeout=1)
    with pytest.raises(Closed):
        consumer.poll()
    assert consumer.engine.loop.join(PATIENCE_S), "the thread ends without a broker"


# ── asyncio ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@both_protocols
def test_async(bootstrap: str, create_topic: CreateTopic, group: str, protocol: Any) -> None:
    """The same names: iteration, batches, commits, positions, listener."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, 400, partitions=2)
    changes: list[str] = []

    class Listener(AsyncRebalanceListener):
        async def on_assigned(self, partitions: Any) -> None:
            await asyncio.sleep(0)
            changes.append("assigned")

        async def on_revoked(self, partitions: Any) -> None:
            changes.append("revoked")

    async def main() -> None:
        consumer = AsyncConsumer(bootstrap, topic, group=group, protocol=protocol, value=str, listener=Listener())
        values = []
        async with consumer:
            async for message in consumer:
                values.append(int(message.value))
                if len(values) == 100:
                    await consumer.commit()
                    break
            assert sum((await consumer.lag()).values()) == 300
            committed = [each.offset for each in (await consumer.committed()).values() if each is not None]
            assert sum(committed) == 100
            async for batch in consumer.batches(50):
                values += [int(message.value) for message in batch]
                if len(values) >= 350:
                    break
            while len(values) < 400:
                last = await consumer.poll(PATIENCE_S)
                assert last is not None
                values.append(int(last.value))
            assert await consumer.poll(0.05) is None
            assert sum((await consumer.position()).values()) == 400
            consumer.seek(TopicPartition(topic, 0), 199)
            again = await consumer.poll(PATIENCE_S)
            assert again is not None
            assert again.value == "398"
            await consumer.seek_to_time(0)
            consumer.pause()
            assert await consumer.poll(0.05) is None
            consumer.resume()
            assert await consumer.poll(PATIENCE_S) is not None
        assert sorted(values) == list(range(400))
        with pytest.raises(Closed):
            await consumer.poll()

    asyncio.run(main())
    assert changes == ["assigned", "revoked"]


def test_async_wakeup_and_cancellation(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 3)

    async def main() -> None:
        async with AsyncConsumer(bootstrap, topic, group=group, value=str) as consumer:
            values = []
            async for message in consumer:
                values.append(message.value)
                if len(values) == 3:
                    asyncio.get_running_loop().call_later(0.05, consumer.wakeup)
            assert values == ["0", "1", "2"]
            waiting = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            fill(bootstrap, topic, 1)
            message = await consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.offset == 3

    asyncio.run(main())


def test_async_lets_other_tasks_run(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """A body that never waits still lets other tasks run, and a slow one does not stop the poll thread."""
    topic = create_topic()
    fill(bootstrap, topic, 5000)

    async def main() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with AsyncConsumer(bootstrap, topic, group=group) as consumer:
            assert await consumer.poll(PATIENCE_S) is not None
            task = asyncio.create_task(other())
            count = 1
            async for _ in consumer:
                count += 1
                if count == 5000:
                    break
            task.cancel()
        assert turns >= 5000 // 250 - 1

    asyncio.run(main())


@both_protocols
def test_async_at_most_once_and_tail(bootstrap: str, create_topic: CreateTopic, group: str, protocol: Any) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 10)

    async def main() -> None:
        options: Any = {"group": group, "protocol": protocol, "delivery": "at-most-once", "value": str}
        async with AsyncConsumer(bootstrap, topic, **options) as consumer:
            async for message in consumer:
                if message.offset == 4:
                    break
            async with consumer.tail(2) as tail:
                seen = [message.value async for message, _ in _both(tail, 2)]
                assert seen == ["8", "9"]
        async with AsyncConsumer(bootstrap, topic, **options) as consumer:
            message = await consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.offset == 5

    asyncio.run(main())


async def _both(consumer: Any, count: int) -> Any:
    number = 0
    async for message in consumer:
        number += 1
        yield message, number
        if number == count:
            return
