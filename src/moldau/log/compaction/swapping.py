"""Replacing segments with their compacted one; a crash at any moment leaves a valid log.

As in Kafka: `.cleaned` files become `.swap` files. From then on recovery completes the replacement; before that it
undoes it (`recovery.finish_swaps`). Then the old files are deleted and the new ones get their names. Names are synced
in a thread before anything relies on them; what must not be interrupted runs on the loop.
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
    """The replacements of one cleaning. For each group: `commit`, `carry_out` if still `possible`, `settle`."""

    def __init__(self, log: Log, work: Work) -> None:
        """Call it in the same turn of the loop as `plan`."""
        self._log = log
        self._directory = work.directory
        self._generation = log.generation
        self._planned = {segment.base: segment for segment in log.segments.each if segment.base < work.upper}

    def commit(self, cleaned: Cleaned) -> None:
        """In a thread. A crash afterwards leaves the compacted segment, before it the old ones."""
        stem = file_stem(self._directory, cleaned.bases[0])
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                os.rename(stem + suffix + CLEANED, stem + suffix + SWAP)
        sync_directory(self._directory)

    def possible(self, cleaned: Cleaned) -> bool:
        """Whether the log still has the segments that were compacted."""
        segments, bases = self._log.segments, cleaned.bases
        first = segments.holding(bases[0])
        now = segments.each[first : first + len(bases)]
        then = [self._planned.get(base) for base in bases]
        return self._log.generation == self._generation and now == then

    def disturbed(self) -> bool:
        """Whether planned segments were deleted or truncated: the cleaner may have failed for that reason."""
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
