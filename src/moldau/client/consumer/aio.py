"""AsyncConsumer: the consumer for asyncio, with the same names. The engine and its poll thread are the same.

The poll thread wakes the event loop only while somebody waits for messages. Calls that wait for brokers run in threads.
"""

import asyncio
import contextlib
import datetime
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from moldau.base.ids import Offset, TopicPartition
from moldau.client.arguments import check_seconds
from moldau.client.consumer.batches import Gathering, check_batch
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.consumer import BATCH, FILL_S, ROWS, Committable, Consumer
from moldau.client.consumer.engine import LEASE, ConsumerEngine
from moldau.client.consumer.handover import AnyMessage
from moldau.client.consumer.lanes import Order
from moldau.client.consumer.options import (
    BUFFER_BYTES,
    BUFFER_MESSAGES,
    COMMIT_INTERVAL_S,
    CommitMode,
    Delivery,
    Start,
    Topics,
    Where,
)
from moldau.client.consumer.options import Protocol as GroupProtocol
from moldau.client.consumer.poll_loop import CLOSE_S
from moldau.client.consumer.rebalances import Partitions, RebalanceListener
from moldau.client.consumer.retries import Retry
from moldau.client.interceptors import ConsumerInterceptor
from moldau.client.message import Message
from moldau.client.serializers.port import DeserializerKind, K, V
from moldau.client.settings import Properties

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.client.consumer.aio_transactions import AsyncTransactions, Leaving

T = TypeVar("T")

LISTENER_S = 60.0  # longest wait of a rebalance for a coroutine of the listener


class AsyncRebalanceListener:
    """Subclass it to learn of rebalances. The coroutines run on the event loop, and the rebalance waits for them."""

    async def on_assigned(self, partitions: Partitions) -> None:
        """These partitions are read from now on."""

    async def on_revoked(self, partitions: Partitions) -> None:
        """These partitions go to other members; what was done is committed."""

    async def on_lost(self, partitions: Partitions) -> None:
        """These partitions went to other members already: nothing can be committed."""


class AsyncConsumer(Generic[K, V]):
    """`async with AsyncConsumer("localhost:9092", "orders", group="billing") as consumer:` and in it
    `async for message in consumer: …`

    Calls that ask brokers are coroutines. See `Consumer` for when a message is done and what is committed.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *topics: Topics,
        group: str | None = None,
        key: DeserializerKind[K] | None = None,
        value: DeserializerKind[V] | None = None,
        delivery: Delivery = "at-least-once",
        start: Start = "earliest",
        protocol: GroupProtocol = "classic",
        where: Where | None = None,
        retry: Retry | None = None,
        concurrency: int = 1,
        order: Order = "partition",
        listener: RebalanceListener | AsyncRebalanceListener | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        commit: CommitMode = "auto",
        commit_interval: float = COMMIT_INTERVAL_S,
        instance_id: str | None = None,
        buffer_messages: int = BUFFER_MESSAGES,
        buffer_bytes: int = BUFFER_BYTES,
        client_id: str | None = None,
        properties: Properties = None,
        on_stats: Any = None,
    ) -> None:
        self._bridge = _OnLoop(listener) if isinstance(listener, AsyncRebalanceListener) else None
        own = None if isinstance(listener, AsyncRebalanceListener) else listener
        self._set_up(
            Consumer(
                bootstrap,
                *topics,
                group=group,
                key=key,
                value=value,
                delivery=delivery,
                start=start,
                protocol=protocol,
                where=where,
                retry=retry,
                concurrency=concurrency,
                order=order,
                listener=self._bridge or own,
                interceptors=interceptors,
                commit=commit,
                commit_interval=commit_interval,
                instance_id=instance_id,
                buffer_messages=buffer_messages,
                buffer_bytes=buffer_bytes,
                client_id=client_id,
                properties=properties,
                on_stats=on_stats,
            )
        )

    def _set_up(self, consumer: Consumer[K, V]) -> None:
        self._consumer = consumer
        self._arrival: _Arrival | None = None
        self._body: asyncio.Task[Any] | None = None  # that takes messages
        self._transactions: weakref.ref[AsyncTransactions[K, V]] | None = None
        self._leaving: Leaving | None = None

    @property
    def engine(self) -> ConsumerEngine:
        return self._consumer.engine

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        """Messages one by one, until `wakeup`. It can be iterated again."""
        engine = self._begin()
        engine.finish()
        goes_on = engine.goes_on
        try:
            while taken := await self._take(LEASE, None):
                lease = engine.lease(taken)
                for at, message in enumerate(lease.messages):
                    lease.at = at
                    if at >= lease.limit and not goes_on(lease, at):
                        break
                    yield message
                    engine.done(message)
                await asyncio.sleep(0)  # other tasks get their turn even if the body never waits
        finally:
            engine.leave()

    async def poll(self, timeout: float | None = None) -> Message[K, V] | None:  # noqa: ASYNC109  # as Consumer has it
        """The next message; None when the time is over, or after `wakeup`."""
        found = await self.poll_batch(1, timeout)
        return found[0] if found else None

    async def poll_batch(self, n: int = BATCH, timeout: float | None = None) -> Sequence[Message[K, V]]:  # noqa: ASYNC109
        """Up to `n` messages, as soon as there are some; none when the time is over, or after `wakeup`."""
        check_batch(n)
        check_seconds("timeout", timeout)
        engine = self._begin()
        engine.finish()
        found = await self._take(n, timeout) or []
        engine.hold(found)
        return found

    async def batches(self, n: int = BATCH, wait: float = FILL_S) -> AsyncIterator[Sequence[Message[K, V]]]:
        """Batches of up to `n` messages, until `wakeup`. A batch is done when the next one is asked for."""
        check_batch(n)
        check_seconds("wait", wait)
        engine = self._begin()
        engine.finish()
        try:
            while True:
                found: Gathering[Any] = Gathering(n, wait)
                with engine.gathering(found):
                    while found.add(await self._await(partial(engine.take_piece_now, found.room), found.left)):
                        pass
                if found.messages:
                    yield engine.batch_of(found.messages)
                    engine.finish()
                if found.woken:
                    return
        finally:
            engine.leave()

    async def run(self, handler: Callable[[Message[K, V]], Awaitable[object]]) -> None:
        """Call a coroutine function for each message, as `Consumer.run` does; up to `concurrency` at a time, in tasks.

        `wakeup` and `close` end it after the messages in hand. If it is cancelled, handlers are, and their messages are
        not done.
        """
        if self._bridge is not None:
            self._bridge.loop = asyncio.get_running_loop()
        self._consumer._begin_run()
        await self._consumer._runs.run_async(handler)

    async def arrow(
        self, n: int = ROWS, wait: float = FILL_S, *, headers: bool = False
    ) -> "AsyncIterator[pa.RecordBatch]":
        """Messages as pyarrow RecordBatches; see `Consumer.arrow`. They are fetched and decoded in a thread."""
        self._begin()
        batches = self._consumer.arrow(n, wait, headers=headers)
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
        finally:
            await asyncio.to_thread(batches.close)

    def transactions(self, target: object, n: int = BATCH, wait: float = FILL_S) -> "AsyncTransactions[K, V]":
        """Batches of up to `n` messages, each in a transaction with its offsets: exactly once, until `wakeup`.

        `target` is an AsyncProducer with a transactional id, or an AsyncEngine, async_sessionmaker or AsyncSession of
        SQLAlchemy. See `Consumer.transactions`.
        """
        from moldau.client.consumer.aio_transactions import Leaving, open_async_transactions

        self._leaving = self._leaving or Leaving()
        if self._transactions is not None and (old := self._transactions()) is not None:
            old.leave()
        queries = self._consumer._positions.queries
        made: AsyncTransactions[K, V] = open_async_transactions(
            self.engine, queries, target, self._take_for_transactions, n, wait, self._leaving
        )
        self._transactions = weakref.ref(made)
        return made

    async def _take_for_transactions(self, most: int, seconds: float | None) -> list[AnyMessage] | None:
        self._attach()
        self.engine.start()
        return await self._take(most, seconds)

    def _begin(self) -> ConsumerEngine:
        self._attach()
        return self._consumer._begin()

    def _attach(self) -> None:
        loop = asyncio.get_running_loop()
        if self._bridge is not None:
            self._bridge.loop = loop
        if self._arrival is None or self._arrival.loop is not loop:
            if self._arrival is not None:
                self._arrival.end()
            self._arrival = _Arrival(self.engine, loop)
        self._body = asyncio.current_task()

    async def _take(self, most: int, seconds: float | None) -> list[AnyMessage] | None:
        """As the engine's `take_in_time`, without blocking the event loop."""
        return await self._await(partial(self.engine.take_now, most), seconds)

    async def _await(self, take_now: Callable[[], T | None], seconds: float | None) -> T | None:
        assert self._arrival is not None
        loop = self._arrival.loop
        deadline = None if seconds is None else loop.time() + seconds
        while True:
            self._arrival.expect()
            # At most once: it commits first.
            found = await asyncio.to_thread(take_now) if self.engine.blocks else take_now()
            if found is not None:
                return found
            left = None if deadline is None else deadline - loop.time()
            if (left is not None and left <= 0) or not await self._arrival.wait(left):
                return None

    def wakeup(self) -> None:
        """End the iteration that waits for messages, or else the next one; from any thread or signal handler."""
        self._consumer.wakeup()

    def tail(self, n: int = 0) -> "AsyncConsumer[K, V]":
        """A consumer without a group that reads the last `n` messages of each partition, and then those that come."""
        tail: AsyncConsumer[K, V] = AsyncConsumer.__new__(type(self))
        tail._bridge = None
        tail._set_up(self._consumer.tail(n))
        return tail

    @property
    def passed_over(self) -> int:
        """How many messages `where` has passed over."""
        return self.engine.passed_over

    # ── offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def commit(self, what: Committable | None = None, *, wait: bool = True, metadata: str = "") -> None:
        """Commit everything that was handed out, or messages, or offsets by partition."""
        if what is None and self._body is asyncio.current_task():
            self.engine.finish()
        await asyncio.to_thread(self._consumer.commit, what, wait=wait, metadata=metadata)

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await asyncio.to_thread(self._consumer.committed, *partitions)

    async def position(self, *partitions: TopicPartition) -> dict[TopicPartition, Offset]:
        return await asyncio.to_thread(self._consumer.position, *partitions)

    async def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        return await asyncio.to_thread(self._consumer.lag, *partitions)

    # ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def assignment(self) -> set[TopicPartition]:
        return self._consumer.assignment()

    async def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, Offset | None]) -> None:
        await asyncio.to_thread(self._consumer.assign, partitions)

    def seek(self, partition: TopicPartition | Mapping[TopicPartition, Offset], offset: Offset | None = None) -> None:
        self._consumer.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._consumer.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._consumer.seek_to_end(*partitions)

    async def seek_to_time(self, when: datetime.datetime | int, *partitions: TopicPartition) -> None:
        await asyncio.to_thread(self._consumer.seek_to_time, when, *partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        self._consumer.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._consumer.resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        return self._consumer.paused()

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def close(self, timeout: float = CLOSE_S) -> None:  # noqa: ASYNC109  # as Consumer has it
        """Commit what is done, and leave the group. The message in hand is not done."""
        if self._transactions is not None and (opened := self._transactions()) is not None:
            opened.leave()
        if self._leaving is not None:
            await self._leaving.wait()
        if not self._consumer._runs.close_later(timeout):
            await asyncio.to_thread(self._consumer.close, timeout)

    async def __aenter__(self) -> Self:
        if self._bridge is not None:
            self._bridge.loop = asyncio.get_running_loop()
        self._consumer.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._consumer!r}"


class _Arrival:
    """Wakes the event loop when messages came, and only while somebody expects them."""

    def __init__(self, engine: ConsumerEngine, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._came = asyncio.Event()
        self._expected = False
        self.end = engine.add_listener(self._tell)

    def expect(self) -> None:
        """From now on; before looking whether there are messages already."""
        self._came.clear()
        self._expected = True

    async def wait(self, seconds: float | None) -> bool:
        """Whether something came before the time was over."""
        try:
            await asyncio.wait_for(self._came.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _tell(self) -> None:
        """In the poll thread, or in the one that called wakeup."""
        if self._expected:
            self._expected = False
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._came.set)


class _OnLoop(RebalanceListener):
    """Runs the coroutines of an AsyncRebalanceListener on the event loop, and waits for them in the poll thread."""

    def __init__(self, listener: AsyncRebalanceListener) -> None:
        self._listener = listener
        self.loop: asyncio.AbstractEventLoop | None = None

    def on_assigned(self, partitions: Partitions) -> None:
        self._run(self._listener.on_assigned(partitions))

    def on_revoked(self, partitions: Partitions) -> None:
        self._run(self._listener.on_revoked(partitions))

    def on_lost(self, partitions: Partitions) -> None:
        self._run(self._listener.on_lost(partitions))

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        assert self.loop is not None, "set before the consumer starts"
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LISTENER_S)
