"""Flusher: flushes one partition's log in a thread, one round at a time; a round serves every batch that waits for it.

A failed fsync is never retried: the kernel may have dropped the data, and then a second fsync succeeds without it. The
partition's log directory goes offline instead. After a full disk the round is retried.
"""

import asyncio
from collections.abc import Callable

from moldau.base.errors import Refusal
from moldau.base.ids import Offset
from moldau.log.files import is_transient
from moldau.log.flush import FlushJob
from moldau.log.log import Log

Durable = Callable[[Refusal | None], None]  # called with None when the records are on disk, else with the error
WriteFailed = Callable[[OSError, str], Refusal]


class Flusher:
    __slots__ = ("_again", "_log", "_task", "_waiting", "_write_failed", "retry_later")

    def __init__(self, log: Log, write_failed: WriteFailed) -> None:
        self._log = log
        self._write_failed = write_failed
        self._waiting: list[tuple[Offset, Durable]] = []
        self._again = False
        self.retry_later = False  # the disk was full: the round is to be tried again
        self._task: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """Begin a round, or one more after the round under way."""
        self._again = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def when_durable(self, offset: Offset, tell: Durable) -> None:
        """Flush, and tell when everything before `offset` is on disk or never will be."""
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
                    continue  # batches that came meanwhile wait for the next round
                self.retry_later = False
                self._log.finish_flush(job)
                self._tell(None, job.end_offset)
        finally:
            self._task = None

    def _failed(self, job: FlushJob | None, problem: OSError) -> None:
        """`job`: None if the round could not even begin, for want of a file descriptor."""
        end_offset = self._log.end_offset
        if is_transient(problem):
            self.retry_later = True
            if job is not None:
                self._log.durability.abandon(job)
                end_offset = job.end_offset
        else:
            self._again = False
        self._tell(self._write_failed(problem, "Flushing"), end_offset)

    def _tell(self, refusal: Refusal | None, end_offset: Offset) -> None:
        ready = [tell for offset, tell in self._waiting if offset <= end_offset]
        self._waiting = [each for each in self._waiting if each[0] > end_offset]
        for tell in ready:
            tell(refusal)

    async def stop(self) -> None:
        if self._task is not None:
            await asyncio.shield(self._task)
