"""Putting compacted segments in the place of those that they were made from; a crash at any moment leaves a log.

As Kafka does it: `.cleaned` files become `.swap` files; from then on a start finishes the exchange, and before that it
undoes it (`recovery.finish_swaps`). Then the old files leave the log and the new ones get their names. Names are made
durable before what relies on them, in a thread; what must not be interrupted runs on the loop.
"""

import os
from contextlib import suppress
from pathlib import Path

from moldau.log.compaction.work import Cleaned, Work
from moldau.log.files import sync_directory
from moldau.log.log import Log
from moldau.log.recovery import CLEANED, SWAP
from moldau.log.segment import SUFFIXES, file_stem


class Swaps:
    """Those of one piece of work. For each group: `commit`; then, if `possible` still, `carry_out`; then `settle`."""

    def __init__(self, log: Log, work: Work) -> None:
        """In the turn of the loop in which the work was planned."""
        self._log = log
        self._directory = work.directory
        self._generation = log.generation
        self._planned = {segment.base: segment for segment in log.segments.each if segment.base < work.upper}

    def commit(self, cleaned: Cleaned) -> None:
        """In a thread. Afterwards a crash leads to the compacted segment, before it to the old ones."""
        stem = file_stem(self._directory, cleaned.bases[0])
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                os.rename(stem + suffix + CLEANED, stem + suffix + SWAP)
        sync_directory(self._directory)

    def possible(self, cleaned: Cleaned) -> bool:
        """Whether the log still has the segments that were compacted, as they were."""
        segments, bases = self._log.segments, cleaned.bases
        first = segments.holding(bases[0])
        now = segments.each[first : first + len(bases)]
        then = [self._planned.get(base) for base in bases]
        return self._log.generation == self._generation and now == then

    def disturbed(self) -> bool:
        """Whether segments went, or were cut, that were still to be compacted: the cleaner may have tripped over it."""
        return self._log.generation != self._generation or any(segment.gone for segment in self._planned.values())

    def carry_out(self, cleaned: Cleaned, now: int) -> list[Path]:
        """On the loop. Files to remove once `settle` has run."""
        for base in cleaned.bases:
            del self._planned[base]
        return self._log.replace_segments(cleaned.bases, cleaned.size, cleaned.aborts, now)

    def settle(self) -> None:
        """In a thread: the new names are durable."""
        sync_directory(self._directory)

    def undo(self, cleaned: Cleaned) -> None:
        """In a thread, instead of carrying it out."""
        stem = file_stem(self._directory, cleaned.bases[0])
        for suffix in SUFFIXES:
            for state in (CLEANED, SWAP):
                Path(stem + suffix + state).unlink(missing_ok=True)
