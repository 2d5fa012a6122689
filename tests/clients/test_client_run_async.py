"""AsyncConsumer.run on real brokers: tasks instead of threads, retries, and how it ends."""

import asyncio
from collections import Counter, defaultdict
from typing import Any

import pytest

from moldau.client.consumer.aio import AsyncConsumer
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.retries import Backoff, Retry
from moldau.client.errors import InvalidUse
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients import confluent
from support.clients.running import AnyMessage, committed, fill, place
from support.eventually import PATIENCE_S, eventually

NOW = Backoff(first=0.01, most=0.01)


def test_keys_are_processed_at_the_same_time_each_in_order(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    fill(broker.bootstrap, topic, 300, 300, keys=8)
    seen: dict[bytes | None, list[tuple[int, int]]] = defaultdict(list)
    failed: set[tuple[int, int]] = set()

    async def run() -> None:
        meeting = asyncio.Barrier(8)
        consumer = AsyncConsumer(
            broker.bootstrap,
            topic,
            group=topic,
            concurrency=8,
            order="key",
            retry=Retry(times=1, backoff=NOW),
        )

        async def handle(message: AnyMessage) -> None:
            if message.offset % 9 == 0 and place(message) not in failed:
                failed.add(place(message))
                raise ConnectionError("now and then")
            if message.offset < 8 and message.partition == 0:
                async with asyncio.timeout(PATIENCE_S):
                    await meeting.wait()
            seen[message.raw_key].append(place(message))
            if sum(map(len, seen.values())) == 600:
                consumer.wakeup()

        async with consumer:
            await consumer.run(handle)

    asyncio.run(run())
    for key in range(8):
        places = seen[str(key).encode()]
        for partition in range(2):
            assert [each for each in places if each[0] == partition] == [
                (partition, offset) for offset in range(key, 300, 8)
            ]
    with Consumer(broker.bootstrap, group=topic) as other:
        assert committed(other, topic, 2) == [300, 300]


def test_retry_topic_and_dead_letters(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic, again, dead = create_topic(), create_topic(), create_topic()
    fill(broker.bootstrap, topic, 5)
    seen: list[tuple[str, str]] = []

    async def run() -> None:
        retry = Retry(times=1, backoff=NOW, topic=again, dead=dead)
        async with AsyncConsumer(broker.bootstrap, topic, group=topic, value=str, retry=retry) as consumer:

            async def handle(message: AnyMessage) -> None:
                await asyncio.sleep(0)
                seen.append((message.topic, message.value))
                if message.value in ("1", "3") and not (message.value == "1" and message.topic == again):
                    raise ConnectionError(message.value)

            running = asyncio.create_task(consumer.run(handle))
            await asyncio.to_thread(
                eventually, lambda: (again, "1") in seen and (again, "3") in seen, "they are tried again"
            )
            consumer.wakeup()
            await running

    asyncio.run(run())
    assert Counter(seen) == {**{(topic, str(n)): 1 for n in range(5)}, (again, "1"): 1, (again, "3"): 1}
    (letter,) = confluent.read(broker.bootstrap, dead)
    assert (letter.value, dict(letter.headers)["moldau.attempt"]) == (b"3", b"2")


def test_an_exception_ends_the_run_and_its_message_is_not_done(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    fill(broker.bootstrap, topic, 10)

    async def run() -> None:
        async def handle(message: AnyMessage) -> None:
            if message.offset == 4:
                raise LookupError("no such customer")

        async with AsyncConsumer(broker.bootstrap, topic, group=topic, concurrency=3) as consumer:
            with pytest.raises(LookupError, match="no such customer"):
                await consumer.run(handle)

    asyncio.run(run())
    with Consumer(broker.bootstrap, group=topic) as other:
        assert committed(other, topic) == [4]


def test_cancelling_a_run_cancels_its_handlers(broker: AnyBroker, create_topic: CreateTopic) -> None:
    """Their messages are not done, and come again in the next run."""
    topic = create_topic(partitions=2)
    fill(broker.bootstrap, topic, 5, 5)
    begun: list[tuple[int, int]] = []
    cancelled: list[tuple[int, int]] = []
    done: list[tuple[int, int]] = []

    async def run() -> None:
        stuck = True
        consumer = AsyncConsumer(broker.bootstrap, topic, group=topic, concurrency=2)

        async def handle(message: AnyMessage) -> None:
            begun.append(place(message))
            if stuck and message.offset == 2:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(place(message))
                    raise
            done.append(place(message))

        async with consumer:
            running = asyncio.create_task(consumer.run(handle))
            await asyncio.to_thread(eventually, lambda: begun.count((0, 2)) and begun.count((1, 2)), "both wait")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            stuck = False
            running = asyncio.create_task(consumer.run(handle))
            await asyncio.to_thread(eventually, lambda: len(done) >= 10, "all are processed")
            await consumer.close()
            await running

    asyncio.run(run())
    assert sorted(cancelled) == [(0, 2), (1, 2)]
    assert sorted(done) == [(partition, offset) for partition in range(2) for offset in range(5)]
    with Consumer(broker.bootstrap, group=topic) as other:
        assert committed(other, topic, 2) == [5, 5]


def test_a_handler_may_close_its_consumer(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    fill(broker.bootstrap, topic, 10)

    async def run() -> None:
        consumer = AsyncConsumer(broker.bootstrap, topic, group=topic)

        async def handle(message: AnyMessage) -> None:
            if message.offset == 4:
                await consumer.close()

        await consumer.run(handle)

    asyncio.run(run())
    with Consumer(broker.bootstrap, group=topic) as other:
        assert committed(other, topic) == [5]


def test_at_most_once_does_not_block_the_event_loop(broker: AnyBroker, create_topic: CreateTopic) -> None:
    """Offsets are committed before messages are handed out, in a thread."""
    topic = create_topic()
    fill(broker.bootstrap, topic, 100)
    seen: list[int] = []

    async def run() -> None:
        consumer = AsyncConsumer(broker.bootstrap, topic, group=topic, delivery="at-most-once", concurrency=3)

        async def handle(message: AnyMessage) -> None:
            seen.append(message.offset)
            if message.offset == 99:
                consumer.wakeup()

        async with consumer:
            await consumer.run(handle)

    asyncio.run(run())
    assert sorted(seen) == list(range(100))


def test_a_plain_function_is_no_handler_here(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    fill(broker.bootstrap, topic, 1)

    async def run() -> None:
        not_async: Any = lambda message: None  # noqa: E731
        async with AsyncConsumer(broker.bootstrap, topic, group=topic) as consumer:
            with pytest.raises(InvalidUse, match="async def"):
                await consumer.run(not_async)

    asyncio.run(run())
