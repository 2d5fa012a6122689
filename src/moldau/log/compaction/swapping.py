"""Swaps: replaces segments with the compacted one; a crash at any moment leaves a valid log.

As in Kafka, `.cleaned` files are renamed to `.swap` files, then the old files are deleted, and the new ones get their
names. After a crash recovery completes a replacement that has `.swap` files, and undoes an earlier one
(`recovery.finish_swaps`). A thread syncs each rename before the next step; steps that change the log run on the event
loop.
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
        """To be called in the same turn of the event loop as `plan`."""
        self._log = log
        self._directory = work.directory
        self._generation = log.generation
        self._planned = {segment.base: segment for segment in log.segments.each if segment.base < work.upper}

    def commit(self, cleaned: Cleaned) -> None:
        """Rename to `.swap`, in a thread. After a crash the log has the compacted segment from here on."""
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
        """Whether planned segments were deleted or truncated, which can be why the cleaner failed."""
        return self._log.generation != self._generation or any(segment.gone for segment in self._planned.values())

    def carry_out(self, cleaned: Cleaned, now: int) -> list[Path]:
        """Replace the segments in the log, on the event loop. Returns files to remove after `settle`."""
        for base in cleaned.bases:
            del self._planned[base]
        return self._log.replace_segments(cleaned.bases, cleaned.size, cleaned.aborts, now)

    def settle(self) -> None:
        """Make the new names durable; in a thread."""
        sync_directory(self._directory)

    def undo(self, cleaned: Cleaned) -> None:
        """Take `commit` back; in a thread."""
        stem = file_stem(self._directory, cleaned.bases[0])
        for suffix in SUFFIXES:
            for state in (CLEANED, SWAP):
                Path(stem + suffix + state).unlink(missing_ok=True)
