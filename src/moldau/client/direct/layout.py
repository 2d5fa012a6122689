"""Where the fields of records lie: found for all records of many batches at once, with no object for any of them.

Only the hops from record to record are a loop; each field is then an array of positions. What this cannot do, or does
not believe, it leaves to `records`, which reads one record at a time and says what is wrong. Copies no keys or values.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from moldau.client.direct.records import DECOMPRESSED_BYTES
from moldau.wire.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, read_header
from moldau.wire.compression import decompress

MOST_BYTES: Final = 2**31 - 1  # positions must fit Arrow's
VARINT_BITS: Final = 63  # of a varint that is still believed


class Opened(NamedTuple):
    """A batch and its records, decompressed."""

    header: BatchHeader
    batch: memoryview
    records: memoryview | bytes


class Field(NamedTuple):
    """Where a field begins and ends in each record; `nulls` is None if no record lacks it."""

    starts: Any
    ends: Any
    nulls: Any


class Layout(NamedTuple):
    """Arrays with an entry for each record; `keys` is None if none has a key."""

    data: bytes
    offsets: Any
    timestamps: Any  # ms
    timestamp_types: Any
    keys: Field | None
    values: Field
    header_counts: Any


class _Unbelievable(Exception):
    """Records are not laid out as they should be."""


def opened(batches: Iterable[memoryview], *, limit: int = DECOMPRESSED_BYTES) -> Iterator[Opened]:
    """CorruptRecords if a batch cannot be decompressed, or has more than the limit."""
    for batch in batches:
        header = read_header(batch)
        body = batch[HEADER_SIZE:]
        yield Opened(header, batch, decompress(header.codec, body, limit) if header.codec else body)


def grouped(batches: Iterable[Opened], *, rows: int, size: int) -> Iterator[list[Opened]]:
    """Batches that have so many records or bytes together, or a little more."""
    group: list[Opened] = []
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


def find_layout(batches: Sequence[Opened]) -> Layout | None:
    """None if records must be read one at a time."""
    data = b"".join(each.records for each in batches)
    if not data or len(data) > MOST_BYTES:
        return None
    try:
        return _layout(data, np.array(_all_starts(data, batches), np.int64), [each.header for each in batches])
    except (_Unbelievable, IndexError):  # also a varint that would go on behind the last byte
        return None


def _all_starts(data: bytes, batches: Sequence[Opened]) -> list[int]:
    starts: list[int] = []
    position = 0
    for each in batches:
        end = position + len(each.records)
        if _hop(data, position, each.header.record_count, starts) != end:
            raise _Unbelievable
        position = end
    return starts


def _hop(data: bytes, position: int, count: int, starts: list[int]) -> int:
    """Adds where each record starts, and returns where the last one ends. A length is a varint, mostly a short one."""
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
                raise _Unbelievable
        position += length >> 1
    return position


def _layout(data: bytes, starts: Any, headers: Sequence[BatchHeader]) -> Layout:
    counts = np.array([header.record_count for header in headers], np.int64)

    def each(values: Iterable[int]) -> Any:
        """What a batch says of all its records."""
        return np.repeat(np.fromiter(values, np.int64, len(headers)), counts)

    view = np.frombuffer(data, np.uint8)
    length, position = _varints(view, starts)
    ends = position + length
    time_delta, position = _varints(view, position + 1)  # behind the attributes, which mean nothing yet
    offset_delta, position = _varints(view, position)
    key_length, key_start = _varints(view, position)
    value_length, value_start = _varints(view, key_start + np.maximum(key_length, 0))
    header_counts, position = _varints(view, value_start + np.maximum(value_length, 0))
    last_delta = each(header.last_offset_delta for header in headers)
    sound = (length >= 0) & (key_length >= -1) & (value_length >= -1) & (header_counts >= 0)
    sound &= (offset_delta >= 0) & (offset_delta <= last_delta)
    sound &= np.where(header_counts == 0, position == ends, position < ends)
    offsets = each(header.base_offset for header in headers) + offset_delta
    if not sound.all() or not (offsets[1:] > offsets[:-1]).all():
        raise _Unbelievable
    appended = each(header.attributes & LOG_APPEND_TIME for header in headers) != 0
    created = each(header.base_timestamp for header in headers) + time_delta
    return Layout(
        data,
        offsets,
        np.where(appended, each(header.max_timestamp for header in headers), created),
        appended.astype(np.int32),
        _field(key_start, key_length),
        _field(value_start, value_length) or Field(value_start, value_start, np.ones(len(starts), bool)),
        header_counts,
    )


def _field(starts: Any, lengths: Any) -> Field | None:
    """None if every one is null, which is so of keys more often than not."""
    nulls = lengths < 0
    if nulls.all():
        return None
    return Field(starts, starts + np.maximum(lengths, 0), nulls if nulls.any() else None)


def _varints(view: Any, starts: Any) -> tuple[Any, Any]:
    """The zigzag varints at these positions, and the positions behind them."""
    first = view[starts]
    values = (first & 0x7F).astype(np.int64)
    behind = starts + 1
    longer = np.flatnonzero(first > 0x7F)
    shift = 7
    while len(longer):
        if shift > VARINT_BITS:
            raise _Unbelievable
        following = view[behind[longer]]
        values[longer] |= (following & 0x7F).astype(np.int64) << shift
        behind[longer] += 1
        longer = longer[following > 0x7F]
        shift += 7
    return (values >> 1) ^ -(values & 1), behind
