"""AuditWriter: appends audit records to the one partition of __audit, wherever its leader is. Decides nothing.

One partition, so that the records of the cluster have one order. What cannot be written waits in the buffer and is
tried again. A response that is lost makes the same records come twice: they have the same ids.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Final

from moldau.base.errors import Refusal, WireError
from moldau.broker.internal_topics import AUDIT
from moldau.broker.own_records import OwnRecords
from moldau.metadata.image import ClusterImage
from moldau.net.tasks import cancel
from moldau.security.audit import AuditBuffer
from moldau.wire.pairs import encode_pairs

logger: Final = logging.getLogger("moldau.broker")

RETRY_S: Final = 1.0
TELL_S: Final = 60.0  # between two log lines about dropped records
LAST_APPEND_S: Final = 2.0  # at stop
PARTITION: Final = 0
PURPOSE: Final = "audit"

Append = Callable[[Sequence[bytes]], Awaitable[Refusal | None]]


class AuditTopic:
    """The topic __audit, created with the first record. `create` creates missing topics."""

    def __init__(
        self,
        records: OwnRecords,
        image: Callable[[], ClusterImage],
        create: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._records = records
        self._image = image
        self._create = create

    async def append(self, records: Sequence[bytes]) -> Refusal | None:
        """Append records as one batch; None when they are committed, else why not."""
        if AUDIT not in self._image().topics:
            await self._create((AUDIT,))
        batch = encode_pairs([(None, record) for record in records], self._records.now())
        return await self._records.append(AUDIT, PARTITION, batch)


class AuditWriter:
    """Runs one task from `start` to `stop`. A record never waits for another to be made."""

    def __init__(self, buffer: AuditBuffer, append: Append, now: Callable[[], int]) -> None:
        self._buffer = buffer
        self._append = append
        self._now = now
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._failing = False
        self._dropped = 0  # since the topic cannot be written
        self._told = 0.0  # when a log line told so

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """There are new records."""
        self._wake.set()

    async def stop(self) -> None:
        """Write what is left, if that is possible in a moment."""
        self._stopping = True
        self.wake()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LAST_APPEND_S)
        await cancel(self._task)
        if left := len(self._buffer):
            logger.warning("%d audit records were not written to %s before the stop, and are lost", left, AUDIT)

    async def _run(self) -> None:
        while len(self._buffer) or not self._stopping:
            if not len(self._buffer):
                await self._next(RETRY_S if self._buffer.counts else None)
            self._buffer.tell_left_out(monotonic(), self._now())
            if len(self._buffer) and not await self._write():
                await asyncio.sleep(RETRY_S)

    async def _next(self, timeout_s: float | None) -> None:
        """Wait until there are records, or may be told how many were left out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _write(self) -> bool:
        """Write the oldest records. False: they could not be written now."""
        batch = self._buffer.batch()
        try:
            refusal = await self._append(batch)
        except Exception as problem:  # the task has to live on
            logger.exception("Writing audit records failed")
            refusal = Refusal(WireError.UNKNOWN_SERVER_ERROR, str(problem))
        if refusal is None:
            self._buffer.remove(len(batch))
            self._over()
            return True
        if refusal.error is WireError.MESSAGE_TOO_LARGE:  # max.message.bytes of the topic was lowered: never fits
            self._buffer.remove(len(batch), lost=True)
        self._tell(refusal)
        return False

    def _tell(self, refusal: Refusal) -> None:
        """One line when it begins, and one a minute about what is dropped."""
        now = monotonic()
        self._take_dropped()
        if not self._failing:
            logger.error("Audit records cannot be written to %s, and wait until they can: %s", AUDIT, refusal.message)
            self._failing, self._told = True, now
        elif self._dropped and now >= self._told + TELL_S:
            words = "%d audit records were dropped since %s cannot be written: %s"
            logger.error(words, self._dropped, AUDIT, refusal.message)
            self._told = now

    def _over(self) -> None:
        self._take_dropped()
        if self._failing:
            logger.info("Audit records are written to %s again; %d were dropped", AUDIT, self._dropped)
            self._failing, self._dropped = False, 0

    def _take_dropped(self) -> None:
        self._dropped += self._buffer.dropped
        self._buffer.dropped = 0
