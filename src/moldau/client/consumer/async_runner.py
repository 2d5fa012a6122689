"""AsyncConsumer.run: a coroutine for each message, with retries and dead letters. `runner` has threads.

`wakeup` ends a run after the messages in hand. Cancelling it, as Ctrl-C under `asyncio.run` does, cancels the handlers;
their messages are not done.
"""

import asyncio
import contextlib
import inspect
import itertools
import threading
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from moldau.client.consumer.dispatcher import Wait
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.lanes import AnyMessage, Job
from moldau.client.consumer.letters import Letters
from moldau.client.consumer.retries import TryAgain
from moldau.client.consumer.runner import Judge, RunOptions
from moldau.client.errors import InvalidUse

BREATH = 64  # messages, after which other tasks get their turn even if handlers never wait

AsyncHandler: TypeAlias = Callable[[AnyMessage], Awaitable[object]]


class AsyncRunner:
    """One `run` of a consumer, in tasks."""

    def __init__(self, engine: ConsumerEngine, handler: AsyncHandler, options: RunOptions, letters: Letters) -> None:
        if not callable(handler):
            raise InvalidUse(f"{handler!r} is no handler: give a coroutine function of a message")
        self._engine = engine
        self._handler = handler
        self._concurrency = options.concurrency
        self._letters = letters
        self._judge = Judge(options.retry)
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._waiting = 0
        self._changes = 0
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dispatcher = options.dispatcher(engine, self._wake)

    async def run(self) -> None:
        """Run until `stop`, `wakeup` or `close`, until a handler fails, or until it is cancelled."""
        try:
            await asyncio.to_thread(self._letters.open, lambda: self._dispatcher.stopping)
            end = self._dispatcher.start()
            try:
                self._engine.start()
                async with asyncio.TaskGroup() as workers:
                    self._tasks = {workers.create_task(self._work()) for _ in range(self._concurrency)}
            finally:
                end()
        finally:
            self.stop()  # it may have been cancelled before it began
            await asyncio.to_thread(self._letters.close)
            self._over.set()
        if self._dispatcher.failure is not None:
            raise self._dispatcher.failure

    def stop(self) -> None:
        """End the run after the messages in hand; from any thread or signal handler."""
        self._dispatcher.stop()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the run, in another thread than that of the event loop; whether it came."""
        return self._over.wait(timeout)

    @property
    def inside(self) -> bool:
        """Whether the caller is a handler of this run."""
        try:
            return asyncio.current_task() in self._tasks
        except RuntimeError:  # no event loop runs in this thread
            return False

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self) -> None:
        for number in itertools.count(1):
            job = await self._next()
            if job is None:
                return
            await self._process(job)
            if number % BREATH == 0:
                await asyncio.sleep(0)

    async def _next(self) -> Job | None:
        while True:
            seen = self._changes
            found = await asyncio.to_thread(self._dispatcher.next) if self._engine.blocks else self._dispatcher.next()
            if not isinstance(found, Wait):
                return found
            self._waiting += 1
            try:
                if seen == self._changes:
                    self._woken.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._woken.wait(), found.seconds)
            finally:
                self._waiting -= 1

    async def _process(self, job: Job) -> None:
        try:
            waiting = self._handler(job.message)
            if not inspect.isawaitable(waiting):
                problem = "the handler is not a coroutine function: write it with async def, or use Consumer"
                self._dispatcher.fail(job, InvalidUse(problem))
                return
            await waiting
        except Exception as error:  # noqa: BLE001  # judged
            await self._failed(job, error)
        except BaseException as error:
            self._interrupted(job, error)
            raise
        else:
            self._dispatcher.done(job)

    async def _failed(self, job: Job, error: Exception) -> None:
        verdict = self._judge.decide(job, error)
        if isinstance(verdict, TryAgain):
            self._dispatcher.postpone(job, verdict.delay_s)
        elif verdict is None:
            self._dispatcher.fail(job, error)
        else:
            try:
                await asyncio.to_thread(self._letters.write, job.message, verdict)
            except Exception as failure:  # noqa: BLE001  # raised by `run`
                failure.__cause__ = failure.__cause__ or error
                self._dispatcher.fail(job, failure)
            except BaseException as failure:
                self._interrupted(job, failure)
                raise
            else:
                self._dispatcher.done(job)

    def _interrupted(self, job: Job, error: BaseException) -> None:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            self._dispatcher.give_up(job)
        else:
            self._dispatcher.fail(job, error)

    def _wake(self, workers: int) -> None:
        self._changes = next(self._numbers)
        if self._waiting:
            with contextlib.suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                self._loop.call_soon_threadsafe(self._woken.set)
