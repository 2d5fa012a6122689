"""Consumer of the Python client on a real broker: groups, progress, messages, the end, errors, in both protocols."""

import gc
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from moldau.base.ids import TopicPartition
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.consumer import Consumer
from moldau.client.errors import Closed, DeserializationFailed, Fenced, InvalidUse, KafkaFailure
from moldau.client.interceptors import ConsumerInterceptor
from support.brokers.processes import CreateTopic, StartBroker
from support.clients import confluent
from support.clients.consuming import both_protocols, fill, members, read, read_all
from support.eventually import PATIENCE_S, eventually


@pytest.fixture
def group(topic: str, short_waits: dict[str, int]) -> str:
    return f"group-{topic}"


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


def test_poll_batch(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """What there is, up to n; asking for more says that it is done."""
    topic = create_topic()
    part = TopicPartition(topic, 0)
    with Consumer(bootstrap, topic, group=group, value=str) as consumer:
        assert consumer.poll_batch(10, 0.2) == []
        fill(bootstrap, topic, 25)
        found = [int(message.value) for message in consumer.poll_batch(10, PATIENCE_S)]
        while len(found) < 25:
            batch = consumer.poll_batch(10, PATIENCE_S)
            assert 1 <= len(batch) <= 10
            found += [int(message.value) for message in batch]
        assert found == [*range(25)]
        assert consumer.poll_batch(timeout=0) == []
        consumer.commit()
        assert consumer.committed(part)[part] == OffsetAndMetadata(25)
        consumer.wakeup()
        assert consumer.poll_batch() == []
        for wrong in (0, -1, "5"):
            with pytest.raises(InvalidUse, match="one message at least"):
                consumer.poll_batch(wrong)  # type: ignore[arg-type]


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
