"""The AsyncProducer of the Python client on a real broker: what differs from Producer, and that names are the same."""

import asyncio
import contextlib
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from moldau.client.errors import (
    BufferFull,
    Closed,
    DeliveryFailed,
    Fenced,
    InvalidUse,
    KafkaFailure,
    RecordTooLarge,
    TimedOut,
)
from moldau.client.producer.aio import AsyncProducer, AsyncTransaction
from moldau.client.producer.delivery import AsyncDelivery, AsyncDeliveryBatch, Delivered, Delivery, DeliveryBatch
from moldau.client.producer.producer import Producer
from moldau.client.producer.transactions import Transaction
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import read_values
from support.eventually import eventually

S = 30.0
NOWHERE = "127.0.0.1:1"


def run(work: Coroutine[Any, Any, object]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@contextlib.asynccontextmanager
async def dropping(producer: AsyncProducer) -> AsyncIterator[AsyncProducer]:
    """A producer whose last failures do not matter."""
    try:
        yield producer
    finally:
        with contextlib.suppress(DeliveryFailed):
            await producer.close(0)


@pytest.mark.parametrize(
    ("sync", "aio"),
    [
        (Producer, AsyncProducer),
        (Delivery, AsyncDelivery),
        (DeliveryBatch, AsyncDeliveryBatch),
        (Transaction, AsyncTransaction),
    ],
)
def test_names_and_arguments_are_the_same(sync: type, aio: type) -> None:
    def public(kind: type) -> dict[str, list[str]]:
        found = {name: method for name, method in inspect.getmembers(kind, callable) if not name.startswith("_")}
        return {name: list(inspect.signature(method).parameters) for name, method in found.items()}

    assert public(sync) == public(aio)
    assert inspect.signature(sync) == inspect.signature(aio)


def test_sending(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()

    async def work() -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            delivery = await producer.send(topic, "a", timestamp=1_700_000_000_000)
            assert await delivery == Delivered(topic, 0, 0, 1_700_000_000_000)
            assert await delivery == await delivery.result(S), "as often as one likes"
            assert await delivery.exception() is None
            assert (await (await producer.send_many(topic, ["b", "c"]))) == 2
            assert await producer.partitions(topic) == 1
            await producer.send(topic, "d")  # fire and forget
            await producer.flush(S)
            await producer.send(topic, "e")

    run(work())
    assert read_values(broker.bootstrap, topic) == ["a", "b", "c", "d", "e"]


def test_many_coroutines_send_and_wait(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()

    async def work() -> None:
        async with AsyncProducer(broker.bootstrap, buffer_messages=100) as producer:

            async def one(number: int) -> int:
                delivery = await producer.send(topic, str(number))
                return (await delivery).offset

            assert await asyncio.gather(*(one(number) for number in range(3_000))) == list(range(3_000)), (
                "coroutines get room in the order in which they came"
            )

    run(work())


def test_callbacks_run_on_the_event_loop(
    broker: AnyBroker, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic()

    async def work() -> None:
        called: list[tuple[AsyncDelivery, asyncio.AbstractEventLoop]] = []

        def tell(delivery: AsyncDelivery) -> None:
            called.append((delivery, asyncio.get_running_loop()))

        def fail(_: AsyncDelivery) -> None:
            raise ValueError("of the callback")

        async with AsyncProducer(broker.bootstrap) as producer:
            first = await producer.send(topic, "a", on_delivery=fail)
            first.add_done_callback(tell)
            await producer.flush(S)
            assert called == [(first, asyncio.get_running_loop())]
            first.add_done_callback(tell)
            await producer.flush(S)
            assert len(called) == 2

    run(work())
    assert "of the callback" in caplog.text


def test_the_event_loop_runs_while_a_coroutine_sends(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()

    async def work() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        async with AsyncProducer(broker.bootstrap) as producer:
            for _ in range(1_000):
                await producer.send(topic, b"x")
            assert turns >= 10
            turns = 0
            await producer.flush(S)
            assert turns > 0
        counting.cancel()

    run(work())


def test_a_partitioner_of_the_users(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=3)

    async def work() -> None:
        async with AsyncProducer(broker.bootstrap, partitioner=lambda *given: given[3] - 1) as producer:
            assert (await (await producer.send(topic, "a"))).partition == 2
            assert await (await producer.send_many(topic, ["a", "b"])) == 2

    run(work())


# -- failures


def test_failures(broker: AnyBroker, create_topic: CreateTopic) -> None:
    small = create_topic(configs={"max.message.bytes": "1000"})

    async def work() -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            delivery = await producer.send(small, b"x" * 2_000)
            with pytest.raises(RecordTooLarge):
                await delivery
            assert isinstance(await delivery.exception(), RecordTooLarge)
            with pytest.raises(RecordTooLarge):
                await producer.send(small, b"x" * 2_000_000)
            with pytest.raises(DeliveryFailed, match="1 record was not delivered"):
                await (await producer.send_many(small, [b"x" * 2_000_000, b"x"]))
            with pytest.raises(InvalidUse):
                await producer.send(small, b"x", partition=-1)
            with pytest.raises(InvalidUse, match="no transactional_id"):
                producer.transaction()
            await producer.flush(S)
            await producer.send(small, b"x" * 2_000)
            with pytest.raises(DeliveryFailed):
                await producer.flush(S)
        with pytest.raises(Closed):
            await producer.send(small, b"x")
        with pytest.raises(Closed):
            await producer.flush()
        await producer.close()

    run(work())


def test_a_full_buffer_holds_back_coroutines_and_not_the_loop() -> None:
    async def work() -> None:
        async with dropping(AsyncProducer(NOWHERE, buffer_messages=5, max_block=0.3)) as producer:
            for _ in range(5):
                await producer.send("t", b"x")
            late = [asyncio.create_task(producer.send("t", b"x")) for _ in range(3)]
            await asyncio.sleep(0)
            assert not any(task.done() for task in late), "they wait, and the loop runs"
            for task in late:
                with pytest.raises(BufferFull):
                    await task
            with pytest.raises(BufferFull) as refused:
                await producer.send_many("t", [b"x"] * 3)
            assert refused.value.sent == 0

    run(work())


def test_waits_end_in_time_and_can_be_cancelled() -> None:
    async def work() -> None:
        async with dropping(AsyncProducer(NOWHERE, buffer_messages=1)) as producer:
            delivery = await producer.send("t", b"x")
            with pytest.raises(TimedOut):
                await delivery.result(0.01)
            with pytest.raises(TimedOut):
                await producer.flush(0.3)
            waits: list[Callable[[], Coroutine[Any, Any, object]]] = [
                delivery.result,
                producer.flush,
                lambda: producer.send("t", b"y"),
            ]
            for wait in waits:
                task = asyncio.create_task(wait())
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert not delivery.done()

    run(work())


def test_a_loop_that_ends_without_close(broker: AnyBroker, create_topic: CreateTopic) -> None:
    """At the end of the process the records are sent."""
    topic = create_topic()
    program = f"""
import asyncio
from moldau.client.producer.aio import AsyncProducer
producer = AsyncProducer({broker.bootstrap!r}, linger=0.5)
async def work():
    for number in range(100):
        await producer.send({topic!r}, str(number), on_delivery=lambda delivery: None)
asyncio.run(work())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=S, check=True)
    assert "Traceback" not in done.stderr
    assert len(read_values(broker.bootstrap, topic)) == 100


def test_no_thread_stays_behind(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic, before = create_topic(), threading.active_count()

    async def work() -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            await producer.send(topic, "x")

    run(work())
    assert threading.active_count() <= before


# -- transactions


def test_transactions(broker: AnyBroker, create_topic: CreateTopic, topic: str, short_waits: dict[str, int]) -> None:
    name = create_topic(configs={"max.message.bytes": "1000"})

    async def work() -> None:
        async with AsyncProducer(broker.bootstrap, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.send(name, "a")
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with producer.transaction():
                    await producer.send(name, "b")
                    raise ZeroDivisionError
            started = asyncio.Event()

            async def endless() -> None:
                async with producer.transaction():
                    await (await producer.send(name, "c"))
                    started.set()
                    await asyncio.sleep(600)

            task = asyncio.create_task(endless())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(RecordTooLarge) as refused:
                async with producer.transaction():
                    await producer.send(name, "x" * 2_000)
            assert refused.value.abortable
            while not await succeeds(producer):
                continue

    async def succeeds(producer: AsyncProducer) -> bool:
        """librdkafka's sequence numbers have a gap after a record that failed: it may have to abort once more."""
        try:
            async with producer.transaction():
                await producer.send(name, "d")
        except KafkaFailure as failure:
            if not failure.abortable:
                raise
            return False
        return True

    run(work())
    eventually(lambda: read_values(broker.bootstrap, name) == ["a", "d"], "what was committed is visible")


def test_a_second_producer_fences_the_first(
    broker: AnyBroker, create_topic: CreateTopic, topic: str, short_waits: dict[str, int]
) -> None:
    name = create_topic()

    async def work() -> None:
        first = AsyncProducer(broker.bootstrap, transactional_id=topic)
        with pytest.raises(Fenced):  # noqa: PT012
            async with first.transaction():
                await (await first.send(name, "lost"))
                async with AsyncProducer(broker.bootstrap, transactional_id=topic) as second, second.transaction():
                    await second.send(name, "kept")
        await first.close()

    run(work())
    eventually(lambda: read_values(broker.bootstrap, name) == ["kept"], "what was committed is visible")
