"""Readers of the files in a log directory: segments, indexes, producer snapshots, checkpoints.

Not the log room's: it shares no code with the writer of these files on purpose, so that it is a second opinion on what
is on the disk. It only reads, checks all that it shows, holds one batch at a time, and takes nothing on trust.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import NamedTuple, TypeAlias

from moldau.base.crc import crc32c
from moldau.wire.batch import CONTROL, CRC_START, HEADER_SIZE, MAGIC, BatchHeader, read_header
from moldau.wire.compression import CorruptRecords
from moldau.wire.records import ControlType, Record, decode_control, iter_records

CHUNK = 1 << 20
LARGEST_RELATIVE = 2**31 - 1  # of an offset in a segment, against the one in its name
LARGEST_BODY = 256 << 20  # bytes of one batch's records when decompressed
LONGEST_LINE = 1024  # of a checkpoint: a topic's name, a partition and an offset are far shorter


class UnknownKind(Exception):
    """The file's name is none of those that a log directory has."""


class CorruptFile(Exception):
    """The file breaks its format; the message names the position and, where there is one, the offset."""

    def __init__(self, reason: str, position: int, offset: int | None = None) -> None:
        where = f"at position {position}" if offset is None else f"at position {position}, offset {offset}"
        super().__init__(f"corrupt {where}: {reason}")


class WrongChecksum(CorruptFile):
    """A batch with a plausible header and a wrong checksum."""

    def __init__(self, reason: str, position: int, header: BatchHeader) -> None:
        super().__init__(reason, position, header.base_offset)
        self.last_offset = header.last_offset


# ── contents of the files ────────────────────────────────────────────────────────────────────────────────────────────


class Batch(NamedTuple):
    position: int
    header: BatchHeader
    read: Callable[[], bytes]  # the batch itself, on demand


class ZeroTail(NamedTuple):
    """A preallocated segment ends in zeros that were not written to yet."""

    zeros_from: int
    size: int


class OffsetEntry(NamedTuple):
    offset: int
    position: int
    verified: bool


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int
    verified: bool


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerState(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


class EpochStart(NamedTuple):
    leader_epoch: int
    start_offset: int


class PartitionOffset(NamedTuple):
    topic: str
    partition: int
    offset: int


Entry: TypeAlias = (
    Batch | ZeroTail | OffsetEntry | TimeEntry | AbortedTransaction | ProducerState | EpochStart | PartitionOffset
)


# ── access ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Source:
    """A file that is read by position. Its size is that at opening: the broker may be writing to it."""

    def __init__(self, path: Path) -> None:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for, a device has no end
            raise OSError(errno.EINVAL, "not a file; name the files in it, such as DIRECTORY/*.log")
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> "Source":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end of the file."""
        parts = []
        while size > 0 and (part := os.pread(self._descriptor, size, position)):
            parts.append(part)
            position += len(part)
            size -= len(part)
        return b"".join(parts)

    def chunks(self, position: int, end: int) -> Iterator[bytes]:
        while position < end and (chunk := self.read(position, min(CHUNK, end - position))):
            yield chunk
            position += len(chunk)

    def is_zero_from(self, position: int) -> bool:
        return not any(chunk.strip(b"\0") for chunk in self.chunks(position, self.size))

    def checksum(self, position: int, end: int) -> int:
        value = 0
        for chunk in self.chunks(position, end):
            value = crc32c(chunk, value)
        return value


# ── segments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_batches(source: Source, base_offset: int | None) -> Iterator[Batch | ZeroTail]:
    """Every batch with its checksum checked; offsets must rise from the one in the file's name."""
    position, expected = 0, base_offset or 0
    while position < source.size:
        header = _header_at(source, position, expected)
        if header is None:
            yield ZeroTail(position, source.size - position)
            return
        if header.base_offset < expected:
            raise CorruptFile(f"offset {header.base_offset} where at least {expected} is due", position, expected)
        if base_offset is not None and header.last_offset - base_offset > LARGEST_RELATIVE:
            raise CorruptFile(f"offset {header.last_offset} is too far from {base_offset}", position, expected)
        found = source.checksum(position + CRC_START, position + header.size)
        if found != header.crc:
            reason = f"checksum is {found:#010x}, the batch says {header.crc:#010x}"
            raise WrongChecksum(reason, position, header)
        yield Batch(position, header, partial(source.read, position, header.size))
        position += header.size
        expected = header.last_offset + 1


def _header_at(source: Source, position: int, offset: int) -> BatchHeader | None:
    """The header of a batch that lies within the file; None where nothing but zeros follows."""
    raw = source.read(position, HEADER_SIZE)
    if not any(raw) and source.is_zero_from(position):
        return None
    if len(raw) < HEADER_SIZE:
        raise CorruptFile(f"the file ends after {len(raw)} bytes of a batch header", position, offset)
    header = read_header(raw)
    if header.magic != MAGIC:
        raise CorruptFile(f"batch format {header.magic} is not supported, only {MAGIC}", position, offset)
    if header.size < HEADER_SIZE:
        raise CorruptFile(f"a batch of {header.size} bytes is shorter than its header", position, offset)
    if header.size > source.size - position:
        reason = f"a batch of {header.size} bytes where the file has {source.size - position} left"
        raise CorruptFile(reason, position, offset)
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptFile("negative last offset delta or record count", position, offset)
    return header


def end_by_headers(path: Path, position: int = 0) -> int | None:
    """The offset behind the last batch, found by their headers alone; None if these do not lead to the file's end."""
    with Source(path) as source:
        offset = base = base_offset_of(path) or 0
        try:
            while position < source.size:
                header = _header_at(source, position, offset)
                if header is None or not offset <= header.base_offset <= header.last_offset <= base + LARGEST_RELATIVE:
                    return None
                position += header.size
                offset = header.last_offset + 1
        except CorruptFile:
            return None
    return offset


def read_records(batch: Batch) -> Iterator[tuple[Record, str | None]]:
    """The records of a batch; a control record with its marker."""
    is_control = bool(batch.header.attributes & CONTROL)
    try:
        for record in iter_records(batch.read(), limit=LARGEST_BODY):
            yield record, _control_text(record) if is_control else None
    except CorruptRecords as error:
        raise CorruptFile(str(error), batch.position, batch.header.base_offset) from None


def _control_text(record: Record) -> str:
    marker = decode_control(record)
    name = marker.type.name if isinstance(marker.type, ControlType) else f"type {marker.type}"
    return name if marker.coordinator_epoch is None else f"{name} by coordinator epoch {marker.coordinator_epoch}"


# ── indexes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_OFFSET_ENTRY = Struct(">ii")  # offset − base offset, position
_TIME_ENTRY = Struct(">qi")  # timestamp, offset − base offset
_ABORTED = Struct(">hqqqq")  # version, producer id, first, last and last stable offset


def read_offset_index(source: Source, base_offset: int | None, log: Source | None) -> Iterator[OffsetEntry]:
    """Entries name a batch's last offset and its position, both rising; `log` is the segment beside it."""
    base = _named_base(source, base_offset)
    last = OffsetEntry(base - 1, -1, False)
    for at, (relative, position) in _index_entries(source, _OFFSET_ENTRY):
        offset = base + relative
        if offset <= last.offset or position <= last.position:
            raise CorruptFile(f"entry ({offset}, {position}) does not rise from {tuple(last[:2])}", at, offset)
        if log is not None:
            _check_offset_entry(log, at, offset, position)
        last = OffsetEntry(offset, position, log is not None)
        yield last


def _check_offset_entry(log: Source, at: int, offset: int, position: int) -> None:
    if position >= log.size:
        raise CorruptFile(f"points to {position}, {log.path.name} has {log.size} bytes", at, offset)
    header = _header_at(log, position, offset)
    if header is None or header.last_offset != offset:
        found = "zeros" if header is None else f"a batch that ends with offset {header.last_offset}"
        raise CorruptFile(f"{log.path.name} has {found} at {position}", at, offset)


def read_time_index(source: Source, base_offset: int | None, log: Source | None) -> Iterator[TimeEntry]:
    """Entries name the latest timestamp so far and an offset of the batch that has it."""
    base = _named_base(source, base_offset)
    headers = _scan_headers(log) if log is not None else None
    header: BatchHeader | None = None
    last = TimeEntry(-1, base - 1, False)
    for at, (timestamp, relative) in _index_entries(source, _TIME_ENTRY):
        offset = base + relative
        if timestamp <= last.timestamp or offset < last.offset:
            raise CorruptFile(f"entry ({timestamp}, {offset}) does not rise from {tuple(last[:2])}", at, offset)
        if headers is not None and log is not None:
            while header is None or header.last_offset < offset:
                header = next(headers, None)
                if header is None:
                    raise CorruptFile(f"{log.path.name} has no such offset", at, offset)
            if not (header.base_offset <= offset and header.max_timestamp == timestamp):
                reason = f"timestamp {timestamp}, the batch in {log.path.name} has {header.max_timestamp}"
                raise CorruptFile(reason, at, offset)
        last = TimeEntry(timestamp, offset, log is not None)
        yield last


def _scan_headers(log: Source) -> Iterator[BatchHeader]:
    position = offset = 0
    while position < log.size and (header := _header_at(log, position, offset)) is not None:
        yield header
        position += header.size
        offset = header.last_offset + 1


def _index_entries(source: Source, entry: Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Position and fields of each entry; the zeros that an active segment's index ends in are left out."""
    whole = source.size - source.size % entry.size
    position = 0
    for chunk in _whole_entries(source, 0, whole, entry.size):
        for fields in entry.iter_unpack(chunk):
            if not any(fields) and source.is_zero_from(position):
                return
            yield position, fields
            position += entry.size
    if whole != source.size:
        raise CorruptFile(f"{source.size - whole} bytes after the last whole entry", whole)


def _whole_entries(source: Source, position: int, end: int, size: int) -> Iterator[bytes]:
    step = CHUNK - CHUNK % size
    for start in range(position, end, step):
        yield source.read(start, min(step, end - start))


def read_transaction_index(source: Source, base_offset: int | None, log: Source | None) -> Iterator[AbortedTransaction]:
    whole = source.size - source.size % _ABORTED.size
    position = 0
    for chunk in _whole_entries(source, 0, whole, _ABORTED.size):
        for version, *fields in _ABORTED.iter_unpack(chunk):
            if version != 0:
                raise CorruptFile(f"aborted transaction of version {version}, only 0 is known", position)
            yield AbortedTransaction(*fields)
            position += _ABORTED.size
    if whole != source.size:
        raise CorruptFile(f"{source.size - whole} bytes after the last whole entry", whole)


def _named_base(source: Source, base_offset: int | None) -> int:
    if base_offset is None:
        raise UnknownKind("the name of an index must be its segment's base offset, 20 digits")
    return base_offset


# ── producer snapshots ──────────────────────────────────────────────────────────────────────────────────────────────

_SNAPSHOT_HEAD = Struct(">hIi")  # version, checksum of the rest, count
_SNAPSHOT_CHECKED = 6
_SNAPSHOT_VERSION = 1
_PRODUCER = Struct(">qhiqiqiq")


def read_snapshot(source: Source, base_offset: int | None, log: Source | None) -> Iterator[ProducerState]:
    head = source.read(0, _SNAPSHOT_HEAD.size)
    if len(head) < _SNAPSHOT_HEAD.size:
        raise CorruptFile(f"the file ends after {len(head)} bytes of the head", 0)
    version, crc, count = _SNAPSHOT_HEAD.unpack(head)
    if version != _SNAPSHOT_VERSION:
        raise CorruptFile(f"producer snapshot of version {version}, only {_SNAPSHOT_VERSION} is known", 0)
    found = source.checksum(_SNAPSHOT_CHECKED, source.size)
    if found != crc:
        raise CorruptFile(f"checksum is {found:#010x}, the snapshot says {crc:#010x}", 0)
    if _SNAPSHOT_HEAD.size + count * _PRODUCER.size != source.size:
        raise CorruptFile(f"{count} producers do not make a file of {source.size} bytes", _SNAPSHOT_CHECKED)
    for chunk in _whole_entries(source, _SNAPSHOT_HEAD.size, source.size, _PRODUCER.size):
        for fields in _PRODUCER.iter_unpack(chunk):
            yield ProducerState(*fields)


# ── checkpoints: lines of text, first the version, then the count ───────────────────────────────────────────────────


def read_epochs(source: Source, base_offset: int | None, log: Source | None) -> Iterator[EpochStart]:
    last = EpochStart(-1, -1)
    for position, words in _checkpoint_lines(source, 2):
        epoch = EpochStart(_number(words[0], position), _number(words[1], position))
        if epoch.leader_epoch <= last.leader_epoch or epoch.start_offset < last.start_offset:
            raise CorruptFile(f"epoch {tuple(epoch)} does not rise from {tuple(last)}", position)
        last = epoch
        yield epoch


def read_checkpoint(source: Source, base_offset: int | None, log: Source | None) -> Iterator[PartitionOffset]:
    for position, (topic, partition, offset) in _checkpoint_lines(source, 3):
        yield PartitionOffset(topic, _number(partition, position), _number(offset, position))


def _checkpoint_lines(source: Source, width: int) -> Iterator[tuple[int, list[str]]]:
    lines = _lines(source)
    for name in ("version", "count"):
        position, text = next(lines, (source.size, ""))
        number = _number(text, position)
        if name == "version" and number != 0:
            raise CorruptFile(f"checkpoint of version {number}, only 0 is known", position)
    entries = 0
    for position, text in lines:
        words = text.split(" ")
        if len(words) != width:
            raise CorruptFile(f"{len(words)} words in {text!r}, {width} are due", position)
        entries += 1
        yield position, words
    if entries != number:
        raise CorruptFile(f"{entries} entries where {number} are announced", source.size)


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    position = 0
    while position < source.size:
        raw, newline, _ = source.read(position, LONGEST_LINE).partition(b"\n")
        if not newline and position + len(raw) < source.size:
            raise CorruptFile(f"a line of more than {LONGEST_LINE} bytes", position)
        yield position, raw.decode("utf-8", "backslashreplace")
        position += len(raw) + len(newline)


def _number(text: str, position: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise CorruptFile(f"{text!r} is not a number", position)
    return int(text)


# ── kinds of files ──────────────────────────────────────────────────────────────────────────────────────────────


Reader: TypeAlias = Callable[[Source, int | None, Source | None], Iterator[Entry]]


class Kind(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    read: Reader
    is_index: bool = False


def _segment(source: Source, base_offset: int | None, log: Source | None) -> Iterator[Entry]:
    return read_batches(source, base_offset)


_STATE = r"(?:\.(?:deleted|cleaned|swap))?"  # of a file that is being removed or replaced


def _kind(name: str, pattern: str, read: Reader, is_index: bool = False) -> Kind:
    return Kind(name, re.compile(pattern), read, is_index)


KINDS = (
    _kind("segment", rf".+\.log{_STATE}", _segment),
    _kind("offset index", rf".+\.index{_STATE}", read_offset_index, is_index=True),
    _kind("time index", rf".+\.timeindex{_STATE}", read_time_index, is_index=True),
    _kind("transaction index", rf".+\.txnindex{_STATE}", read_transaction_index),
    _kind("producer snapshot", rf".+\.snapshot{_STATE}", read_snapshot),
    _kind("leader epochs", r"leader-epoch-checkpoint", read_epochs),
    _kind(
        "offset checkpoint",
        r"(?:recovery-point-offset|replication-offset|log-start-offset|cleaner-offset)-checkpoint",
        read_checkpoint,
    ),
    _kind("metadata snapshot", r"(?:\d{20}-\d{10}|bootstrap)\.checkpoint", _segment),
)


def kind_of(path: Path) -> Kind:
    names = [kind.name for kind in KINDS]
    for kind in KINDS:
        if kind.pattern.fullmatch(path.name):
            return kind
    raise UnknownKind(f"its name is not that of a {' or '.join((', '.join(names[:-1]), names[-1]))}")


def is_known(path: Path) -> bool:
    return any(kind.pattern.fullmatch(path.name) for kind in KINDS)


def base_offset_of(path: Path) -> int | None:
    match = re.match(r"(\d{20})\.", path.name)
    return int(match[1]) if match else None


def read_file(path: Path) -> Iterator[Entry]:
    """All entries of the file, typed by its kind. An index is checked against the segment beside it."""
    with ExitStack() as open_files:
        source = open_files.enter_context(Source(path))
        kind, log = kind_of(path), None
        if kind.is_index:
            beside = path.with_name(re.sub(r"\.(?:time)?index", ".log", path.name))
            log = open_files.enter_context(Source(beside)) if beside.is_file() else None
        yield from kind.read(source, base_offset_of(path), log)
