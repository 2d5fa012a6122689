"""Consumer.run on real brokers: concurrency, order, and how it ends. Retry topics are in test_client_retries.py."""

import threading
from collections import Counter, defaultdict
from typing import Any

import pytest

from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.retries import Backoff, Retry
from moldau.client.errors import InvalidUse
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.running import AnyMessage, Running, committed, fill, place, running
from support.eventually import PATIENCE_S, eventually

NOW = Backoff(first=0.01, most=0.01)


def test_messages_are_done_when_the_handler_returns(broker: AnyBroker, create_topic: CreateTopic) -> None:
    """A wakeup lets the message in hand end; the next run goes on behind it, and so does the next member."""
    topic = create_topic(partitions=2)
    fill(broker.bootstrap, topic, 50, 50)
    seen: list[tuple[int, int]] = []
    with Consumer(broker.bootstrap, topic, group=topic, value=str) as consumer:

        def handle(message: AnyMessage) -> None:
            assert message.value == str(message.offset)
            seen.append(place(message))
            if len(seen) in (30, 60):
                consumer.wakeup()

        consumer.run(handle)
        assert len(seen) == 30
        consumer.run(handle)
        assert len(seen) == 60
    with (
        Consumer(broker.bootstrap, topic, group=topic) as consumer,
        running(consumer, lambda each: seen.append(place(each))),
    ):
        eventually(lambda: len(seen) >= 100, "all are processed")
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(50)]


def test_partitions_are_processed_at_the_same_time_each_in_order(broker: AnyBroker, create_topic: CreateTopic) -> None:
    """Four handlers meet, again and again: with less concurrency they would wait for ever."""
    topic = create_topic(partitions=4)
    fill(broker.bootstrap, topic, 200, 200, 200, 200)
    meeting = threading.Barrier(4)
    seen: dict[int, list[int]] = defaultdict(list)

    def handle(message: AnyMessage) -> None:
        if message.offset % 50 == 0:
            meeting.wait(PATIENCE_S)
        seen[message.partition].append(message.offset)

    consumer = Consumer(broker.bootstrap, topic, group=topic, concurrency=4)
    with running(consumer, handle):
        eventually(lambda: sum(map(len, list(seen.values()))) == 800, "all are processed")
        eventually(lambda: committed(consumer, topic, 4) == [200] * 4, "all are committed")
    assert seen == {partition: list(range(200)) for partition in range(4)}


def test_keys_of_one_partition_are_processed_at_the_same_time_each_in_order(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    """With handlers that fail now and then: what follows of the key waits."""
    topic = create_topic()
    fill(broker.bootstrap, topic, 600, keys=6)
    meeting = threading.Barrier(6)
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    failed: set[int] = set()

    def handle(message: AnyMessage) -> None:
        if message.offset % 7 == 0 and message.offset not in failed:
            failed.add(message.offset)
            raise ConnectionError("now and then")
        if message.offset < 6:
            meeting.wait(PATIENCE_S)
        seen[message.raw_key].append(message.offset)

    retry = Retry(times=1, backoff=NOW, keep_order=True)
    consumer = Consumer(broker.bootstrap, topic, group=topic, concurrency=6, order="key", retry=retry)
    with running(consumer, handle):
        eventually(lambda: sum(map(len, list(seen.values()))) == 600, "all are processed")
        eventually(lambda: committed(consumer, topic) == [600], "all are committed")
    assert seen == {str(key).encode(): list(range(key, 600, 6)) for key in range(6)}
    assert len(failed) == 86


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_partition_that_stands_still_does_not_stop_others(
    broker: AnyBroker, create_topic: CreateTopic, concurrency: int
) -> None:
    """Its messages would fill the consumer's buffer, which is small here: the others would never come."""
    topic = create_topic(partitions=2)
    fill(broker.bootstrap, topic, 3000)
    seen: Counter[tuple[int, int]] = Counter()
    broken = threading.Event()
    broken.set()

    def handle(message: AnyMessage) -> None:
        if broken.is_set() and message.partition == 0 and message.offset == 5:
            raise ConnectionError("the database of partition 0 is away")
        seen[place(message)] += 1

    retry = Retry(times=10**9, backoff=Backoff(first=0.3, factor=1.0))
    consumer = Consumer(broker.bootstrap, topic, group=topic, concurrency=concurrency, retry=retry, buffer_messages=200)
    with running(consumer, handle):
        eventually(lambda: seen[0, 4], "partition 0 is processed up to the message that fails")
        fill(broker.bootstrap, topic, 0, 500)
        eventually(lambda: seen[1, 499], "partition 1 is processed")
        assert not seen[0, 5]
        broken.clear()
        eventually(lambda: len(seen) == 3500, "all are processed")
    assert set(seen.values()) == {1}


def test_an_exception_ends_the_run_and_its_message_is_not_done(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=3)
    fill(broker.bootstrap, topic, 100, 100, 100)
    seen: Counter[tuple[int, int]] = Counter()
    fails = True

    def handle(message: AnyMessage) -> None:
        if fails and place(message) == (1, 40):
            raise LookupError("no such customer")
        seen[place(message)] += 1

    with Consumer(broker.bootstrap, topic, group=topic, concurrency=3) as consumer:
        with pytest.raises(LookupError, match="no such customer"):
            consumer.run(handle)
        consumer.commit()
        assert committed(consumer, topic, 3)[1] == 40
        assert seen[1, 39] == 1
        fails = False
        with running(consumer, handle):
            eventually(lambda: len(seen) == 300, "all are processed")
    assert set(seen.values()) == {1}, "what had not begun was not done, and what had ended was not repeated"


def test_close_waits_for_the_message_in_hand(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    fill(broker.bootstrap, topic, 10)
    begun, proceed = threading.Event(), threading.Event()

    def handle(message: AnyMessage) -> None:
        begun.set()
        assert proceed.wait(PATIENCE_S)

    consumer = Consumer(broker.bootstrap, topic, group=topic)
    run = Running(consumer, handle)
    assert begun.wait(PATIENCE_S)
    closing = threading.Thread(target=consumer.close, args=(PATIENCE_S,))
    closing.start()
    proceed.set()
    closing.join(PATIENCE_S)
    run.end()
    with Consumer(broker.bootstrap, group=topic) as other:
        assert committed(other, topic) == [1]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_handler_may_close_its_consumer(broker: AnyBroker, create_topic: CreateTopic, concurrency: int) -> None:
    topic = create_topic()
    fill(broker.bootstrap, topic, 10)
    consumer = Consumer(broker.bootstrap, topic, group=topic, concurrency=concurrency)
    consumer.run(lambda message: consumer.close() if message.offset == 4 else None)
    with Consumer(broker.bootstrap, group=topic) as other:
        assert committed(other, topic) == [5]


@pytest.mark.parametrize("order", ["partition", "key"])
def test_at_most_once_processes_what_was_taken_and_nothing_twice(
    broker: AnyBroker, create_topic: CreateTopic, order: Any
) -> None:
    topic = create_topic()
    fill(broker.bootstrap, topic, 300, keys=7)
    seen: list[int] = []
    for end in (20, 150, 300):
        with Consumer(
            broker.bootstrap, topic, group=topic, concurrency=3, order=order, delivery="at-most-once"
        ) as consumer:

            def handle(message: AnyMessage, end: int = end, consumer: Consumer[Any, Any] = consumer) -> None:
                seen.append(message.offset)
                if len(seen) >= end:
                    consumer.wakeup()

            if len(seen) < 300:
                consumer.run(handle)
    assert sorted(seen) == list(range(300))


def test_a_handler_that_commits_its_message_commits_nothing_that_is_not_done(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    """By key, others of its partition may still be in hand."""
    topic = create_topic()
    fill(broker.bootstrap, topic, 40, keys=2)
    proceed, seen = threading.Event(), Counter[int]()
    consumer = Consumer(broker.bootstrap, topic, group=topic, concurrency=2, order="key", commit="manual")

    def handle(message: AnyMessage) -> None:
        if message.offset == 10:
            assert proceed.wait(PATIENCE_S)
        consumer.commit(message)
        seen[message.offset] += 1

    with running(consumer, handle):
        eventually(lambda: seen[39], "the odd ones are processed")
        assert committed(consumer, topic) == [10]
        proceed.set()
        eventually(lambda: committed(consumer, topic) == [40], "all are committed")
    assert seen == dict.fromkeys(range(40), 1)


def test_a_run_that_fails_does_not_keep_others_from_its_partitions(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    """A handler failed, another one still works: when the partitions go to another member, it gets both messages."""
    topic = create_topic(partitions=2)
    fill(broker.bootstrap, topic, 2, 2)
    meeting, met, proceed = threading.Barrier(2), threading.Event(), threading.Event()
    seen: Counter[tuple[int, int]] = Counter()

    def handle(message: AnyMessage) -> None:
        meeting.wait(PATIENCE_S)
        met.set()
        if message.partition == 0:
            raise LookupError("no such customer")
        assert proceed.wait(PATIENCE_S)

    failing = Consumer(broker.bootstrap, topic, group=topic, concurrency=2)
    run = Running(failing, handle)
    assert met.wait(PATIENCE_S)
    other = Consumer(broker.bootstrap, topic, group=topic)
    with running(other, lambda message: seen.update([place(message)])):
        eventually(lambda: len(failing.engine.in_hand()) <= 1, "what failed is given back")
        proceed.set()
        with pytest.raises(LookupError):
            run.end()
        failing.close()
        eventually(lambda: len(seen) == 3, "the other member processes the rest")
    assert seen == {(0, 0): 1, (0, 1): 1, (1, 1): 1}


def test_a_consumer_has_one_run_at_a_time(broker: AnyBroker, create_topic: CreateTopic) -> None:
    consumer = Consumer(broker.bootstrap, create_topic(), group="one at a time")
    with running(consumer, lambda message: None):
        eventually(lambda: consumer.assignment(), "it runs")
        with pytest.raises(InvalidUse, match="active already"):
            consumer.run(lambda message: None)
        with pytest.raises(InvalidUse, match="run is active"):
            consumer.poll(0)


def test_a_coroutine_function_is_no_handler_here(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    fill(broker.bootstrap, topic, 1)

    async def handle(message: AnyMessage) -> None:
        raise AssertionError("nobody awaits it")

    retry = Retry(times=3)
    with Consumer(broker.bootstrap, topic, group=topic, retry=retry) as consumer:
        with pytest.raises(InvalidUse, match="use AsyncConsumer"):
            consumer.run(handle)
        consumer.commit()
        assert committed(consumer, topic) == [0]
