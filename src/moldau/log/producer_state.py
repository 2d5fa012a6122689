"""ProducerStateManager: a log's producers with their snapshots, and its transactions, aborted or not yet replicated.

`Producers` holds the state itself; this file keeps it in step with the log's segments and files. After a crash or a
truncation it is rebuilt from the newest usable snapshot and the batches after it.
"""

import logging
from collections import deque
from pathlib import Path
from typing import Final

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Offset
from moldau.base.slices import FileSlice
from moldau.log.aborted import Aborted
from moldau.log.aborted import find as find_aborted
from moldau.log.files import remove, replace
from moldau.log.header import RawHeader
from moldau.log.producers import NOT_ASKED, BatchMetadata, Producers, Verification
from moldau.log.replay import aborted_of, replay, update_producers, written_before
from moldau.log.segment import NO_OFFSET, TXN_INDEX, CorruptLogError, Segment
from moldau.log.segments import Segments
from moldau.log.snapshots import Snapshots
from moldau.wire.batch import TRANSACTIONAL, BatchHeader

logger: Final = logging.getLogger("moldau.log")

REFILL_OFFSETS: Final = 50_000  # how far back to search for batches that a snapshot lacks


class ProducerStateManager:
    __slots__ = ("_segments", "producers", "snapshots", "unreplicated")

    def __init__(self, segments: Segments, snapshots: Snapshots) -> None:
        self._segments = segments
        self.snapshots = snapshots
        self.producers = Producers()
        # With followers: the offset of each marker behind the high watermark, and where its transaction began.
        self.unreplicated: deque[tuple[Offset, Offset]] | None = None

    def check(
        self, header: RawHeader | BatchHeader, log_start: Offset, proof: Verification = NOT_ASKED
    ) -> BatchMetadata | Refusal | None:
        """Check a batch with a producer id. None: append it. BatchMetadata: a duplicate. Refusal: refuse it."""
        transactional = header[5] & TRANSACTIONAL != 0
        found = self.producers.check(header[9], header[10], header[11], header[6], transactional, proof)
        if type(found) is Refusal and found.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            state = self.producers.get(header[9])
            if state is not None and state.from_snapshot:
                self._refill(header[9], log_start)
                return self.check(header, log_start, proof)  # only once: now the state is complete
        return found

    def _refill(self, producer_id: int, log_start: Offset) -> None:
        """After a restart a producer may retry any of its five requests in flight; a snapshot has the last one."""
        state = self.producers.get(producer_id)
        assert state is not None
        end = state.batches[0].base_offset if state.batches else log_start
        batches = self._segments.headers(max(log_start, end - REFILL_OFFSETS))
        self.producers.refill(producer_id, written_before(state, batches, end))

    # -- transactions ------------------------------------------------------------------------------------------------

    def end_transaction(
        self, segment: Segment, header: RawHeader | BatchHeader, batch: memoryview | bytes, base: Offset
    ) -> None:
        """A marker was appended to `segment` at the offset `base`."""
        state = self.producers.get(header[9])
        began = -1 if state is None else state.txn_start_offset
        aborted = update_producers(self.producers, header, base, lambda: bytes(batch))
        if self.unreplicated is not None and began >= 0:
            self.unreplicated.append((base, began))
        if aborted is not None:
            if not segment.aborts:
                self._segments.aborting.append(segment)
            segment.add_aborted(aborted)

    def first_unstable_offset(self, high_watermark: Offset) -> Offset:
        """The first offset of the oldest transaction that is open, or has an unreplicated marker; NONE_OPEN if none."""
        first_open = self.producers.first_open_offset
        if self.unreplicated:
            while self.unreplicated and self.unreplicated[0][0] < high_watermark:
                self.unreplicated.popleft()
            first_open = min(first_open, min((began for _, began in self.unreplicated), default=first_open))
        return first_open

    def aborted_in(
        self, offset: Offset, piece: FileSlice, upper: Offset, bounds: tuple[Offset, Offset]
    ) -> list[Aborted]:
        """The aborted transactions that a read_committed consumer needs for a piece read from `offset` on.

        `bounds` are the log's start and end.
        """
        if not self._segments.aborting:
            return []
        log_start, log_end = bounds
        return self.aborted_transactions(offset, min(upper, self._segments.bound(offset, piece, log_end)), log_start)

    def aborted_transactions(self, from_offset: Offset, upper: Offset, log_start: Offset) -> list[Aborted]:
        """Those that overlap the offsets from `from_offset` to before `upper`, in the order of their markers."""
        found: list[Aborted] = []
        for segment in self._segments.aborting_from(from_offset):
            try:
                entries = segment.aborted_entries()
            except CorruptLogError as fault:
                entries = self.rebuild_aborted(segment, log_start, fault)
            more, complete = find_aborted(entries, from_offset, upper)
            found += more
            if complete:
                break
        return found

    # -- rebuilding --------------------------------------------------------------------------------------------------

    def truncate(self, offset: Offset) -> None:
        """Forget markers from `offset` on. `rebuild` follows after the segments are truncated."""
        if self.unreplicated:
            self.unreplicated = deque(each for each in self.unreplicated if each[0] < offset)

    def clear(self) -> list[Path]:
        """Forget everything: the log is empty. Returns files to remove."""
        if self.unreplicated:
            self.unreplicated.clear()
        self.producers.clear()
        return self.snapshots.drop_all()

    def rebuild(self, bounds: tuple[Offset, Offset], now: int, unindexed_from: Offset = NO_OFFSET) -> list[Path]:
        """Rebuild the state at the log end from a snapshot and the batches after it. Returns files to remove.

        Segments from `unindexed_from` on also get their aborted transactions back, so older snapshots are used.
        """
        start, end = bounds
        removed = self.snapshots.tidy(self._segments.bases, end)
        replay_from, broken = self.snapshots.load(self.producers, start, now, unindexed_from)
        if replay_from < end:
            for segment, aborted in replay(self.producers, self._segments.headers(replay_from), replay_from):
                if segment.base >= unindexed_from:
                    segment.add_aborted(aborted)
        if unindexed_from != NO_OFFSET:
            self._segments.replace(self._segments.each)
        return removed + broken

    def rebuild_aborted(self, segment: Segment, log_start: Offset, fault: object) -> bytes:
        """Rebuild the transaction index of a finished segment from its batches."""
        producers = Producers()
        begin, broken = self.snapshots.load(producers, log_start, 0, segment.base)
        remove(broken)
        found = aborted_of(segment, producers, self._segments.headers(begin), begin)
        logger.warning("Rebuilt the transaction index of %s: %s", segment.stem, fault)
        entries = b"".join(aborted.pack() for aborted in found)
        replace(segment.stem + TXN_INDEX, entries)
        if not entries:
            remove([Path(segment.stem + TXN_INDEX)])
            segment.aborts = False
            self._segments.replace(self._segments.each)
        return entries
