"""The follower's role of a replicated partition: takes what its leader sends into the log, as it is.

Where the two logs part, the leader's counts: it says in which epoch and where (KIP-595), and what lies behind is cut
off here. That never reaches below the high watermark, unless a leader was elected that lacks what was committed.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.log.follower_append import CorruptFetchError, parse_fetched
from moldau.log.repair import drop_segments
from moldau.metadata.image import PartitionState
from moldau.replication.roles import Uncommitted

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")


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
        """What is committed stays committed, even if a new leader does not know yet that it is."""
        reached = min(high_watermark, self._partition.log.end_offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self._stable = self._partition.tell_readers(self._uncommitted.take(reached), self._stable)

    def part_ways(self, epoch: int, end: int, now: int) -> list[Path]:
        """The leader's log parts from this one: its largest epoch up to ours is `epoch`, which ended at `end`.

        If this log does not know that epoch either, it goes back to the end of the one before it, and the leader is
        asked again.
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
                "%s-%d is cut off at offset %d, although everything before %d was committed: a leader was elected that "
                "did not have it",
                partition.topic,
                partition.index,
                offset,
                self.high_watermark,
            )
        elif offset < partition.log.end_offset:
            logger.info(
                "%s-%d is cut off at offset %d of %d, where its leader's log parts",
                partition.topic,
                partition.index,
                offset,
                partition.log.end_offset,
            )
        removed = partition.log.truncate_to(offset, now)
        self._cut()
        return removed

    def discard(self, offset: int, now: int) -> list[Path]:
        """The segment that begins at `offset` is damaged. The leader has all that is in it and behind."""
        partition = self._partition
        if offset >= partition.log.end_offset:
            return []
        logger.error(
            "%s-%d is damaged behind offset %d, and copied anew from there", partition.topic, partition.index, offset
        )
        required = max(partition.standing.required_offset, self.high_watermark)
        partition.stand(replace(partition.standing, required_offset=required))
        removed = drop_segments(partition.log, offset, now)
        self._cut()
        return removed

    def restart(self, offset: int, now: int) -> list[Path]:
        """Nothing of this log is in the leader's any more: begin where that one begins."""
        partition = self._partition
        logger.warning(
            "%s-%d begins anew at offset %d, as its leader's log does", partition.topic, partition.index, offset
        )
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
