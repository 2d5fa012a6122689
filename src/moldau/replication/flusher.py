"""Makes one partition's log durable, in a thread, one round at a time: a round serves everyone who waited for it.

A failed fsync is never tried again: the kernel may have dropped what it could not write, and a second fsync that
succeeds would be a lie. The partition's directory goes offline instead. A full disk is another matter: whoever waits is
told so, and the round is due again.
"""

import asyncio
import logging
from collections.abc import Callable

from moldau.log.files import passing
from moldau.log.flush import FlushJob
from moldau.log.log import Log

logger = logging.getLogger("moldau.replication")

Waiting = tuple[int, Callable[[bool], None]]  # the offset that must be durable, and whom to tell whether it is


class Flusher:
    __slots__ = ("_again", "_log", "_on_failure", "_task", "_waiting", "put_off")

    def __init__(self, log: Log, on_failure: Callable[[OSError], None]) -> None:
        self._log = log
        self._on_failure = on_failure
        self._waiting: list[Waiting] = []
        self._again = False
        self.put_off = False  # the disk was full: the round is to be tried again
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
                job: FlushJob | None = None
                try:
                    job = self._log.begin_flush()
                    await asyncio.to_thread(job.run)
                except OSError as problem:
                    self._failed(job, problem)
                    continue  # who came meanwhile waits for the next round
                self.put_off = False
                self._log.finish_flush(job)
                self._tell(True, job.end_offset)
        finally:
            self._task = None

    def _failed(self, job: FlushJob | None, problem: OSError) -> None:
        """`job`: None if it could not even be begun, for want of a file to open."""
        if passing(problem):
            if not self.put_off:
                logger.error("flushing %s is put off: %s", self._log.name, problem)
            self.put_off = True
            if job is not None:
                self._log.abandon_flush(job)
            self._tell(False, self._log.end_offset if job is None else job.end_offset)
        else:
            logger.error("flushing %s failed: %s", self._log.name, problem)
            self._again = False
            self._on_failure(problem)
            self._tell(False, self._log.end_offset)

    def _tell(self, durable: bool, end_offset: int) -> None:
        ready = [tell for offset, tell in self._waiting if offset <= end_offset]
        self._waiting = [each for each in self._waiting if each[0] > end_offset]
        for tell in ready:
            tell(durable)

    async def stop(self) -> None:
        if self._task is not None:
            await asyncio.shield(self._task)
