"""Positions of all fields of the records in many batches, as numpy arrays, without an object per record.

Only the scan from record to record is a loop, and records of equal size need no scan. Records that this cannot parse
are left to `records`, which reads one at a time and reports errors. Copies no keys or values.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from moldau.client.direct.records import DECOMPRESSED_BYTES
from moldau.wire.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, read_header
from moldau.wire.compression import decompress

MAX_BYTES: Final = 2**31 - 1  # Arrow's offsets have 32 bits
VARINT_BITS: Final = 63  # of a valid varint
MAX_HEADERS: Final = 64  # of a record; one with more is left to `records`
SAMPLE: Final = 4  # records of equal size after which more are expected
LONG_RUN: Final = 48  # records left in a batch: for fewer, calls of numpy cost more than scanning them


class DecompressedBatch(NamedTuple):
    """A batch with its decompressed records."""

    header: BatchHeader
    batch: memoryview
    records: memoryview | bytes


class Field(NamedTuple):
    """Start and end of a field in each record; `nulls` is None if no record lacks it."""

    starts: Any
    ends: Any
    nulls: Any


class Headers(NamedTuple):
    """Number of headers per record, and positions of all names and values in record order."""

    counts: Any
    names: Field
    values: Field


class RecordLayout(NamedTuple):
    """Arrays with an entry per record. `keys` is None if no record has one, `headers` if not requested."""

    data: bytes
    offsets: Any
    timestamps: Any  # ms
    timestamp_types: Any
    keys: Field | None
    values: Field
    headers: Headers | None


class _InvalidLayout(Exception):
    """The records do not have the expected layout."""


def decompress_batches(
    batches: Iterable[memoryview], *, limit: int = DECOMPRESSED_BYTES
) -> Iterator[DecompressedBatch]:
    """Decompress batches; raises CorruptRecords if that fails or exceeds the limit."""
    for batch in batches:
        header = read_header(batch)
        body = batch[HEADER_SIZE:]
        yield DecompressedBatch(header, batch, decompress(header.codec, body, limit) if header.codec else body)


def group_batches(batches: Iterable[DecompressedBatch], *, rows: int, size: int) -> Iterator[list[DecompressedBatch]]:
    """Group batches until each group has at least so many records or bytes."""
    group: list[DecompressedBatch] = []
    rows_now = size_now = 0
    for each in batches:
        group.append(each)
        rows_now += each.header.record_count
        size_now += len(each.records)
        if rows_now >= rows or size_now >= size:
            yield group
            group, rows_now, size_now = [], 0, 0
    if group:
        yield group


def find_layout(batches: Sequence[DecompressedBatch], *, headers: bool = False) -> RecordLayout | None:
    """The layout of all records; None if they must be read one at a time."""
    data = b"".join(each.records for each in batches)
    if not data or len(data) > MAX_BYTES:
        return None
    try:
        return _layout(data, _all_starts(data, batches), [each.header for each in batches], headers)
    except (_InvalidLayout, IndexError):  # IndexError: a varint that runs past the last byte
        return None


def _all_starts(data: bytes, batches: Sequence[DecompressedBatch]) -> Any:
    view = np.frombuffer(data, np.uint8)
    starts = array("q")
    position = 0
    for each in batches:
        end = position + len(each.records)
        if _scan_runs(data, view, position, each.header.record_count, starts) != end:
            raise _InvalidLayout
        position = end
    return np.frombuffer(starts, np.int64)


def _scan_runs(data: bytes, view: Any, position: int, count: int, starts: "array[int]") -> int:
    """As `_scan`, but skips over runs of records of equal size."""
    while count >= LONG_RUN:
        position = _scan(data, position, SAMPLE, starts)
        count -= SAMPLE
        size = position - starts[-1]
        if any(after - start != size for start, after in pairwise(starts[-SAMPLE:])):
            break
        more = _equal_sizes(view, position, size, count)
        starts.frombytes(np.arange(position, position + more * size, size, dtype=np.int64).tobytes())
        position += more * size
        count -= more
    return _scan(data, position, count, starts)


def _equal_sizes(view: Any, position: int, size: int, most: int) -> int:
    """Number of following records with the same length bytes as the record before."""
    most = min(most, (len(view) - position) // size)
    equal = np.ones(most, bool)
    for tp in range(size):
        byte = view[position - size + tp]
        equal &= view[position + tp : position + most * size : size] == byte
        if byte < 0x80:
            break
    return most if equal.all() else int(equal.argmin())


def _scan(data: bytes, position: int, count: int, starts: "array[int]") -> int:
    """Append the start of each record, and return the end of the last. Most lengths are short varints."""
    append = starts.append
    for _ in range(count):
        append(position)
        length = data[position]
        if length < 0x80:
            position += 1 + (length >> 1)
            continue
        more = data[position + 1]
        if more < 0x80:
            position += 2 + ((length & 0x7F | more << 7) >> 1)
            continue
        length, position, shift = length & 0x7F | (more & 0x7F) << 7, position + 2, 14
        while True:
            more = data[position]
            position += 1
            length |= (more & 0x7F) << shift
            shift += 7
            if more < 0x80:
                break
            if shift > VARINT_BITS:
                raise _InvalidLayout
        position += length >> 1
        if position > len(data):
            raise _InvalidLayout
    return position


def _layout(data: bytes, starts: Any, batches: Sequence[BatchHeader], headers: bool) -> RecordLayout:
    counts = np.array([batch.record_count for batch in batches], np.int64)

    def each(values: Iterable[int]) -> Any:
        """Repeat a value of each batch for all its records."""
        return np.repeat(np.fromiter(values, np.int64, len(batches)), counts)

    view = np.frombuffer(data, np.uint8)
    length, position = _varints(view, starts)
    ends = position + length
    time_delta, position = _varints(view, position + 1)  # after the unused attributes
    offset_delta, position = _varints(view, position)
    key_length, key_start = _varints(view, position)
    value_length, value_start = _varints(view, key_start + np.maximum(key_length, 0))
    header_count, position = _varints(view, value_start + np.maximum(value_length, 0))
    # Check each length: sums of lengths that are too large may look right.
    for lengths, least in (length, 0), (key_length, -1), (value_length, -1), (header_count, 0):
        _require((lengths >= least) & (lengths <= len(data)))
    _require(np.where(header_count == 0, position == ends, position < ends))
    _require((offset_delta >= 0) & (offset_delta <= each(batch.last_offset_delta for batch in batches)))
    offsets = each(batch.base_offset for batch in batches) + offset_delta
    _require(offsets[1:] > offsets[:-1])
    appended = each(batch.attributes & LOG_APPEND_TIME for batch in batches) != 0
    created = each(batch.base_timestamp for batch in batches) + time_delta
    return RecordLayout(
        data,
        offsets,
        np.where(appended, each(batch.max_timestamp for batch in batches), created),
        appended.astype(np.int32),
        None if (key_length < 0).all() else _field(key_start, key_length),
        _field(value_start, value_length),
        _headers(view, header_count, position, ends) if headers else None,
    )


def _require(checks: Any) -> None:
    if not checks.all():
        raise _InvalidLayout


def _headers(view: Any, counts: Any, position: Any, ends: Any) -> Headers:
    """Parse the first header of all records, then the second of those that have one, and so on."""
    most = int(counts.max())
    total = int(counts.sum())
    if most > MAX_HEADERS or total > len(view):
        raise _InvalidLayout
    names, values = np.empty((2, total), np.int64), np.empty((2, total), np.int64)  # starts and lengths
    firsts = np.cumsum(counts) - counts
    for number in range(most):
        rows = np.flatnonzero(counts > number)
        partitions = firsts[rows] + number
        name_length, name_start = _varints(view, position[rows])
        value_length, value_start = _varints(view, name_start + np.maximum(name_length, 0))
        names[:, partitions] = name_start, name_length
        values[:, partitions] = value_start, value_length
        position[rows] = value_start + np.maximum(value_length, 0)
    for lengths, least in (names[1], 0), (values[1], -1):
        _require((lengths >= least) & (lengths <= len(view)))
    _require(position == ends)
    return Headers(counts, _field(*names), _field(*values))


def _field(starts: Any, lengths: Any) -> Field:
    nulls = lengths < 0
    return Field(starts, starts + np.maximum(lengths, 0), nulls if nulls.any() else None)


def _varints(view: Any, starts: Any) -> tuple[Any, Any]:
    """The zigzag varints at these positions, and the positions after them."""
    first = view[starts]
    values = (first & 0x7F).astype(np.int64)
    after = starts + 1
    longer = np.flatnonzero(first > 0x7F)
    shift = 7
    while len(longer):
        if shift > VARINT_BITS:
            raise _InvalidLayout
        following = view[after[longer]]
        values[longer] |= (following & 0x7F).astype(np.int64) << shift
        after[longer] += 1
        longer = longer[following > 0x7F]
        shift += 7
    return (values >> 1) ^ -(values & 1), after
