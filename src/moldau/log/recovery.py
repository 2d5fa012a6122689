"""Loading a partition's segments, and recovery after an unclean shutdown.

After a clean shutdown only the end of the last segment is read. Otherwise every batch past the recovery point is
checked, and the headers of those before it in the same segment. The log is truncated before the first corrupt batch;
each truncation is one log line.
"""

import logging
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from moldau.base.crc import crc32c
from moldau.base.ids import Epoch, Offset
from moldau.log import aborted, checkpoints
from moldau.log import segment as segments
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import DELETED, TEMPORARY, OpenFiles, read_whole, replace
from moldau.log.index import LiveIndex, sound_offsets, sound_times
from moldau.log.segment import (
    INDEX,
    LOG,
    MAX_RELATIVE_OFFSET,
    READ_AHEAD,
    TIME_INDEX,
    TXN_INDEX,
    WALK_AHEAD,
    CorruptLogError,
    Segment,
    file_stem,
)
from moldau.log.settings import LogConfig
from moldau.log.snapshots import SNAPSHOT
from moldau.wire.batch import CRC_START, HEADER, HEADER_SIZE, MAGIC, PREFIX_SIZE, BatchHeader

logger = logging.getLogger("moldau.log")

CLEANED = ".cleaned"  # an unfinished result of compaction
SWAP = ".swap"  # a finished one, about to replace older segments
WINDOW = 1024 * 1024  # bytes of batches read at a time to be checked


def read_epochs(directory: str, name: str) -> list[tuple[Epoch, Offset]]:
    """The leader epochs in the checkpoint; none if it is missing or damaged. Then the batches are read for them."""
    try:
        return checkpoints.read_epochs(f"{directory}/{checkpoints.LEADER_EPOCHS}")
    except checkpoints.MalformedCheckpointError as fault:
        logger.warning("%s: reading the leader epochs from the batches instead: %s", name, fault)
        return []


def epochs_in(headers: Iterable[BatchHeader], log_start: Offset) -> Iterator[tuple[Epoch, Offset]]:
    """The leader epochs of these batches and their first offsets."""
    latest = -1
    for header in headers:
        if header.leader_epoch > latest:
            latest = header.leader_epoch
            yield latest, max(header.base_offset, log_start)


class OldFormatError(CorruptLogError):
    """The log has messages of format 0 or 1, from before Kafka 0.11."""


class Listing(NamedTuple):
    """The files of a partition's directory: sizes by base offset, and the offsets of the snapshots."""

    logs: dict[int, int]
    indexes: dict[int, int]
    time_indexes: dict[int, int]
    txn_indexes: dict[int, int]
    snapshots: list[int]
    missing: list[int]  # base offsets in between of which only the indexes exist


class Checked(NamedTuple):
    """The valid part of a segment, and why it ends there."""

    size: int
    end_offset: int
    entries: LiveIndex
    epochs: list[tuple[int, int]]
    fault: str | None


def list_directory(directory: Path) -> Listing:
    """The files, after completing or undoing a compaction that a crash interrupted."""
    listing = Listing({}, {}, {}, {}, [], [])
    unfinished = False
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith((DELETED, TEMPORARY)):
                os.unlink(entry.path)
            elif name.endswith((CLEANED, SWAP)):
                unfinished = True
            elif name.endswith(LOG):
                listing.logs[int(name[:20])] = entry.stat().st_size
            elif name.endswith(INDEX):
                listing.indexes[int(name[:20])] = entry.stat().st_size
            elif name.endswith(TIME_INDEX):
                listing.time_indexes[int(name[:20])] = entry.stat().st_size
            elif name.endswith(TXN_INDEX):
                listing.txn_indexes[int(name[:20])] = entry.stat().st_size
            elif name.endswith(SNAPSHOT):
                listing.snapshots.append(int(name[:20]))
    if unfinished:
        finish_swaps(directory, listing)
        return list_directory(directory)
    kinds = ((INDEX, listing.indexes), (TIME_INDEX, listing.time_indexes), (TXN_INDEX, listing.txn_indexes))
    for suffix, orphans in kinds:
        for base in orphans.keys() - listing.logs.keys():
            logger.warning("%s: deleted %020d%s: its segment is missing.", directory, base, suffix)
            os.unlink(file_stem(str(directory), base) + suffix)
    lost = (listing.indexes.keys() | listing.time_indexes.keys()) - listing.logs.keys() if listing.logs else ()
    listing.missing.extend(sorted(base for base in lost if min(listing.logs) < base < max(listing.logs)))
    listing.snapshots.sort()
    return listing


def finish_swaps(directory: Path, listing: Listing) -> None:
    """Complete an interrupted compaction: `.swap` files replace their segments, `.cleaned` files are deleted."""
    cleaned = list(directory.glob(f"*{CLEANED}"))
    unfinished_from = min((int(path.name[:20]) for path in cleaned), default=segments.NO_OFFSET)
    for path in cleaned:
        path.unlink()
    swaps = []
    for path in directory.glob(f"*{SWAP}"):
        if int(path.name[:20]) >= unfinished_from:
            path.unlink()
        else:
            swaps.append(path)
    for path in swaps:
        if path.name.endswith(LOG + SWAP):
            base = int(path.name[:20])
            end = check(path, base, LogConfig(), crc=False).end_offset
            for covered in [offset for offset in listing.logs if base <= offset < max(end, base + 1)]:
                for suffix in segments.SUFFIXES:
                    Path(file_stem(str(directory), covered) + suffix).unlink(missing_ok=True)
    for path in swaps:
        path.rename(path.with_name(path.name.removesuffix(SWAP)))
        logger.warning("%s: completed the interrupted compaction of %s.", directory, path.name)


def check(path: Path, base: int, config: LogConfig, *, crc: bool = True, synced: int = 0) -> Checked:
    """Read a segment up to its first corrupt batch, and build its indexes.

    Of batches before the offset `synced` only the headers are checked. The file is read, not mapped: in a mapped file
    a bad sector would end the process instead of raising an OSError.
    """
    entries = LiveIndex(config.index_interval_bytes, config.segment_index_bytes)
    entries.rewrite = True
    epochs: list[tuple[int, int]] = []
    position, expected, epoch, fault = 0, base, -1, None
    unpack, add, limit = HEADER.unpack_from, entries.add, base + MAX_RELATIVE_OFFSET
    with open(path, "rb", buffering=0) as file:
        fd = file.fileno()
        size = os.fstat(fd).st_size
        view, start, stop, length = memoryview(b""), 0, 0, 0  # the bytes in memory; length of the last batch
        while position < size:
            if position + HEADER_SIZE > stop:
                ahead = WALK_AHEAD if length < READ_AHEAD else HEADER_SIZE  # large batches are skipped
                view, start = memoryview(os.pread(fd, ahead, position)), position
                stop = start + len(view)
                if position + HEADER_SIZE > stop:
                    fault = _fault(fd, position, size, expected, base)
                    break
            first, length, leader_epoch, magic, checksum, _, delta, _, timestamp, _, _, _, _ = unpack(
                view, position - start
            )
            following = position + PREFIX_SIZE + length
            last = first + delta
            sound = (
                magic == MAGIC
                and length >= HEADER_SIZE - PREFIX_SIZE
                and following <= size
                and expected <= first <= last <= limit
            )
            if sound and crc and last >= synced:
                if following > stop:
                    view, start = memoryview(os.pread(fd, max(following - position, WINDOW), position)), position
                    stop = start + len(view)
                sound = crc32c(view[position - start + CRC_START : following - start]) == checksum
            if not sound:
                fault = _fault(fd, position, size, expected, base)
                break
            add(first - base, last - base, position, timestamp)
            if leader_epoch > epoch:
                epoch = leader_epoch
                epochs.append((epoch, first))
            expected = last + 1
            position = following
    return Checked(position, expected, entries, epochs, fault)


def _fault(fd: int, position: int, size: int, expected: int, base: int) -> str:
    """The fault of the corrupt batch at `position`, in words."""
    left = size - position
    header = os.pread(fd, HEADER_SIZE, position)
    if len(header) < HEADER_SIZE:
        return f"{left} bytes are too few for a batch"
    first, length, _, magic, _, _, delta, *_ = HEADER.unpack(header)
    whole = length + PREFIX_SIZE
    if magic in (0, 1) and PREFIX_SIZE < whole <= left:
        _refuse_old_format(os.pread(fd, whole, position), magic)
    if length < HEADER_SIZE - PREFIX_SIZE:
        return f"a length of {length} is too small"
    if whole > left:
        return f"a batch of {whole} bytes has {left} left"
    if magic != MAGIC:
        return f"format {magic} is not known"
    if first < expected:
        return f"offset {first} follows {expected - 1}"
    if delta < 0 or first + delta - base > MAX_RELATIVE_OFFSET:
        return f"offsets {first} to {first + delta} do not fit the segment"
    return "its checksum is wrong"


def _refuse_old_format(message: bytes, magic: int) -> None:
    # Formats 0 and 1 have a CRC-32 of the bytes after it. If it matches, the data must not be truncated.
    if int.from_bytes(message[12:16]) == zlib.crc32(message[16:]):
        raise OldFormatError(f"message format {magic} is not supported; let Kafka rewrite the messages in format 2")


class Loader:
    """Loads the segments of one directory, oldest first; the last one is writable."""

    def __init__(self, directory: Path, name: str, config: LogConfig, files: OpenFiles, now: int) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.files = files
        self.now = now
        self.listing = list_directory(directory)
        self.segments: list[Segment] = []
        self.end_offset = 0
        self.repaired = False  # segments were truncated, or indexes rebuilt
        self.shortened = False  # records were removed
        self.checked_from = segments.NO_OFFSET  # from this offset on transaction indexes are rebuilt

    def load(self, *, clean: bool, recovery_point: int, epochs: LeaderEpochs) -> None:
        bases = sorted(self.listing.logs)
        trusted = bases
        if not clean:
            past = next((place for place, base in enumerate(bases) if base > recovery_point), len(bases))
            trusted = bases[: max(past - 1, 0)]
            # A flush may have ended at the offset at which a later roll began the next segment. The snapshot at its
            # end is written last of a finished segment, after its indexes.
            if trusted and bases[len(trusted)] == recovery_point and recovery_point not in self.listing.snapshots:
                trusted = trusted[:-1]
        for base in trusted[: -1 if clean else None]:
            self.segments.append(self._cold(base))
        if clean and bases:
            self.segments.append(self._last(bases[-1], epochs))
        elif bases:
            epochs.cut_end(bases[len(trusted)])  # its file may have epochs that the log was truncated from
            self._recover(bases[len(trusted) :], epochs, recovery_point)

    def _stem(self, base: int) -> str:
        return file_stem(str(self.directory), base)

    def _segment(self, base: int) -> Segment:
        segment = Segment(self._stem(base), base, self.listing.logs[base], self.files, self.now)
        segment.aborts = self.listing.txn_indexes.get(base, 0) > 0
        return segment

    def _cold(self, base: int) -> Segment:
        """A finished segment that needs no check; its indexes are checked when they are first used."""
        segment = self._segment(base)
        offsets, times = self.listing.indexes.get(base), self.listing.time_indexes.get(base)
        if offsets is None or offsets % 8 or times is None or times % 12 or (self.listing.logs[base] and not times):
            rebuild_indexes(segment, self.config, self.name, "missing or of a wrong size")
        return segment

    def _last(self, base: int, epochs: LeaderEpochs) -> Segment:
        """The last segment after a clean shutdown."""
        segment = self._segment(base)
        end = reopen(segment, self.config)
        if end is None:
            logger.warning("%s: the index of segment %d does not match; checking all batches.", self.name, base)
            return self._checked(base, epochs)
        self.end_offset = end
        return segment

    def _recover(self, bases: list[int], epochs: LeaderEpochs, synced: int) -> None:
        for place, base in enumerate(bases):
            before = self.listing.logs[base]
            self.segments.append(self._checked(base, epochs, synced))
            if self.segments[-1].size < before and bases[place + 1 :]:
                self._drop(bases[place + 1 :])
                break

    def _checked(self, base: int, epochs: LeaderEpochs, synced: int = 0) -> Segment:
        """A segment checked from end to end, truncated before its first corrupt batch, with new indexes."""
        segment = self._segment(base)
        path = Path(segment.stem + LOG)
        checked = check(path, base, self.config, synced=synced)
        if checked.size < segment.size:
            logger.warning(
                "%s: truncated %s at position %d, offset %d (%d bytes removed): %s.",
                self.name,
                path.name,
                checked.size,
                checked.end_offset,
                segment.size - checked.size,
                checked.fault,
            )
            os.truncate(path, checked.size)
            segment.size = checked.size
            self.shortened = True
        segment.live = checked.entries
        segment.aborts = False
        self.checked_from = min(self.checked_from, base)
        self.repaired = True
        self.end_offset = checked.end_offset
        for epoch, start in checked.epochs:
            if epoch > epochs.latest:
                epochs.assign(epoch, start)
        return segment

    def _drop(self, bases: list[int]) -> None:
        self.shortened = True
        logger.warning(
            "%s: deleted %d later segments (%d bytes), from offset %d on.",
            self.name,
            len(bases),
            sum(self.listing.logs[base] for base in bases),
            bases[0],
        )
        for base in bases:
            for suffix in (*segments.SUFFIXES, SNAPSHOT):
                Path(self._stem(base) + suffix).unlink(missing_ok=True)
            if base in self.listing.snapshots:
                self.listing.snapshots.remove(base)


def reopen(segment: Segment, config: LogConfig) -> int | None:
    """Make a segment writable with its index files, reading batches from their last entry on. None: no match."""
    offsets = read_whole(segment.stem + INDEX)
    times = read_whole(segment.stem + TIME_INDEX)
    entries = (read_whole(segment.stem + TXN_INDEX) or b"") if segment.aborts else b""
    if offsets is None or times is None or not sound_offsets(offsets, segment.size) or not sound_times(times):
        return None
    if not aborted.sound(entries, segment.base):
        return None
    live = segment.live = LiveIndex(config.index_interval_bytes, config.segment_index_bytes)
    live.restore(offsets, times)
    live.aborted += entries
    live.aborted_written = len(entries)
    try:
        end = segment.index_from(live.indexed)
        if live.max_timestamp < 0 or segment.base + live.max_timestamp_offset < end:
            return end
    except CorruptLogError:
        logger.debug("%s does not match its index.", segment.stem, exc_info=True)
    segment.live = None
    return None


def rebuild_indexes(segment: Segment, config: LogConfig, name: str, reason: str) -> None:
    """Rebuild the indexes of a finished segment from its batches.

    Each file is replaced as a whole: half a time index would look like that of an older segment.
    """
    checked = check(Path(segment.stem + LOG), segment.base, config)
    logger.warning("%s: rebuilt the indexes of segment %d: %s.", name, segment.base, reason)
    if checked.fault is not None:
        logger.error(
            "%s: segment %d is corrupt at position %d (%s). Later records in it cannot be read.",
            name,
            segment.base,
            checked.size,
            checked.fault,
        )
    checked.entries.mark_time()
    segment.release_file()
    replace(segment.stem + INDEX, bytes(checked.entries.offsets_pending))
    replace(segment.stem + TIME_INDEX, bytes(checked.entries.times))
