"""Appends batches to one partition that this broker leads: from producers, coordinators and transaction markers.

Order is fixed in `_append`: before it come checks, after it comes waiting. A batch whose records must be inspected
first takes the inspection queue, and so does every batch behind it.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch, Offset
from moldau.base.later import Later, NowOrLater
from moldau.log import validate
from moldau.log.header import RawHeader
from moldau.log.markers import Marker, encode_marker
from moldau.log.producers import NOT_ASKED, STRICT_MARKERS, Verification
from moldau.log.settings import LogConfig
from moldau.replication import inspection
from moldau.replication.inspection_queue import Inspected, InspectionQueue, Job, Work, in_thread
from moldau.replication.inspector import IN_THREAD, Arrival, Inspector
from moldau.replication.leader import ALL, NOT_LEADER, Leader
from moldau.wire.batch import CODEC_MASK, HEADER, TRANSACTIONAL
from moldau.wire.compression import Codec
from moldau.wire.pairs import encode_pairs

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

logger: Final = logging.getLogger("moldau.replication")

ZSTD_SINCE: Final = 7  # the produce version that first knew zstd
FLUSHED_BY_OS: Final = 2**63 - 1  # flush.messages and flush.ms: left to the operating system
NO_APPEND_TIME: Final = -1
ZSTD: Final = int(Codec.ZSTD)
_ATTRIBUTES: Final = 5  # places in a raw batch header
_LAST_OFFSET_DELTA: Final = 6
_PRODUCER_ID: Final = 9


class Appended:
    __slots__ = ("append_time", "base_offset", "log_start")

    def __init__(self, base_offset: Offset, append_time: int, log_start: Offset) -> None:
        """`append_time` is -1 unless the topic stamps records itself."""
        self.base_offset = base_offset
        self.append_time = append_time
        self.log_start = log_start

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Appended) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Appended{self._values()}"

    def _values(self) -> tuple[Offset, int, Offset]:
        return self.base_offset, self.append_time, self.log_start


Outcome = Appended | Refusal


class Appender:
    __slots__ = ("_opaque", "_partition", "inspector", "queue")

    def __init__(self, partition: "Partition") -> None:
        self._partition = partition
        self.queue = InspectionQueue()
        self.inspector: Inspector = IN_THREAD
        self._opaque: LogConfig | None = None  # settings that never need the records of a batch

    # ── producers ──

    def produce(
        self, batch: memoryview, version: int, now: int, verification: Verification | None = None, acks: int = 1
    ) -> NowOrLater[Outcome]:
        """Check and append one batch of a client.

        `verification`: of the batch's transaction; None for a request without a transactional id.
        """
        partition = self._partition
        if not partition.sole_online_replica:
            refusal = self._unwritable(acks)
            if refusal is not None:
                return refusal
        config = partition.log.config
        header = validate.check(batch, config, now)
        if isinstance(header, Refusal):
            if header.error is WireError.INVALID_TIMESTAMP:  # known from the header; clients are told which records
                wrong = header

                def blame(copy: bytes) -> Work:
                    return in_thread(lambda: inspection.blame(copy, config, now, wrong))

                return self._enqueue(batch, blame, now, None, acks)
            return header
        attributes = header[_ATTRIBUTES]
        if attributes & TRANSACTIONAL and verification is None:
            return Refusal(
                WireError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "A batch that is part of a transaction needs a request with a transactional id.",
            )
        codec = attributes & CODEC_MASK
        if codec == ZSTD and version < ZSTD_SINCE:
            return Refusal(
                WireError.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later; upgrade the client."
            )
        if self.queue.busy or (config is not self._opaque and self._inspects(config, codec)):

            def inspect(copy: bytes) -> Work:
                arrival = Arrival(partition, copy, config, lambda: self._awaited(header, verification, acks))
                return lambda: self.inspector.inspect(arrival)

            return self._enqueue(batch, inspect, now, verification, acks)
        outcome = self._append(header, batch, now, verification)
        if partition.role is None and config.flush_messages == FLUSHED_BY_OS:
            return outcome
        return self._settle(outcome, header[_LAST_OFFSET_DELTA], acks, None)

    def _unwritable(self, acks: int) -> Refusal | None:
        """Why nothing may be appended just now with these acks."""
        partition = self._partition
        if partition.sole_online_replica:
            return None
        if partition.standing.offline:
            return Refusal.of(WireError.KAFKA_STORAGE_ERROR)
        if not partition.standing.leads:
            return NOT_LEADER
        return partition.role.refusal(acks) if isinstance(partition.role, Leader) else None

    def _inspects(self, config: LogConfig, codec: int) -> bool:
        """Whether the records of a batch are needed. Most topics never need them, and are not asked again."""
        if inspection.needed(config, codec):
            return True
        if config.compression_type == inspection.KEEP_CODEC:
            self._opaque = config
        return False

    def _enqueue(
        self,
        batch: memoryview,
        work: Callable[[bytes], Work],
        now: int,
        verification: Verification | None,
        acks: int,
    ) -> Refusal | Later[Outcome]:
        if self.queue.full:
            return Refusal(
                WireError.REQUEST_TIMED_OUT,
                f"Too many batches of {self._partition.name} wait for their records to be inspected; retry.",
            )
        copy = bytes(batch)  # the frame is borrowed, and the thread comes later
        later: Later[Outcome] = Later()

        def finish(inspected: Inspected) -> None:
            if isinstance(inspected, Refusal):
                later.resolve(inspected)
                return
            outcome = self._append_inspected(inspected, now, verification, acks)
            settled = self._settle(outcome, HEADER.unpack_from(inspected)[_LAST_OFFSET_DELTA], acks, later)
            if not isinstance(settled, Later):
                later.resolve(settled)

        self.queue.enter(Job(len(copy), work(copy), finish))
        return later

    def _append_inspected(self, batch: bytes, now: int, verification: Verification | None, acks: int) -> Outcome:
        """The end of the inspection queue. Always returns an outcome: a producer waits for it."""
        try:
            refusal = self._unwritable(acks)
            if refusal is not None:
                return refusal
            view = memoryview(batch)
            header = validate.check_rewritten(view, self._partition.log.config)
            return header if isinstance(header, Refusal) else self._append(header, view, now, verification)
        except Exception:
            logger.exception("Appending to %s failed", self._partition.name)
            return Refusal.of(WireError.UNKNOWN_SERVER_ERROR)

    def _awaited(self, header: RawHeader, verification: Verification | None, acks: int) -> bool:
        """Whether a batch would be appended just now, if its records are as they should be."""
        if self._unwritable(acks) is not None:
            return False
        log = self._partition.log
        if header[_PRODUCER_ID] < 0:
            return True
        return log.producer_state.check(header, log.start_offset, verification or NOT_ASKED) is None

    def take_turn(self, work: Callable[[], Inspected], finish: Callable[[Inspected], None]) -> None:
        """Run `work` in a thread, then `finish`, behind the batches that came before and before those that come."""
        self.queue.enter(Job(0, in_thread(work), finish))

    # ── this broker's own records ──

    def write_marker(
        self,
        producer_id: int,
        producer_epoch: Epoch,
        commit: bool,
        coordinator_epoch: Epoch,
        transaction_version: int,
        now: int,
    ) -> NowOrLater[Outcome]:
        """End a producer's transaction here: the last stable offset moves beyond it (KIP-98)."""
        partition = self._partition
        if not partition.standing.leads:
            return NOT_LEADER
        producers = partition.log.producers
        refusal = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if refusal is not None:
            return refusal
        stable = partition.last_stable_offset
        batch = encode_marker(producer_id, producer_epoch, Marker(commit, coordinator_epoch), now)
        outcome = self.append_batch(batch, now)
        if transaction_version < STRICT_MARKERS:
            producers.void(producer_id)
        if partition.delayed_fetches and partition.role is None:
            partition.tell_decided(stable)
        return outcome

    def append_records(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now: int,
        producer_id: int = -1,
        producer_epoch: Epoch = -1,
        transactional: bool = False,
    ) -> NowOrLater[Outcome]:
        """Append keys and values of a coordinator as one batch; with `transactional`, as part of a transaction.

        The caller knows whether the transaction includes this partition. The outcome comes when the batch is committed.
        """
        if not self._partition.standing.leads:
            return NOT_LEADER
        if producer_id >= 0:
            refusal = self._partition.log.producers.check_epoch(producer_id, producer_epoch)
            if refusal is not None:
                return refusal
        attributes = TRANSACTIONAL if transactional else 0
        batch = encode_pairs(
            records, now, attributes=attributes, producer_id=producer_id, producer_epoch=producer_epoch
        )
        return self.append_batch(batch, now)

    def append_batch(self, batch: bytes, now: int) -> NowOrLater[Outcome]:
        """Append a batch that this broker made: it takes no queue, and its sequence is not checked."""
        partition = self._partition
        refusal = self._unwritable(ALL)
        if refusal is not None:
            return refusal
        if partition.standing.moving:
            return Refusal(
                WireError.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is moving to another log directory; retry."
            )
        config = partition.log.config
        if len(batch) > config.max_message_bytes or len(batch) > config.segment_bytes:
            return Refusal(
                WireError.MESSAGE_TOO_LARGE,
                f"A batch of {len(batch)} bytes is larger than max.message.bytes or segment.bytes of its topic.",
            )
        header: RawHeader = HEADER.unpack_from(batch)
        outcome = self._append(header, memoryview(batch), now, None, own=True)
        if partition.role is None and config.flush_messages == FLUSHED_BY_OS:
            return outcome
        return self._settle(outcome, header[_LAST_OFFSET_DELTA], ALL, None)

    # ── appending, and waiting for it to be durable and committed ──

    def _append(
        self, header: RawHeader, batch: memoryview, now: int, verification: Verification | None, *, own: bool = False
    ) -> Outcome:
        partition = self._partition
        log = partition.log
        if header[_PRODUCER_ID] >= 0 and not own:
            known = log.producer_state.check(header, log.start_offset, verification or NOT_ASKED)
            if known is not None:
                if isinstance(known, Refusal):
                    return partition.role.final(known) if isinstance(partition.role, Leader) else known
                return Appended(known.base_offset, known.timestamp, log.start_offset)  # as Kafka, whatever the type
        append_time = NO_APPEND_TIME
        if log.config.message_timestamp_type == "LogAppendTime":
            append_time = now
            header, stamped = validate.stamp(header, batch, now)
            batch = memoryview(stamped)
        try:
            base_offset = log.append(header, batch, partition.leader_epoch, now)
        except OSError as problem:
            return partition.write_failed(problem, "Appending to")
        role = partition.role
        if role is not None:
            assert isinstance(role, Leader)
            role.appended(base_offset, log.end_offset, len(batch))
        elif partition.delayed_fetches:
            partition.tell_appended(base_offset, len(batch))
        return Appended(base_offset, append_time, log.start_offset)

    def _settle(
        self, outcome: Outcome, last_offset_delta: int, acks: int, later: Later[Outcome] | None
    ) -> NowOrLater[Outcome]:
        """The outcome, or if it has to wait for the disk or for followers, a `Later` that gets it afterwards."""
        if isinstance(outcome, Refusal):
            return outcome
        partition = self._partition
        log, appended, role = partition.log, outcome, partition.role
        later = later or Later()
        end = log.end_offset
        if log.config.flush_messages == FLUSHED_BY_OS or end - log.recovery_point < log.config.flush_messages:
            return self._await_commit(appended, last_offset_delta, acks, later)

        def flushed(refusal: Refusal | None) -> None:
            # The same role: this broker led all the time. None: all other replicas were removed, and its log counts.
            # Else another broker led meanwhile, and another record may be at this offset.
            if isinstance(role, Leader) and partition.role not in (role, None):
                later.resolve(NOT_LEADER)
            elif refusal is not None:
                later.resolve(refusal)
            elif partition.standing.offline:  # the disk failed elsewhere, and the leader completes nothing any more
                later.resolve(Refusal.of(WireError.KAFKA_STORAGE_ERROR))
            else:
                settled = self._await_commit(appended, last_offset_delta, acks, later)
                if not isinstance(settled, Later):
                    later.resolve(settled)

        partition.flusher.when_durable(end, flushed)
        return later

    def _await_commit(
        self, outcome: Appended, last_offset_delta: int, acks: int, later: Later[Outcome]
    ) -> NowOrLater[Outcome]:
        role = self._partition.role
        if acks != ALL or role is None:
            return outcome
        if not isinstance(role, Leader):
            return NOT_LEADER
        return role.await_commit(outcome.base_offset + last_offset_delta + 1, outcome, later)
