"""One partition on this broker: its log, its leadership and who waits for it.

Order is fixed in `_append`: what comes before it is checks, what comes after is waiting. Today a partition has one
replica, so what is appended is committed and the high watermark is the end of the log.
"""

import errno
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
from moldau.wire.batch import CODEC_MASK, TRANSACTIONAL
from moldau.wire.compression import Codec

logger = logging.getLogger("moldau.replication")

ZSTD_SINCE = 7  # the produce version that first knew zstd
NEVER = 2**63 - 1  # flush.messages and flush.ms: left to the operating system
NO_APPEND_TIME = -1
ZSTD = int(Codec.ZSTD)
_ATTRIBUTES, _PRODUCER_ID = 5, 9  # places in a raw batch header
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # nothing was written, and later there may be room again


class Appended(NamedTuple):
    base_offset: int
    append_time: int  # -1 unless the topic stamps records itself
    log_start: int


Outcome = Appended | Refusal


class Later:
    """An outcome that comes in a later turn of the loop: records are being checked, or the disk is waited for."""

    __slots__ = ("tell",)

    def __init__(self) -> None:
        self.tell: Callable[[Outcome], None] | None = None  # set by whoever was given this, in the same turn

    def resolve(self, outcome: Outcome) -> None:
        if self.tell is not None:
            self.tell(outcome)


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
        self.flusher = Flusher(log, self.go_offline)
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

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at an offset, -1 if unknown. In an empty log the first one will be of the current."""
        return self.leader_epoch if offset == self.log.end_offset else self.log.epochs.epoch_of(offset)

    def produce(self, batch: memoryview, version: int, now: int) -> "Outcome | Later":
        """Check and append one batch."""
        if self.offline:
            return Refusal.of(WireError.KAFKA_STORAGE_ERROR)
        config = self.log.config
        header = validate.check(batch, config, now)
        if isinstance(header, Refusal):
            if header.error is WireError.INVALID_TIMESTAMP:  # the header tells that it is so; clients ask which records
                refusal = header
                return self._enter_lane(batch, lambda copy: inspection.blame(copy, config, now, refusal), now)
            return header
        attributes = header[_ATTRIBUTES]
        if attributes & TRANSACTIONAL:
            return Refusal(WireError.INVALID_TXN_STATE, "The producer has no transaction with this partition.")
        codec = attributes & CODEC_MASK
        if codec == ZSTD and version < ZSTD_SINCE:
            return Refusal(WireError.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7 or later")
        if self._lane.busy or inspection.needed(config, codec):
            return self._enter_lane(batch, lambda copy: inspection.inspect(copy, config), now)
        outcome = self._append(header, batch, now)
        if config.flush_messages == NEVER or isinstance(outcome, Refusal):
            return outcome
        return self._after_flush(outcome, Later())

    def _after_flush(self, outcome: Outcome, later: "Later") -> "Outcome | Later":
        """The outcome, or if flush.messages asks for the disk first, `later`, which gets it after the fsync."""
        log = self.log
        end = log.end_offset
        if isinstance(outcome, Refusal) or end - log.recovery_point < log.config.flush_messages:
            return outcome
        lost = Refusal(WireError.KAFKA_STORAGE_ERROR, "the disk failed before the batch was safe")
        self.flusher.when_durable(end, lambda durable: later.resolve(outcome if durable else lost))
        return later

    def _enter_lane(self, batch: memoryview, work: Callable[[bytes], bytes | Refusal], now: int) -> "Refusal | Later":
        if self._lane.full:
            return Refusal(WireError.REQUEST_TIMED_OUT, "too many batches wait for their records to be checked")
        copy = bytes(batch)  # the frame is borrowed, and the thread comes later
        later = Later()

        def finish(inspected: bytes | Refusal) -> None:
            outcome = inspected if isinstance(inspected, Refusal) else self._append_inspected(inspected, now)
            settled = self._after_flush(outcome, later)
            if settled is not later:
                later.resolve(outcome)

        self._lane.enter(Job(len(copy), lambda: work(copy), finish))
        return later

    def _append_inspected(self, batch: bytes, now: int) -> Outcome:
        """The end of the slow lane. Whatever happens there is an outcome, since a producer waits for one."""
        try:
            if self.offline:
                return Refusal.of(WireError.KAFKA_STORAGE_ERROR)
            view = memoryview(batch)
            header = validate.check(view, self.log.config, now)
            return header if isinstance(header, Refusal) else self._append(header, view, now)
        except Exception:
            logger.exception("appending to %s-%d failed", self.topic, self.index)
            return Refusal.of(WireError.UNKNOWN_SERVER_ERROR)

    def _append(self, header: RawHeader, batch: memoryview, now: int) -> Outcome:
        log = self.log
        if header[_PRODUCER_ID] >= 0:
            known = log.check_producer(header)
            if known is not None:
                if isinstance(known, Refusal):
                    return known
                return Appended(known.base_offset, known.timestamp, log.start_offset)  # as Kafka, whatever the type
        append_time = NO_APPEND_TIME
        if log.config.message_timestamp_type == "LogAppendTime":
            append_time = now
            header, stamped = validate.stamp(header, batch, now)
            batch = memoryview(stamped)
        try:
            base_offset = log.append(header, batch, self.leader_epoch, now)
        except OSError as problem:
            logger.error("appending to %s-%d failed: %s", self.topic, self.index, problem)
            if problem.errno not in _DISK_FULL:
                self.go_offline()
            return Refusal(WireError.KAFKA_STORAGE_ERROR, f"the disk refused the write: {problem.strerror}")
        if self.waiters:
            size = len(batch)
            for waiter in self.waiters:
                waiter.grown(size)
        return Appended(base_offset, append_time, log.start_offset)

    def go_offline(self) -> None:
        """Its disk failed: what is on it cannot be trusted before a restart has checked it."""
        self.offline = True
        self.changed()

    def flush_if_due(self, now: int) -> None:
        """flush.ms: records do not stay off the disk for longer than that. Called from time to time."""
        log = self.log
        if self.offline or log.config.flush_ms == NEVER or log.end_offset <= log.recovery_point:
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
