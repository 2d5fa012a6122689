"""Runs of one consumer, one at a time: what `run`, `wakeup` and `close` of Consumer and AsyncConsumer call."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import TypeVar

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.async_runner import AsyncHandler, AsyncRunner
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.letters import Letters
from moldau.client.consumer.queries import Queries
from moldau.client.consumer.rebalances import Partitions
from moldau.client.consumer.runner import Handler, Runner, RunOptions
from moldau.client.consumer.subscriptions import BEGINNING
from moldau.client.errors import InvalidUse

logger = logging.getLogger(__name__)

R = TypeVar("R", Runner, AsyncRunner)


class Runs:
    """At most one run is active."""

    def __init__(self, engine: ConsumerEngine, options: RunOptions, queries: Queries) -> None:
        options.check(engine.options)
        self._engine = engine
        self._options = options
        self._queries = queries
        self._current: Runner | AsyncRunner | None = None
        self._close_s: float | None = None  # the consumer is to be closed after the run
        if options.retry is not None and options.retry.topic is not None and engine.options.start != "earliest":
            engine.on_assignment(self._retry_starts)

    @property
    def needed(self) -> bool:
        """Whether the options make sense only in a run."""
        return self._options.retry is not None

    def run(self, handler: Handler) -> None:
        try:
            with self._activate(Runner(self._engine, handler, self._options, self._letters())) as runner:
                runner.run()
        finally:
            if self._close_s is not None:
                self._engine.close(self._close_s)

    async def run_async(self, handler: AsyncHandler) -> None:
        try:
            with self._activate(AsyncRunner(self._engine, handler, self._options, self._letters())) as runner:
                await runner.run()
        finally:
            if self._close_s is not None:
                await asyncio.to_thread(self._engine.close, self._close_s)

    def stop(self) -> bool:
        """End the run after the messages in hand; False if there is none. From any thread or signal handler."""
        current = self._current
        if current is not None:
            current.stop()
        return current is not None

    @property
    def active(self) -> bool:
        return self._current is not None

    def close_later(self, timeout: float) -> bool:
        """If the caller is a handler: end the run, and close the consumer then. False if it is not."""
        current = self._current
        if current is None or not current.inside:
            return False
        self._close_s = timeout
        current.stop()
        return True

    def end(self, timeout: float) -> None:
        """End the run, and wait for the messages in hand."""
        current = self._current
        if current is not None:
            current.stop()
            if not current.join(timeout):
                logger.warning("Handlers still run after %.0f s; their messages are not done", timeout)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _activate(self, runner: R) -> Iterator[R]:
        if self._current is not None:
            raise InvalidUse("run is active already; a consumer has one at a time")
        self._current = runner
        try:
            yield runner
        finally:
            self._current = None

    def _letters(self) -> Letters:
        retry = self._options.retry
        return Letters(self._engine.options, () if retry is None else retry.topics)

    def _retry_starts(self, partitions: Partitions) -> Mapping[TopicPartition, Offset | None]:
        """Records of the retry topic are read from the first one on, wherever others start: they were done for that."""
        retry = self._options.retry
        retried = [tp for tp in partitions if retry is not None and tp.topic == retry.topic]
        return {tp: BEGINNING for tp, offset in self._queries.committed(retried).items() if offset is None}
