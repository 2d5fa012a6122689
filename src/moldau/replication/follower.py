"""The follower role of a replicated partition: appends the batches of its leader unchanged.

Where the logs diverge, the leader's counts: it names the epoch and its end offset (KIP-595), and the follower truncates
there. That is never below the high watermark, unless the elected leader lacks committed records.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.log.follower_append import CorruptFetchError, parse_fetched
from moldau.log.repair import drop_segments
from moldau.metadata.image import PartitionState
from moldau.replication.uncommitted import Uncommitted

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

logger: Final = logging.getLogger("moldau.replication")


class Follower:
    __slots__ = ("_partition", "_stable", "_uncommitted", "high_watermark", "leader")

    def __init__(self, partition: "Partition", state: PartitionState, high_watermark: int) -> None:
        self._partition = partition
        self._uncommitted = Uncommitted()
        self.high_watermark = high_watermark  # as far as this replica knows
        self.leader = state.leader  # -1: the partition has none
        self._stable = partition.log.last_stable_offset(high_watermark)

    def append(self, records: memoryview, high_watermark: int, log_start: int, now: int) -> list[Path]:
        """Append a response of the leader; files to remove later. Raises OSError, or CorruptFetchError."""
        partition = self._partition
        log = partition.log
        removed: list[Path] = []
        copies = parse_fetched(records, log.end_offset)
        if copies.headers:
            first: int = copies.headers[0][0]
            if first < log.end_offset:
                if log.size:
                    raise CorruptFetchError(f"a batch at offset {first} for a log that ends at {log.end_offset}")
                removed += log.truncate_fully_and_start_at(first, now)  # the leader's log starts within a batch
            log.append_as_follower(copies, now)
            self._uncommitted.add(log.end_offset, len(copies.data))
        self._commit(high_watermark)
        return removed + log.advance_start(min(log_start, self.high_watermark))

    def _commit(self, high_watermark: int) -> None:
        """The high watermark never goes back, even if a new leader does not know it yet."""
        reached = min(high_watermark, self._partition.log.end_offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self._stable = self._partition.tell_readers(self._uncommitted.take(reached), self._stable)

    def truncate_to_divergence(self, epoch: int, end: int, now: int) -> list[Path]:
        """The leader's log diverges: its largest epoch up to ours is `epoch`, which ended at `end`.

        If this log does not know that epoch, it is truncated to the end of the epoch before it, and fetches again.
        """
        log = self._partition.log
        known, known_end = log.end_offset_for_epoch(epoch)
        keep = min(known_end, log.end_offset)
        if known == epoch or known < 0:
            keep = min(keep if known >= 0 else log.start_offset, end)
        return self.truncate(max(keep, 0), now)

    def truncate(self, offset: int, now: int) -> list[Path]:
        partition = self._partition
        if offset < min(self.high_watermark, partition.log.end_offset):
            logger.error(
                "Truncating %s to offset %d, below its high watermark %d: the elected leader lacks committed records "
                "(unclean leader election), which are lost.",
                partition.name,
                offset,
                self.high_watermark,
            )
        elif offset < partition.log.end_offset:
            logger.info(
                "Truncating %s from offset %d to %d, where its leader's log diverges.",
                partition.name,
                partition.log.end_offset,
                offset,
            )
        removed = partition.log.truncate_to(offset, now)
        self._cut()
        return removed

    def discard(self, offset: int, now: int) -> list[Path]:
        """The log is corrupt from the segment at `offset` on. The leader has these records."""
        partition = self._partition
        if offset >= partition.log.end_offset:
            return []
        logger.error("The log of %s is corrupt; copying it again from offset %d on.", partition.name, offset)
        required = max(partition.standing.required_offset, self.high_watermark)
        partition.stand(replace(partition.standing, required_offset=required))
        removed = drop_segments(partition.log, offset, now)
        self._cut()
        return removed

    def restart(self, offset: int, now: int) -> list[Path]:
        """The leader has none of these records any more: begin where its log starts."""
        partition = self._partition
        logger.warning("The leader's log of %s starts at offset %d; restarting there.", partition.name, offset)
        removed = partition.log.truncate_fully_and_start_at(offset, now)
        self.high_watermark = max(self.high_watermark, offset)
        self._cut()
        return removed

    def _cut(self) -> None:
        end = self._partition.log.end_offset
        self.high_watermark = min(self.high_watermark, end)
        self._stable = min(self._stable, end)
        self._uncommitted.cut(end)
        self._partition.changed()
