"""The inspection queue of one partition: batches whose records must be decoded before they are appended.

Recompressing or checking records takes too long for the event loop, so a thread or another process does it. The queue
keeps the partition's order: a batch enters it before its sequence is checked, and while one batch is in the queue every
later batch of the partition follows it there.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from moldau.base.errors import Refusal, WireError

logger = logging.getLogger("moldau.replication")

BATCHES_AT_MOST = 1000  # max.in.flight.requests.per.connection keeps a queue far below
BYTES_AT_MOST = 64 * 1024 * 1024  # of the copies of batches in the queue


Inspected: TypeAlias = bytes | Refusal  # the batch to append, or why not
Work: TypeAlias = Callable[[], Awaitable[Inspected]]


class Job(NamedTuple):
    size: int  # bytes of the batch
    work: Work
    finish: Callable[[Inspected], None]  # on the loop, in the order of entry


def in_thread(work: Callable[[], Inspected]) -> Work:
    return lambda: asyncio.to_thread(work)


class InspectionQueue:
    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._held = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return bool(self._jobs) or self._task is not None

    @property
    def full(self) -> bool:
        return len(self._jobs) >= BATCHES_AT_MOST or self._held >= BYTES_AT_MOST

    def enter(self, job: Job) -> None:
        self._jobs.append(job)
        self._held += job.size
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._jobs:
                job = self._jobs[0]
                outcome = await _guarded(job.work)
                self._jobs.popleft()
                self._held -= job.size
                try:
                    job.finish(outcome)
                except Exception:
                    logger.exception("Finishing a job of the inspection queue failed; the jobs behind it continue")
        finally:
            self._task = None

    async def stop(self) -> None:
        """Finish all jobs in the queue: their batches were accepted."""
        if self._task is not None:
            await asyncio.shield(self._task)


async def _guarded(work: Work) -> Inspected:
    """Refuse a batch whose inspection raises; the batches behind it continue."""
    try:
        return await work()
    except Exception:
        logger.exception("Inspecting the records of a batch failed; refusing it with UNKNOWN_SERVER_ERROR")
        return Refusal.of(WireError.UNKNOWN_SERVER_ERROR)
