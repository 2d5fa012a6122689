"""Segment: one `.log` file and its indexes. Knows nothing of other segments, of producers or of replication."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Final, TypeVar

from moldau.log import aborted
from moldau.log.files import LogFile, OpenFiles, is_transient, mark_deleted, read_whole
from moldau.log.header import RawHeader
from moldau.log.index import TIME_ENTRY, ColdIndex, LiveIndex, find_time, last_time, sound_times
from moldau.wire.batch import HEADER, HEADER_SIZE, MAGIC, PREFIX_SIZE

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
NOT_SCHEDULED: Final = 2**63  # later than any time
NO_OFFSET: Final = 2**63  # larger than any offset
READ_AHEAD: Final = 4160  # bytes read to step from batch to batch: a default index interval and a header
WALK_AHEAD: Final = 65536  # the same for a walk over the whole file
_PLACE: Final = Struct(">qi11xi")  # base offset, length, last offset delta
_PLACE_SIZE: Final = _PLACE.size
_LENGTH: Final = Struct(">8xi")

T = TypeVar("T")


class CorruptLogError(Exception):
    """A segment or one of its indexes is corrupt."""


def unreadable(path: str, problem: OSError) -> Exception:
    """An unreadable index counts as corrupt: it is rebuilt, on another part of the disk."""
    return problem if is_transient(problem) else CorruptLogError(f"{path} cannot be read: {problem.strerror}")


def read_index(path: str) -> bytes | None:
    try:
        return read_whole(path)
    except OSError as problem:
        raise unreadable(path, problem) from None


def file_stem(directory: str, base: int) -> str:
    """Path of a segment's files without suffix: the base offset in 20 digits, so that names sort as offsets do."""
    return f"{directory}/{base:020d}"


class Segment:
    """The active segment has a `live` index; a finished one drops it when the index is on disk."""

    __slots__ = (
        "_aborted",
        "_files",
        "_max_timestamp",
        "aborts",
        "base",
        "cold",
        "created",
        "file",
        "gone",
        "live",
        "roll_at",
        "size",
        "stem",
        "timed",
        "touched",
    )

    def __init__(self, stem: str, base: int, size: int, files: OpenFiles, created: int) -> None:
        self.stem = stem
        self.base = base
        self.size = size
        self.created = created
        self.file: LogFile | None = None
        self.live: LiveIndex | None = None
        self.cold: ColdIndex | None = None
        self.touched = False
        self.aborts = False  # it has aborted transactions
        self.gone = False  # it was deleted from the log
        self.timed = False  # its first batch has a timestamp, by which it rolls
        self.roll_at = NOT_SCHEDULED
        self._files = files
        self._aborted: bytes | None = None  # the file, of a finished segment
        self._max_timestamp: tuple[int, int] | None = None

    def open_file(self) -> LogFile:
        self.file = LogFile(self.stem + LOG)
        return self.file

    def release_file(self) -> None:
        self.file = None
        self.cold = None
        self._aborted = None

    def opened(self) -> LogFile:
        """The open file, from the pool if necessary."""
        self.touched = True
        return self.file or self._files.open(self)

    def schedule_roll(self, first_timestamp: int, roll_ms: int) -> None:
        """Set when to roll: by record timestamps if the first batch has one, else by creation time."""
        self.timed = first_timestamp >= 0
        self.roll_at = (first_timestamp if self.timed else self.created) + roll_ms

    def first_timestamp(self) -> int | None:
        """Largest timestamp of the first batch; None if there is no batch."""
        if self.size < HEADER_SIZE:
            return None
        file = self.opened()
        timestamp: int = HEADER.unpack(os.pread(file.fd, HEADER_SIZE, 0))[8]
        return timestamp

    # -- positions ---------------------------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int:
        """Where the first batch that ends at `offset` or later begins; the segment's size if there is none."""
        live = self.live
        if self.gone and not self.cold and not live:
            return seek(self.opened(), 0, self.size, offset)
        if live is None:
            position, named = self._ask_index(lambda index: index.find(offset - self.base))
            if named is not None:
                self._confirm_position(position, named)
            return seek(self.opened(), position, self.size, offset)
        position, exact = live.find(offset - self.base)
        return position if exact else seek(self.opened(), position, self.size, offset)

    def offset_at(self, position: int) -> int | None:
        """An offset in a batch that begins at `position` or behind; None if the index knows none."""
        live = self.live
        if live is not None:
            relative = live.offset_at(position)
            return None if relative is None else self.base + relative
        entry = self._ask_index(lambda index: index.entry_at(position))
        if entry is None:
            return None
        offset, at = entry
        self._confirm_position(at, offset)
        return self.base + offset

    def _confirm_position(self, position: int, named: int) -> None:
        """Check that the batch at an index entry's position begins at its offset or before."""
        data = os.pread(self.opened().fd, HEADER_SIZE, position)
        if len(data) == HEADER_SIZE:
            base, length, _, magic, _, _, delta, *_ = HEADER.unpack(data)
            fits = length >= HEADER_SIZE - PREFIX_SIZE and position + length + PREFIX_SIZE <= self.size
            if magic == MAGIC and fits and delta >= 0 and self.base <= base <= self.base + named:
                return
        raise CorruptLogError(f"{self.stem}{INDEX}: wrong entry for offset {self.base + named} at position {position}")

    def size_of_batch(self, position: int) -> int:
        file = self.opened()  # kept: the pool may close its own reference
        return int(_LENGTH.unpack(os.pread(file.fd, PREFIX_SIZE, position))[0]) + PREFIX_SIZE

    def read_batch(self, position: int) -> bytes:
        return self.read_bytes(position, self.size_of_batch(position))

    def read_bytes(self, position: int, size: int) -> bytes:
        file = self.opened()
        return os.pread(file.fd, size, position)

    def headers(self, position: int = 0) -> Iterator[tuple[int, RawHeader]]:
        """Position and header of each batch from `position` on."""
        return walk(self.opened(), position, self.size)

    def _ask_index(self, ask: Callable[[ColdIndex], T]) -> T:
        """A lookup in the index of a finished segment."""
        try:
            return ask(self.cold or self._open_index())
        except OSError as problem:
            raise unreadable(self.stem + INDEX, problem) from None

    def _open_index(self) -> ColdIndex:
        self.opened()  # the pool also bounds the open indexes
        index = ColdIndex(self.stem + INDEX)
        if not index.sound(self.size):
            raise CorruptLogError(f"{self.stem}{INDEX} does not match its segment of {self.size} bytes")
        self.cold = index
        return index

    # -- time --------------------------------------------------------------------------------------------------------

    def times(self) -> bytes | bytearray:
        """The time index in its file's form."""
        if self.live is not None:
            return self.live.times
        if self.gone:  # its file was renamed, or replaced
            latest = max((header for _, header in self.headers()), key=itemgetter(8), default=None)
            if latest is None or latest[8] < 0:
                return b""
            return TIME_ENTRY.pack(latest[8], latest[0] + latest[6] - self.base)
        times = read_index(self.stem + TIME_INDEX)
        if times is None or not sound_times(times):
            raise CorruptLogError(f"{self.stem}{TIME_INDEX} is not a time index")
        return times

    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the offset of the end of its batch; (-1, base) if no batch has one."""
        if self.live is not None:
            return self.live.max_timestamp, self.base + self.live.max_timestamp_offset
        if self._max_timestamp is None:
            times = self.times()
            timestamp, offset = last_time(times)
            if times:
                self._confirm_time(timestamp, offset)
            self._max_timestamp = timestamp, self.base + offset
        return self._max_timestamp

    def _confirm_time(self, timestamp: int, offset: int) -> None:
        """Check a time index entry against its batch, or records would be missed, or deleted too early."""
        if self.live is None and not self.gone:
            found = next(self.headers(self.position_of(self.base + offset)), None)
            if found is None or found[1][8] != timestamp:
                raise CorruptLogError(f"{self.stem}{TIME_INDEX}: wrong entry, {timestamp} at {self.base + offset}")

    def changed_at(self) -> int:
        """When it was last written (ms)."""
        return os.stat(self.stem + LOG).st_mtime_ns // 1_000_000

    def position_of_time(self, timestamp: int, offset: int) -> int:
        """Where the first batch begins that ends at `offset` or later and reaches `timestamp`; the size if none."""
        earlier = find_time(self.times(), timestamp)
        if earlier is not None:
            self._confirm_time(*earlier)
            offset = max(self.base + earlier[1], offset)
        for position, header in self.headers(self.position_of(offset)):
            if header[8] >= timestamp:
                return position
        return self.size

    # -- aborted transactions ----------------------------------------------------------------------------------------

    def add_aborted(self, entry: aborted.Aborted) -> None:
        assert self.live is not None
        self.live.aborted += entry.pack()
        self.aborts = True

    def aborted_entries(self) -> aborted.Entries:
        """Its aborted transactions in their file's form."""
        if self.live is not None:
            return self.live.aborted
        if self._aborted is None:
            self.opened()  # the pool also bounds what is cached of these files
            self._aborted = self._read_aborted()
        return self._aborted

    def _read_aborted(self) -> bytes:
        path = self.stem + TXN_INDEX
        entries = read_index(path)
        if not entries:
            raise CorruptLogError(f"{path} has no entries")
        if not aborted.sound(entries, self.base):
            raise CorruptLogError(f"{path} is not a transaction index of its segment")
        return entries

    # -- changes -----------------------------------------------------------------------------------------------------

    def cut(self, offset: int, position: int) -> None:
        """Truncate before the batch at `position`; `offset` is the first one removed."""
        os.ftruncate(self.opened().fd, position)
        self.size = position
        if self.live is not None:
            kept = aborted.cut(self.live.aborted, offset)
            self.live = self.live.cut(offset - self.base, position, read_whole(self.stem + INDEX) or b"")
            self.live.aborted += kept
            self.aborts = bool(kept)
            self.index_from(self.live.indexed)

    def index_from(self, position: int) -> int:
        """Add the batches from the last index entry, at `position`, to the live index; returns the end offset."""
        live = self.live
        assert live is not None
        self._max_timestamp = self.cold = self._aborted = None  # cached from its time as a finished segment
        named = self.base + (live.offsets[-1] >> 32) if live.offsets else None
        end = self.base
        for at, header in self.headers(position):
            first, last = header[0], header[0] + header[6]
            odd = header[3] != MAGIC or not end <= first <= last or last - self.base > MAX_RELATIVE_OFFSET
            if odd or (named is not None and last != named):
                raise CorruptLogError(f"offsets {first} to {last} at position {at} of {self.stem}")
            named = None
            end = last + 1
            live.add(first - self.base, last - self.base, at, header[8])
        return end

    def finish(self) -> None:
        """Complete the time index, by which retention knows the segment's age. No batch follows."""
        assert self.live is not None
        self.live.mark_time()

    def mark_deleted(self) -> list[Path]:
        """Rename the files out of the log. Readers in threads continue with the open file."""
        if not self.gone:
            with suppress(OSError):  # missing or unreadable: then there are no readers
                self.opened()
            self.gone = True
            self._files.leave_open(self)
        return mark_deleted(self.stem + suffix for suffix in SUFFIXES)

    def close(self) -> None:
        self._files.forget(self)


def create(stem: str, base: int, files: OpenFiles, now: int, interval: int, index_bytes: int) -> Segment:
    """A new, empty segment. Its index files are created when they are first written."""
    segment = Segment(stem, base, 0, files, now)
    segment.live = LiveIndex(interval, index_bytes)
    segment.live.rewrite = True
    os.close(os.open(stem + LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
    return segment


def seek(file: LogFile, position: int, end: int, offset: int) -> int:
    """The position of the first batch, from `position` on, that ends at `offset` or later; `end` if there is none."""
    unpack = _PLACE.unpack_from
    while position < end:
        chunk = os.pread(file.fd, READ_AHEAD, position)
        last = len(chunk) - _PLACE_SIZE
        at = 0
        while at <= last:
            base, length, delta = unpack(chunk, at)
            if base + delta >= offset:
                if base - offset > MAX_RELATIVE_OFFSET:
                    raise CorruptLogError(f"a batch with offset {base} at position {position + at}")
                return position + at
            if length < HEADER_SIZE - PREFIX_SIZE:
                raise CorruptLogError(f"a batch of {length} bytes at position {position + at}")
            at += length + PREFIX_SIZE
        if not at:
            raise CorruptLogError(f"no batch in {len(chunk)} bytes at position {position}")
        position += at
    if position > end:
        raise CorruptLogError(f"the last batch is longer than its file, by {position - end} bytes")
    return end


def walk(file: LogFile, position: int, end: int) -> Iterator[tuple[int, RawHeader]]:
    """Position and header of each batch between `position` and `end`; checks lengths only."""
    unpack = HEADER.unpack_from
    fd = file.fd
    size = 0
    while position < end:
        # Large batches are skipped without reading their records.
        ahead = WALK_AHEAD if size < READ_AHEAD else HEADER_SIZE
        chunk = os.pread(fd, min(ahead, end - position), position)
        last = len(chunk) - HEADER_SIZE
        at = 0
        while at <= last:
            header: RawHeader = unpack(chunk, at)
            size = header[1] + PREFIX_SIZE
            if size < HEADER_SIZE or position + at + size > end:
                raise CorruptLogError(f"a batch of {size} bytes at position {position + at} of {end}")
            yield position + at, header
            at += size
        if not at:
            raise CorruptLogError(f"no batch in {len(chunk)} bytes at position {position}")
        position += at
