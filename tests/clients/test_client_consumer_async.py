"""AsyncConsumer on a real broker."""

import asyncio
from functools import partial
from typing import Any

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.consumer.aio import AsyncConsumer, AsyncRebalanceListener
from moldau.client.consumer.progress import OffsetRange
from moldau.client.errors import Closed
from support.brokers.processes import CreateTopic
from support.clients.consuming import both_protocols, fill
from support.eventually import PATIENCE_S, eventually


@pytest.fixture
def group(topic: str, short_waits: dict[str, int]) -> str:
    return f"group-{topic}"


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


def ends_in_hand(consumer: AsyncConsumer[Any, Any]) -> list[int]:
    return [each.end for each in consumer.engine.in_hand() if isinstance(each, OffsetRange)]


def test_async_batches_that_are_cancelled_are_handed_out_again(
    bootstrap: str, create_topic: CreateTopic, group: str
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 3)

    async def take(consumer: AsyncConsumer[Any, str], n: int, wait: float) -> list[str]:
        async for batch in consumer.batches(n, wait):
            return [message.value for message in batch]
        return []

    async def main() -> None:
        async with AsyncConsumer(bootstrap, topic, group=group, value=str) as consumer:
            assert await consumer.poll_batch(5, 0) == []
            gathering = asyncio.create_task(take(consumer, 10, PATIENCE_S))
            taken = partial(ends_in_hand, consumer)
            await asyncio.to_thread(eventually, lambda: taken() == [3], "it gathers three messages", taken)
            gathering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gathering
            assert await take(consumer, 3, PATIENCE_S) == ["0", "1", "2"]
            assert await consumer.poll_batch(5, 0.1) == []

    asyncio.run(main())
