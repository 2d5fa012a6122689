"""Indexes of one segment: offset → position and timestamp → offset, both sparse. Knows no batches.

`LiveIndex` grows in memory while its segment is written; `ColdIndex` reads the finished file. On disk both are Kafka's:
`.index` holds (relative offset u32, position u32), `.timeindex` (timestamp i64, relative offset u32), big endian.
"""

import errno
import os
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final

OFFSET_ENTRY: Final = Struct(">II")
OFFSET_ENTRY_SIZE: Final = OFFSET_ENTRY.size  # 8
TIME_ENTRY: Final = Struct(">qI")
TIME_ENTRY_SIZE: Final = TIME_ENTRY.size  # 12
OFFSET: Final = 0  # fields of an entry
POSITION: Final = 1
BLOCK: Final = 512  # entries of a finished segment's index that are read at once
POSITION_MASK: Final = 0xFFFFFFFF
TAIL_LIMIT: Final = 1024  # batches after the last sparse entry that are kept in `tail`


class LiveIndex:
    """The index of a segment that is being written.

    An entry in memory is one integer, `relative offset << 32 | position`, so that `bisect` searches it in C; it says
    that the batch at `position` contains that offset. `tail` has an entry for *every* batch since the last sparse one,
    while they are contiguous: a position near the log end is found without reading the file.
    """

    __slots__ = (
        "_most_offsets",
        "_most_times",
        "aborted",
        "aborted_written",
        "end",
        "full",
        "indexed",
        "interval",
        "max_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "offsets_pending",
        "offsets_written",
        "rewrite",
        "tail",
        "times",
        "times_last",
        "times_written",
    )

    def __init__(self, interval: int, max_bytes: int) -> None:
        self.interval = interval
        self.max_bytes = max_bytes
        # As Kafka does, the time index keeps one slot free for the entry that closes the segment.
        self._most_offsets = max_bytes // OFFSET_ENTRY_SIZE
        self._most_times = (max_bytes // TIME_ENTRY_SIZE - 1) * TIME_ENTRY_SIZE
        self.offsets = array("Q")
        self.offsets_pending = bytearray()  # entries in the file's form that are not in the file yet
        self.offsets_written = 0  # bytes of the file that are right
        self.times = bytearray()  # in the file's form
        self.times_written = 0
        self.times_last = -1  # timestamp of the last time entry
        self.aborted = bytearray()  # aborted transactions, in the file's form
        self.aborted_written = 0
        self.rewrite = False  # the files may have wrong entries
        self.tail = array("Q")
        self.end = 0  # relative offset behind the last batch
        self.indexed = 0  # position of the batch that the last sparse entry names
        self.max_timestamp = -1
        self.max_timestamp_offset = 0  # relative; the last offset of the batch with the largest timestamp
        self.full = False

    def add(self, first: int, last: int, position: int, timestamp: int) -> None:
        """Add a batch with relative offsets `first`..`last` at `position`."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last
        tail = self.tail
        if position - self.indexed > self.interval:
            self.offsets.append(first << 32 | position)
            self.offsets_pending += OFFSET_ENTRY.pack(last, position)
            self.indexed = position
            if self.max_timestamp > self.times_last:
                self.mark_time()
            self._check_full()
            tail = self.tail = array("Q")
        elif first != self.end or len(tail) >= TAIL_LIMIT:
            tail = self.tail = array("Q")
        tail.append(first << 32 | position)
        self.end = last + 1

    def mark_time(self) -> None:
        """Add the largest timestamp to the time index, unless it is there."""
        if self.max_timestamp > self.times_last:
            self.times += TIME_ENTRY.pack(self.max_timestamp, self.max_timestamp_offset)
            self.times_last = self.max_timestamp

    @property
    def unwritten(self) -> bool:
        """Whether it has entries that its files lack."""
        pending = bool(self.offsets_pending) or len(self.times) > self.times_written
        return pending or len(self.aborted) > self.aborted_written or self.rewrite

    def _check_full(self) -> None:
        self.full = len(self.offsets) >= self._most_offsets or len(self.times) >= self._most_times

    def find(self, offset: int) -> tuple[int, bool]:
        """Position of a batch at or before the one with `offset` (relative), and whether it is that batch."""
        key = offset << 32 | POSITION_MASK
        tail = self.tail
        if tail and key >= tail[0] and offset < self.end:
            return tail[bisect_right(tail, key) - 1] & POSITION_MASK, True
        offsets = self.offsets
        place = bisect_right(offsets, key)
        if place == 0:
            return 0, False
        entry = offsets[place - 1]
        return entry & POSITION_MASK, entry >> 32 == offset

    def offset_at(self, position: int) -> int | None:
        """Relative offset in a batch at `position` or behind; None if there is none."""
        for entries in (self.offsets, self.tail):
            place = bisect_left(entries, position, key=_position_of)
            if place < len(entries):
                return entries[place] >> 32
        return None

    def restore(self, offsets: bytes, times: bytes) -> None:
        """Continue from the content of the files, which the caller has checked."""
        self.offsets.frombytes(offsets)
        self.offsets.byteswap()
        self.offsets_written = len(offsets)
        self.times += times
        self.times_written = len(times)
        if self.offsets:
            self.indexed = self.offsets[-1] & POSITION_MASK
        if times:
            self.max_timestamp, self.max_timestamp_offset = last_time(times)
            self.times_last = self.max_timestamp
        self._check_full()

    def cut(self, offset: int, position: int, written: bytes) -> "LiveIndex":
        """The index of the segment cut at `position`, before `offset` (relative); `written`: the `.index` file so far.

        The caller adds the batches from `indexed` on again; both files are rewritten.
        """
        entries = written[: self.offsets_written] + self.offsets_pending
        end = len(entries)
        while end and OFFSET_ENTRY.unpack_from(entries, end - OFFSET_ENTRY_SIZE)[1] >= position:
            end -= OFFSET_ENTRY_SIZE
        times_end = len(self.times)
        while times_end and TIME_ENTRY.unpack_from(self.times, times_end - TIME_ENTRY_SIZE)[1] >= offset:
            times_end -= TIME_ENTRY_SIZE
        kept = LiveIndex(self.interval, self.max_bytes)
        kept.restore(bytes(entries[:end]), bytes(self.times[:times_end]))
        kept.offsets_pending += entries[:end]
        kept.offsets_written = 0
        kept.times_written = 0
        kept.rewrite = True
        return kept


class ColdIndex:
    """The offset index of a finished segment, read block by block.

    It is not mapped: in a mapped file a bad sector, or a truncation, would end the process instead of raising an
    OSError. The last block is kept, so that sequential readers need no system call.
    """

    __slots__ = ("_block", "_fd", "_first", "count")

    def __init__(self, path: str) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.count = os.fstat(self._fd).st_size // OFFSET_ENTRY_SIZE
        self._first = 0  # number of the first entry in the block
        self._block = b""

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def find(self, offset: int) -> tuple[int, int | None]:
        """The last entry up to `offset` (relative): its position, and its offset; (0, None) if there is none.

        The file may be corrupt: the caller checks that the batch there begins at the entry's offset or before.
        """
        number = self._up_to(OFFSET, offset)
        if number == 0:
            return 0, None
        found, position = self._entry(number - 1)
        return position, found

    def entry_at(self, position: int) -> tuple[int, int] | None:
        """Relative offset and position of the first entry at `position` or behind; None if there is none."""
        number = self._up_to(POSITION, position - 1)
        return None if number == self.count else self._entry(number)

    def sound(self, size: int) -> bool:
        """Whether the entries could belong to a segment of `size` bytes."""
        length = os.fstat(self._fd).st_size
        if self.count < 2 or length % OFFSET_ENTRY_SIZE:
            return sound_offsets(self._read(0, length), size)
        return sound_offsets(self._read(0, OFFSET_ENTRY_SIZE) + self._read(length - OFFSET_ENTRY_SIZE, length), size)

    def _up_to(self, field: int, value: int) -> int:
        """How many entries have at most `value` in a field."""
        unpack, block = OFFSET_ENTRY.unpack_from, self._block
        if block and unpack(block)[field] <= value < unpack(block, len(block) - OFFSET_ENTRY_SIZE)[field]:
            low = self._first
            high = low + (len(block) >> 3)
        else:
            low, high = 0, self.count
            while high - low > BLOCK:
                middle = (low + high) >> 1
                if self._entry(middle)[field] <= value:
                    low = middle + 1
                else:
                    high = middle
            block = self._block = self._read(low << 3, high << 3)
            self._first = low
        first = self._first
        while low < high:
            middle = (low + high) >> 1
            if unpack(block, (middle - first) << 3)[field] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, number: int) -> tuple[int, int]:
        at = number - self._first
        if 0 <= at < len(self._block) >> 3:
            return OFFSET_ENTRY.unpack_from(self._block, at << 3)
        return OFFSET_ENTRY.unpack(self._read(number << 3, (number + 1) << 3))

    def _read(self, start: int, end: int) -> bytes:
        data = os.pread(self._fd, end - start, start)
        if len(data) < end - start:
            raise OSError(errno.EIO, "the index was truncated while it was open")
        return data


def _position_of(entry: int) -> int:
    return entry & POSITION_MASK


def sound_offsets(data: bytes, size: int) -> bool:
    """Whether an `.index` file could belong to a segment of `size` bytes: whole entries, the last behind the first."""
    count, rest = divmod(len(data), OFFSET_ENTRY_SIZE)
    if rest:
        return False
    if not count:
        return True
    first_offset, first_position = OFFSET_ENTRY.unpack_from(data, 0)
    last_offset, last_position = OFFSET_ENTRY.unpack_from(data, len(data) - OFFSET_ENTRY_SIZE)
    in_order: bool = count == 1 or (first_offset < last_offset and first_position < last_position)
    return in_order and first_position > 0 and last_position < size


def sound_times(data: bytes) -> bool:
    """Whether the bytes of a `.timeindex` file could be one: whole entries, the last not before the first."""
    count, rest = divmod(len(data), TIME_ENTRY_SIZE)
    if rest:
        return False
    if not count:
        return True
    first_time, first_offset = TIME_ENTRY.unpack_from(data, 0)
    last_time, last_offset = TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY_SIZE)
    in_order: bool = count == 1 or (first_time < last_time and first_offset < last_offset)
    return in_order and first_time >= 0


def find_time(times: bytes | bytearray, timestamp: int) -> tuple[int, int] | None:
    """The last entry *before* `timestamp`, if there is one: what lies before its relative offset is older."""
    low, high = 0, len(times) // TIME_ENTRY_SIZE
    while low < high:
        middle = (low + high) >> 1
        if TIME_ENTRY.unpack_from(times, middle * TIME_ENTRY_SIZE)[0] < timestamp:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return None
    found, offset = TIME_ENTRY.unpack_from(times, (low - 1) * TIME_ENTRY_SIZE)
    return found, offset


def last_time(times: bytes | bytearray) -> tuple[int, int]:
    """The last entry, which names the largest timestamp; (-1, 0) if there is none."""
    if not times:
        return -1, 0
    timestamp, offset = TIME_ENTRY.unpack_from(times, len(times) - TIME_ENTRY_SIZE)
    return timestamp, offset
