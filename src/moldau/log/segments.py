"""Segments: the segments of one log in order; finds offsets and times in them. Knows nothing of producers.

A lookup rebuilds the indexes of a finished segment if they do not match it.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from moldau.base.ids import Offset
from moldau.base.slices import FileSlice
from moldau.log.header import RawHeader
from moldau.log.reading import StoredBatch, read_batches
from moldau.log.recovery import SWAP, rebuild_indexes
from moldau.log.segment import SUFFIXES, CorruptLogError, Segment
from moldau.log.settings import LogConfig

_base: Final = attrgetter("base")


class SegmentSummary(NamedTuple):
    """End, size and age of a segment, for retention."""

    end: Offset  # of the next segment
    size: int
    newest: int  # largest timestamp (ms) or, without timestamps, the time of the last write


class Segments:
    """The segments of an open log: at least one."""

    __slots__ = ("_name", "aborting", "bases", "config", "each", "missing")

    def __init__(self, config: LogConfig, name: str, each: Iterable[Segment] = ()) -> None:
        self._name = name
        self.config = config
        self.missing: list[Offset] = []  # base offsets in between that were missing when the log was opened
        self.replace(each)

    def replace(self, each: Iterable[Segment]) -> None:
        self.each = list(each)
        self.bases = [segment.base for segment in self.each]
        self.aborting = [segment for segment in self.each if segment.aborts]  # those with aborted transactions

    def add(self, segment: Segment) -> None:
        self.each.append(segment)
        self.bases.append(segment.base)

    def drop_before(self, offset: int) -> tuple[list[Path], int]:
        """Remove segments that end at `offset` or before; files to delete, and their bytes of records."""
        gone = self.each[: max(bisect_right(self.bases, offset) - 1, 0)]
        self.replace(self.each[len(gone) :])
        return [path for segment in gone for path in segment.mark_deleted()], sum(segment.size for segment in gone)

    def drop_behind(self, offset: int) -> list[Path]:
        """Remove segments that begin after `offset`; files to delete."""
        keep = bisect_right(self.bases, offset)
        gone = self.each[keep:]
        self.replace(self.each[:keep])
        return [path for segment in gone for path in segment.mark_deleted()]

    def exchange(self, bases: list[int], new: Segment) -> tuple[list[Path], int]:
        """Replace the segments at `bases` with a compacted one; files to delete, and how many bytes it adds.

        Its files have the suffix `.swap`, by which recovery completes an interrupted replacement.
        """
        first = self.bases.index(bases[0])
        old = self.each[first : first + len(bases)]
        removed = [path for segment in old for path in segment.mark_deleted()]
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                os.rename(new.stem + suffix + SWAP, new.stem + suffix)
        self.replace([*self.each[:first], new, *self.each[first + len(bases) :]])
        return removed, new.size - sum(segment.size for segment in old)

    def holding(self, offset: int) -> int:
        """The index of the segment with `offset`."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def aborting_from(self, offset: int) -> list[Segment]:
        """Segments with aborted transactions, from the one with `offset` on."""
        if not self.aborting:
            return []
        return self.aborting[bisect_left(self.aborting, self.bases[self.holding(offset)], key=_base) :]

    # -- positions ---------------------------------------------------------------------------------------------------

    def position(self, segment: Segment, offset: int) -> int:
        """As `Segment.position_of`."""
        try:
            return segment.position_of(offset)
        except CorruptLogError as fault:
            self._reindex(segment, fault)
            return segment.position_of(offset)

    def max_timestamp(self, segment: Segment) -> tuple[int, int]:
        """As `Segment.max_timestamp`."""
        try:
            return segment.max_timestamp()
        except CorruptLogError as fault:
            self._reindex(segment, fault)
            return segment.max_timestamp()

    def _position_of_time(self, segment: Segment, timestamp: int, offset: int) -> int:
        """As `Segment.position_of_time`."""
        try:
            return segment.position_of_time(timestamp, offset)
        except CorruptLogError as fault:
            self._reindex(segment, fault)
            return segment.position_of_time(timestamp, offset)

    def indexed_to(self, point: int) -> int:
        """`point`, or the base of an earlier finished segment without indexes on disk."""
        index = len(self.each) - 2
        while index >= 0 and self.each[index].live is not None:
            point = min(point, self.each[index].base)
            index -= 1
        return point

    def summaries(self, end_offset: int) -> Iterator[SegmentSummary]:
        """End, size and age of each, oldest first. Reads time indexes lazily."""
        for index, segment in enumerate(self.each):
            end = self.bases[index + 1] if index + 1 < len(self.bases) else end_offset
            timestamp, _ = self.max_timestamp(segment)
            yield SegmentSummary(end, segment.size, timestamp if timestamp >= 0 else segment.changed_at())

    def _reindex(self, segment: Segment, fault: CorruptLogError) -> None:
        """Rebuild the indexes of a finished segment; raises the fault for others."""
        if segment.live is not None or segment.gone:
            raise fault
        rebuild_indexes(segment, self.config, self._name, str(fault))

    def bound(self, offset: int, piece: FileSlice, end_offset: int) -> int:
        """An upper bound, from the index, of the offsets in a read from `offset` on."""
        index = self.holding(offset)
        segment = self.each[index]
        if piece.file is segment.file:
            try:
                behind = segment.offset_at(piece.position + piece.length)
            except CorruptLogError:  # the next lookup rebuilds the index
                behind = None
            if behind is not None:
                return behind
            if index + 1 < len(self.bases):
                return self.bases[index + 1]
        return end_offset

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of the batches from the one with `start` to before the one with `end`."""
        first, last = self.holding(start), self.holding(end)
        sizes = sum(segment.size for segment in self.each[first:last])
        return sizes + self.position(self.each[last], end) - self.position(self.each[first], start)

    # -- batches -----------------------------------------------------------------------------------------------------

    def headers(self, from_offset: int) -> Iterator[tuple[Segment, int, RawHeader]]:
        """Segment, position and header of each batch from the one with `from_offset` on."""
        for segment in self.each[self.holding(from_offset) :]:
            for position, header in segment.headers(self.position(segment, max(from_offset, segment.base))):
                yield segment, position, header

    def batches(self, from_offset: int) -> Iterator[StoredBatch]:
        """Header and bytes of each batch from the one with `from_offset` to the present end."""
        first, *others = self.each[self.holding(from_offset) :]
        begin = self.position(first, max(from_offset, first.base))
        pieces = [(first, begin, first.size), *((segment, 0, segment.size) for segment in others)]
        return chain.from_iterable(read_batches(*piece) for piece in pieces)

    def batch_at_time(self, timestamp: int, from_offset: int) -> bytes | None:
        """The first batch, not before `from_offset`, with a record of `timestamp` or later."""
        for segment in self.each[self.holding(from_offset) :]:
            if self.max_timestamp(segment)[0] >= timestamp:
                position = self._position_of_time(segment, timestamp, max(from_offset, segment.base))
                if position < segment.size:
                    return segment.read_batch(position)
        return None

    def batch_of_max_timestamp(self) -> bytes | None:
        """The first batch with the largest timestamp, or None without timestamps."""
        best, largest = None, -1
        for segment in self.each:
            timestamp, _ = self.max_timestamp(segment)
            if timestamp > largest:
                best, largest = segment, timestamp
        if best is None:
            return None
        position = self.position(best, best.max_timestamp()[1])
        if position >= best.size:
            raise CorruptLogError(f"{best.stem}: the time index has an offset that is not in the segment")
        return best.read_batch(position)
