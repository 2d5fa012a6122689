"""Makes one partition's log durable, in a thread, one round at a time: a round serves everyone who waited for it.

A failed fsync is never tried again: the kernel may have dropped what it could not write, and a second fsync that
succeeds would be a lie. The partition goes offline instead.
"""

import asyncio
import logging
from collections.abc import Callable

from moldau.log.log import Log

logger = logging.getLogger("moldau.replication")

Waiting = tuple[int, Callable[[bool], None]]  # the offset that must be durable, and whom to tell whether it is


class Flusher:
    __slots__ = ("_again", "_log", "_on_failure", "_task", "_waiting")

    def __init__(self, log: Log, on_failure: Callable[[], None]) -> None:
        self._log = log
        self._on_failure = on_failure
        self._waiting: list[Waiting] = []
        self._again = False
        self._task: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """Begin a round, or one more after the round under way."""
        self._again = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def when_durable(self, offset: int, tell: Callable[[bool], None]) -> None:
        """Flush, and tell when everything before `offset` is on disk (True) or never will be (False)."""
        self._waiting.append((offset, tell))
        self.soon()

    async def _run(self) -> None:
        try:
            while self._again:
                self._again = False
                job = self._log.begin_flush()
                await asyncio.to_thread(job.run)
                self._log.finish_flush(job)
                self._tell(True, job.end_offset)
        except OSError as problem:
            logger.error("flushing %s failed: %s; the partition is offline", self._log.name, problem)
            self._on_failure()
            self._tell(False, self._log.end_offset)
        finally:
            self._task = None

    def _tell(self, durable: bool, end_offset: int) -> None:
        ready = [tell for offset, tell in self._waiting if offset <= end_offset]
        self._waiting = [each for each in self._waiting if each[0] > end_offset]
        for tell in ready:
            tell(durable)

    async def stop(self) -> None:
        if self._task is not None:
            await asyncio.shield(self._task)
