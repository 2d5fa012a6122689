"""Transactions for asyncio: the same steps as in `transactions`, run where they do not block the event loop."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from moldau.client.consumer.database_target import DatabaseTarget
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.handover import AnyMessage
from moldau.client.consumer.kafka_target import KafkaTarget
from moldau.client.consumer.queries import Queries
from moldau.client.consumer.transaction_targets import Batch
from moldau.client.consumer.transactions import Steps, check
from moldau.client.errors import InvalidUse
from moldau.client.offset_store.store import open_async_store
from moldau.client.producer.aio import AsyncProducer, for_threads, in_thread
from moldau.client.serializers.port import K, V

logger = logging.getLogger(__name__)

T = TypeVar("T")

Take = Callable[[int, float | None], Awaitable[list[AnyMessage] | None]]


class Run(Protocol):
    """Calls a function that may wait for a broker or a database, to its end."""

    async def __call__(self, function: Callable[..., T], /, *arguments: Any) -> T: ...


class AsyncTransactions(Generic[K, V]):
    """Iterates over batches, as `Transactions` does. Leaving the loop aborts its batch in a task of its own."""

    def __init__(
        self, engine: ConsumerEngine, steps: Steps, run: Run, take: Take, n: int, wait: float, leaving: "Leaving"
    ) -> None:
        self._engine = engine
        self._steps = steps
        self._run = run
        self._take = take
        self._n = n
        self._wait = wait
        self._leaving = leaving
        self._left = False
        self._ended = False
        self._woken = False  # while a batch was being filled

    def __aiter__(self) -> "AsyncTransactions[K, V]":
        self._left = True  # a loop that begins again has left its batch
        return self

    async def __anext__(self) -> Batch[K, V]:
        if self._ended or self._steps.closed:
            raise StopAsyncIteration
        await self._leaving.wait()
        self._leaving.loop = asyncio.get_running_loop()
        if self._left:
            self._left = False
            await self._run(self._steps.abandon)
        if pause_s := await self._run(self._steps.finish):
            await asyncio.sleep(pause_s)
        while True:
            pause_s = await self._run(self._steps.prepare)
            if not pause_s:
                messages = await self._messages()
                if not messages:
                    raise StopAsyncIteration
                batch, pause_s = await self._run(self._steps.begin, messages)
                if batch is not None:
                    return batch
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Abort the batch that is open, and end the iteration."""
        await self._run(self._steps.close)

    def leave(self) -> None:
        """End the iteration, and abort the batch that is open, in a task."""
        if not self._ended and not self._steps.closed:
            self._ended = True
            self._leaving.start(self._run, self._steps)

    def __del__(self) -> None:
        self.leave()

    async def _messages(self) -> list[AnyMessage]:
        """Up to `n` messages, or as many as come within `wait` seconds after the first; none after `wakeup`."""
        if self._woken:
            self._woken = False
            return []
        loop = asyncio.get_running_loop()
        found = await self._take(self._n, None) or []
        until = loop.time() + self._wait
        more: list[AnyMessage] | None = found
        try:
            while more and len(found) < self._n:
                more = await self._take(self._n - len(found), max(until - loop.time(), 0))
                found += more or ()
        except BaseException:
            self._engine.rewind(found)
            raise
        self._woken = bool(found) and more == []
        return found


class Leaving:
    """Aborts of batches whose loops were left; the next loop waits for them."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Future[None]] = set()

    def start(self, run: Run, steps: Steps) -> None:
        """From any thread: objects are deleted anywhere."""
        loop = self.loop
        if loop is None:
            return
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                self._start(run, steps)
                return
        if loop.is_closed():
            logger.warning("A batch was left open: its event loop has ended")
        else:
            loop.call_soon_threadsafe(self._start, run, steps)

    async def wait(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, run: Run, steps: Steps) -> None:
        task = asyncio.ensure_future(run(steps.close))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Future[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("A batch was not aborted when its loop was left: %s", error)


def open_async_transactions(
    engine: ConsumerEngine, queries: Queries, target: object, take: Take, n: int, wait: float, leaving: Leaving
) -> AsyncTransactions[Any, Any]:
    """The loop for what the user passed to `AsyncConsumer.transactions`."""
    group = check(engine, n)
    if isinstance(target, AsyncProducer):
        steps = Steps(engine, KafkaTarget(engine, for_threads(target.transaction())))
        return AsyncTransactions(engine, steps, in_thread, take, n, wait, leaving)
    store = open_async_store(target, group)
    if store is None:
        accepted = "a transactional AsyncProducer, or an AsyncEngine, async_sessionmaker or AsyncSession of SQLAlchemy"
        raise InvalidUse(f"transactions() of an AsyncConsumer takes {accepted}; not {type(target).__name__}")
    steps = Steps(engine, DatabaseTarget(engine, store, store.off_the_loop(queries.committed)))
    return AsyncTransactions(engine, steps, store.run, take, n, wait, leaving)
