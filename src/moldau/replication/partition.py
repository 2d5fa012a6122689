"""One partition on this broker: its log, its leadership and who waits for it.

Order is fixed in `append`: what comes before it is checks, what comes after is waiting. Today a partition has one
replica, so what is appended is committed and the high watermark is the end of the log.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.log import validate
from moldau.log.header import RawHeader
from moldau.log.log import Log
from moldau.replication import inspection
from moldau.replication.flusher import Flusher
from moldau.replication.lane import Job, Lane
from moldau.replication.waiters import FetchWaiter
from moldau.wire.batch import CODEC_MASK
from moldau.wire.compression import Codec

logger = logging.getLogger("moldau.replication")

ZSTD_SINCE = 7  # the produce version that first knew zstd
NEVER = 2**63 - 1  # flush.messages and flush.ms: left to the operating system
NO_APPEND_TIME = -1
_ATTRIBUTES, _PRODUCER_ID = 5, 9  # places in a raw batch header


class Appended(NamedTuple):
    base_offset: int
    append_time: int  # -1 unless the topic stamps records itself
    log_start: int


Outcome = Appended | Refusal


class Partition:
    __slots__ = (
        "_dirty_since",
        "_lane",
        "flusher",
        "index",
        "leader_epoch",
        "log",
        "offline",
        "topic",
        "waiters",
    )

    def __init__(self, topic: str, index: int, log: Log, leader_epoch: int) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.offline = False  # its disk failed: nothing more is written to it
        self.waiters: set[FetchWaiter] = set()
        self.flusher = Flusher(log, self.fail)
        self._dirty_since: int | None = None
        self._lane = Lane()

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.end_offset

    def fenced(self, claimed: int) -> WireError:
        """What a client hears that claims a leader epoch other than the current one; NONE where they agree."""
        if claimed in (-1, self.leader_epoch):
            return WireError.NONE
        return WireError.FENCED_LEADER_EPOCH if claimed < self.leader_epoch else WireError.UNKNOWN_LEADER_EPOCH

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to the asked one, and where it ended. An empty log knows its current epoch too."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    def produce(self, batch: memoryview, version: int, now: int, later: Callable[[Outcome], None]) -> Outcome | None:
        """Check and append one batch. None: it took the slow lane, and `later` will be called with the outcome."""
        if self.offline:
            return Refusal.of(WireError.KAFKA_STORAGE_ERROR)
        config = self.log.config
        header = validate.check(batch, config, now)
        if isinstance(header, Refusal):
            if header.error is WireError.INVALID_TIMESTAMP:  # the header tells that it is so; clients ask which records
                refusal, copy = header, bytes(batch)
                return self._enter_lane(lambda: inspection.blame(copy, config, now, refusal), now, later)
            return header
        codec = header[_ATTRIBUTES] & CODEC_MASK
        if codec == Codec.ZSTD and version < ZSTD_SINCE:
            return Refusal(WireError.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7 or later")
        if self._lane.busy or inspection.needed(config, codec):
            copy = bytes(batch)
            return self._enter_lane(lambda: inspection.inspect(copy, config), now, later)
        return self._durable(self._append(header, batch, now), later)

    def _durable(self, outcome: Outcome, later: Callable[[Outcome], None]) -> Outcome | None:
        """The outcome, or None if flush.messages asks for the disk first: `later` then gets it after the fsync."""
        log = self.log
        if log.config.flush_messages == NEVER or isinstance(outcome, Refusal):
            return outcome
        end = log.end_offset
        if end - log.recovery_point < log.config.flush_messages:
            return outcome
        lost = Refusal(WireError.KAFKA_STORAGE_ERROR, "the disk failed before the batch was safe")
        self.flusher.when_durable(end, lambda durable: later(outcome if durable else lost))
        return None

    def _enter_lane(
        self, work: Callable[[], bytes | Refusal], now: int, later: Callable[[Outcome], None]
    ) -> Refusal | None:
        if self._lane.full:
            return Refusal(WireError.REQUEST_TIMED_OUT, "too many batches wait for their records to be checked")

        def finish(inspected: bytes | Refusal) -> None:
            if isinstance(inspected, Refusal):
                later(inspected)
                return
            view = memoryview(inspected)
            header = validate.check(view, self.log.config, now)
            outcome = header if isinstance(header, Refusal) else self._append(header, view, now)
            ready = self._durable(outcome, later)
            if ready is not None:
                later(ready)

        self._lane.enter(Job(work, finish))
        return None

    def _append(self, header: RawHeader, batch: memoryview, now: int) -> Outcome:
        log = self.log
        if header[_PRODUCER_ID] >= 0:
            known = log.check_producer(header)
            if known is not None:
                if isinstance(known, Refusal):
                    return known
                return Appended(known.base_offset, NO_APPEND_TIME, log.start_offset)
        append_time = NO_APPEND_TIME
        if log.config.message_timestamp_type == "LogAppendTime":
            append_time = now
            header, stamped = validate.stamp(header, batch, now)
            batch = memoryview(stamped)
        try:
            base_offset = log.append(header, batch, self.leader_epoch, now)
        except OSError as problem:
            logger.error("appending to %s-%d failed: %s", self.topic, self.index, problem)
            return Refusal(WireError.KAFKA_STORAGE_ERROR, f"the disk refused the write: {problem.strerror}")
        if self.waiters:
            size = len(batch)
            for waiter in self.waiters:
                waiter.grown(size)
        return Appended(base_offset, append_time, log.start_offset)

    def fail(self) -> None:
        """The disk failed: nothing more is written here, and readers are told."""
        self.offline = True
        self.changed()

    def flush_if_due(self, now: int) -> None:
        """flush.ms: records do not stay off the disk for longer than that. Called from time to time."""
        log = self.log
        if log.config.flush_ms == NEVER or log.end_offset <= log.recovery_point:
            self._dirty_since = None
            return
        if self._dirty_since is None:
            self._dirty_since = now
        if now - self._dirty_since >= log.config.flush_ms:
            self._dirty_since = None
            self.flusher.soon()

    def changed(self) -> None:
        """The partition is not what it was (deleted, truncated): whoever waits for it has to look again."""
        for waiter in list(self.waiters):
            waiter.fire_soon()

    async def stop(self) -> None:
        await self._lane.stop()
        await self.flusher.stop()
        self.changed()
