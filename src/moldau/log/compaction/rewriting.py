"""Cleaning of one log: maps the keys of the dirty part, then rewrites groups of segments as `.cleaned` files.

Only reads the log's own files; `swapping` replaces them with the new ones. Runs in the cleaner process. `pace` is
called with the number of bytes of every read and write, and throttles them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter

from moldau.base.crc import crc32c
from moldau.log import aborted
from moldau.log.aborted import Aborted
from moldau.log.compaction.filtering import Filter
from moldau.log.compaction.keys import KeyMap
from moldau.log.compaction.records import body_of, read_keys, read_spans
from moldau.log.compaction.transactions import Transactions
from moldau.log.compaction.work import Cleaned, Tally, Work
from moldau.log.files import OpenFiles, read_whole, write_all, write_tail
from moldau.log.index import LiveIndex
from moldau.log.reading import read_batches
from moldau.log.recovery import CLEANED
from moldau.log.segment import (
    INDEX,
    LOG,
    MAX_RELATIVE_OFFSET,
    SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    CorruptLogError,
    Segment,
    file_stem,
)
from moldau.wire.batch import CONTROL, CRC_START, MAGIC, BatchHeader

SYNC_EVERY = 16 * 1024 * 1024  # bytes; short syncs, so that the broker's own writes do not wait long for the disk

_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
Pace = Callable[[int], None]
Batch = tuple[BatchHeader, memoryview]


def clean(work: Work, pace: Pace) -> Iterator[Cleaned | Tally]:
    """Do the work. Yields each group of segments when its files are on disk, and the tally at the end."""
    return Cleaner(work, pace).run()


class Cleaner:
    def __init__(self, work: Work, pace: Pace) -> None:
        self._work = work
        self._pace = pace
        files = OpenFiles()
        self._segments = [
            Segment(file_stem(work.directory, base), base, size, files, 0) for base, size, _ in work.segments
        ]
        self._records_read = 0
        self._bytes_read = 0
        self._bytes_kept = 0

    def run(self) -> Iterator[Cleaned | Tally]:
        found = self._aborted()
        keys = self._map_keys(Transactions(found, self._work.first_dirty))
        transactions = Transactions(found)
        filtered = Filter(self._work, keys, transactions)
        for group in self._groups(keys.end):
            cleaned = self._rewrite(group, filtered, transactions)
            yield cleaned
        yield Tally(
            end=keys.end,
            keys=len(keys.offsets),
            records_read=self._records_read,
            records_kept=filtered.records_kept,
            bytes_read=self._bytes_read,
            bytes_kept=self._bytes_kept,
            keyless=keys.keyless,
        )

    def _aborted(self) -> list[Aborted]:
        """Aborted transactions with data in the segments to clean."""
        found = [Aborted._make(each) for each in self._work.aborted_later]
        for segment, (_, _, aborts) in zip(self._segments, self._work.segments, strict=True):
            if aborts:
                entries = read_whole(segment.stem + TXN_INDEX) or b""
                if not entries or not aborted.sound(entries, segment.base):
                    raise CorruptLogError(f"{segment.stem}{TXN_INDEX} is not a transaction index of its segment")
                found += aborted.read_all(entries)
        return found

    def _batches(self, segment: Segment, position: int = 0) -> Iterator[Batch]:
        """The batches of a segment, with valid lengths and checksums; CorruptLogError otherwise."""
        expected = segment.base
        for header, batch in read_batches(segment, position, segment.size, self._work.chunk):
            if header.magic != MAGIC or not expected <= header.base_offset <= header.last_offset:
                raise CorruptLogError(f"offsets {header.base_offset} to {header.last_offset} follow {expected - 1}")
            if crc32c(batch[CRC_START:]) != header.crc:
                raise CorruptLogError(f"the checksum of the batch at offset {header.base_offset} is wrong")
            expected = header.last_offset + 1
            self._pace(len(batch))
            yield header, batch

    # -- the key map -------------------------------------------------------------------------------------------------

    def _map_keys(self, transactions: Transactions) -> KeyMap:
        """The keys of the dirty part, as many as fit: those before `end`, at least of one batch."""
        work = self._work
        keys = KeyMap(work.key_memory)
        keys.end = work.first_dirty
        ends = [segment.base for segment in self._segments[1:]] + [work.upper]
        for segment, end in zip(self._segments, ends, strict=True):
            if end <= work.first_dirty:
                continue
            for header, batch in self._batches(segment, _position(segment, work.first_dirty)):
                if keys.full:
                    return keys
                self._map_batch(header, batch, keys, transactions)
                keys.end = header.last_offset + 1
            keys.end = end
        return keys

    def _map_batch(self, header: BatchHeader, batch: memoryview, keys: KeyMap, transactions: Transactions) -> None:
        base, count = header.base_offset, header.record_count
        if header.attributes & CONTROL:
            transactions.is_useless(header, batch)
        elif not transactions.is_aborted(header) and count:
            body = body_of(header, batch)
            first = self._work.first_dirty
            if header.dense and base >= first:
                names, tombstones = read_keys(body, count)
                keys.add(names, range(base, base + count))
                if tombstones:
                    keys.note_tombstones(base)
            else:
                places = [place for place in read_spans(body, count) if base + place.offset_delta >= first]
                keys.add([place.key for place in places], [base + place.offset_delta for place in places])

    # -- the rewrite -------------------------------------------------------------------------------------------------

    def _groups(self, end: int) -> Iterator[list[Segment]]:
        """Groups of the segments that begin before `end`. A group fits into one segment even if all records stay."""
        work = self._work
        group: list[Segment] = []
        taken = (0, 0, 0)
        following = [segment.base for segment in self._segments[1:]] + [work.upper]
        for segment, behind in zip(self._segments, following, strict=True):
            if segment.base >= end:
                break
            own = segment.size, _file_size(segment.stem + INDEX), _file_size(segment.stem + TIME_INDEX)
            sizes = taken[0] + own[0], taken[1] + own[1], taken[2] + own[2]
            fits = sizes[0] <= work.segment_bytes and max(sizes[1:]) <= work.segment_index_bytes
            if group and not (fits and behind - 1 - group[0].base <= MAX_RELATIVE_OFFSET):
                yield group
                group, sizes = [], own
            group.append(segment)
            taken = sizes
        if group:
            yield group

    def _rewrite(self, group: list[Segment], filtered: Filter, transactions: Transactions) -> Cleaned:
        work = self._work
        output = Output(work, group[0].base, self._pace)
        try:
            for segment in group:
                for header, batch in self._batches(segment):
                    self._records_read += header.record_count
                    self._bytes_read += len(batch)
                    left = filtered.leave(header, batch)
                    if left is not None:
                        output.add(*left)
            changed = os.stat(group[-1].stem + LOG).st_mtime_ns
            needed, transactions.needed = transactions.needed, []
            output.finish(needed, changed)
        except BaseException:
            output.abandon()
            raise
        self._bytes_kept += output.size
        return Cleaned([segment.base for segment in group], output.size, bool(needed))


class Output:
    """The compacted segment of a group: its files, with the suffix `.cleaned`."""

    def __init__(self, work: Work, base: int, pace: Pace) -> None:
        self._stem = file_stem(work.directory, base)
        self._base = base
        self._chunk = work.chunk
        self._pace = pace
        self._index = LiveIndex(work.index_interval_bytes, work.segment_index_bytes)
        self._waiting: list[bytes | memoryview] = []
        self._waiting_size = 0
        self._unsynced = 0
        self.size = 0
        remove_cleaned(self._stem)
        self._fd = os.open(self._stem + LOG + CLEANED, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def add(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        first = header.base_offset - self._base
        self._index.add(first, first + header.last_offset_delta, self.size, header.max_timestamp)
        self._waiting.append(batch)
        self._waiting_size += len(batch)
        self.size += len(batch)
        if self._waiting_size >= self._chunk:
            self._write()

    def _write(self) -> None:
        write_all(self._fd, b"".join(self._waiting))
        self._pace(self._waiting_size)
        self._unsynced += self._waiting_size
        if self._unsynced >= SYNC_EVERY:
            _sync_data(self._fd)
            self._unsynced = 0
        self._waiting = []
        self._waiting_size = 0

    def finish(self, needed: list[Aborted], changed: int) -> None:
        """Sync the files after the last batch, and give them the time of the files that they replace."""
        self._write()
        os.fsync(self._fd)
        os.utime(self._fd, ns=(changed, changed))
        os.close(self._fd)
        self._fd = -1
        index = self._index
        index.mark_time()
        write_tail(self._stem + INDEX + CLEANED, 0, bytes(index.offsets_pending))
        write_tail(self._stem + TIME_INDEX + CLEANED, 0, bytes(index.times))
        if needed:
            entries = sorted(needed, key=attrgetter("last_offset"))
            write_tail(self._stem + TXN_INDEX + CLEANED, 0, b"".join(entry.pack() for entry in entries))

    def abandon(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        remove_cleaned(self._stem)


def _position(segment: Segment, offset: int) -> int:
    """The position of the batch with `offset`, or an earlier one, by the segment's index; 0 without a usable index."""
    if offset > segment.base:
        with suppress(CorruptLogError):
            return segment.position_of(offset)
    return 0


def _file_size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def remove_cleaned(stem: str) -> None:
    for suffix in SUFFIXES:
        if os.path.exists(stem + suffix + CLEANED):
            os.unlink(stem + suffix + CLEANED)
