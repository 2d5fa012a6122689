"""Records as Arrow RecordBatches in the schema of Spark's Kafka source. The only module here that imports pyarrow.

Keys and values are copied once, from the batches into Arrow buffers (`layout`). Records that `layout` cannot parse are
read one at a time (`records`), with the same result.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from moldau.base.ids import TopicPartition
from moldau.client.direct.layout import (
    DecompressedBatch,
    Field,
    Headers,
    RecordLayout,
    decompress_batches,
    find_layout,
    group_batches,
)
from moldau.client.direct.records import Columns, decode

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
LIST = pa.list_(HEADER)
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
FIELDS = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("timestampType", pa.int32()),
)
SCHEMA = pa.schema(FIELDS)
MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
ROWS: Final = 50_000  # about, per RecordBatch
BYTES: Final = 8 * 1024 * 1024  # likewise, keys and values
SCHEMA_WITH_HEADERS = pa.schema([*FIELDS, pa.field("headers", LIST)])


def record_batches(
    batches: Iterable[memoryview], tp: TopicPartition, *, start: int = 0, end: int | None = None, headers: bool = False
) -> Iterator[Any]:
    """The records of whole, verified batches with offsets in [start, end), as pyarrow RecordBatches.

    Raises CorruptRecords.
    """
    for group in group_batches(decompress_batches(batches), rows=ROWS, size=BYTES):
        found = _at_once(group, tp, headers)
        if found is None:
            raw = [each.batch for each in group]
            found = record_batch(decode(raw, headers=headers, checked=True), tp, headers=headers)
        found = _within(found, start, end)
        if found.num_rows:
            yield found


def _at_once(group: Sequence[DecompressedBatch], tp: TopicPartition, headers: bool) -> Any | None:
    layout = find_layout(group, headers=headers)
    if layout is None:
        return None
    columns = [
        pa.nulls(len(layout.offsets), pa.binary()) if layout.keys is None else _bytes(layout, layout.keys),
        _bytes(layout, layout.values),
        *_same_for_all(tp, len(layout.offsets)),
        _numbers(pa.int64(), layout.offsets),
        _numbers(MILLISECONDS, layout.timestamps).cast(TIMESTAMP),
        _numbers(pa.int32(), layout.timestamp_types),
    ]
    if layout.headers is None:
        return pa.record_batch(columns, schema=SCHEMA)
    named = _lists(layout, layout.headers)
    return None if named is None else pa.record_batch([*columns, named], schema=SCHEMA_WITH_HEADERS)


def _lists(layout: RecordLayout, headers: Headers) -> Any | None:
    """None if a header name is not UTF-8: `records` replaces its invalid bytes."""
    counts = headers.counts
    if not counts.any():
        return pa.nulls(len(counts), LIST)
    try:
        names = _bytes(layout, headers.names).cast(pa.string())
    except pa.ArrowInvalid:
        return None
    each = pa.StructArray.from_arrays([names, _bytes(layout, headers.values)], fields=list(HEADER))
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    empty = pa.Array.from_buffers(pa.bool_(), len(counts), [None, _bits(counts == 0)])
    return pa.ListArray.from_arrays(_numbers(pa.int32(), ends), each, type=LIST, mask=empty)


def _bytes(layout: RecordLayout, field: Field) -> Any:
    """Slice the data at the starts and ends of a field, and take every other slice."""
    count = len(field.starts)
    cuts = np.empty(2 * count, np.int32)
    cuts[0::2], cuts[1::2] = field.starts, field.ends
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(cuts), pa.py_buffer(layout.data)], null_count=0
    )
    there = None if field.nulls is None else _bits(~field.nulls)
    return pieces.take(_numbers(pa.int32(), np.arange(0, 2 * count, 2, dtype=np.int32), there))


def _same_for_all(tp: TopicPartition, count: int) -> list[Any]:
    name = tp.topic.encode()
    cuts = np.array([0, len(name)], np.int32)
    topic = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(cuts), pa.py_buffer(name)])
    partition = _numbers(pa.int32(), np.array([tp.partition], np.int32))
    return [pa.repeat(topic[0], count), pa.repeat(partition[0], count)]


# `pa.array` and `pa.scalar` import pandas to check for its types: half a second for each new Python worker. Arrays made
# from buffers do not.


def _numbers(kind: Any, numbers: Any, there: Any | None = None) -> Any:
    """A column from a numpy array of the same width, with an optional validity bitmap."""
    assert numbers.itemsize * 8 == kind.bit_width, (numbers.dtype, kind)
    return pa.Array.from_buffers(kind, len(numbers), [there, pa.py_buffer(np.ascontiguousarray(numbers))])


def _bits(flags: Any) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _within(batch: Any, start: int, end: int | None) -> Any:
    """Drop the records outside of the range, which the first and the last batch may have."""
    offsets = batch.column("offset")
    if not len(offsets):
        return batch
    if offsets[0].as_py() >= start and (end is None or offsets[-1].as_py() < end):
        return batch
    numbers = np.frombuffer(offsets.buffers()[1], np.int64, len(offsets), offsets.offset * 8)
    first = int(np.searchsorted(numbers, start))
    last = len(numbers) if end is None else int(np.searchsorted(numbers, end))
    return batch.slice(first, max(0, last - first))


def record_batch(columns: Columns, tp: TopicPartition, *, headers: bool = False) -> Any:
    """A pyarrow RecordBatch. A record without headers has null, as in Spark's Kafka source."""
    count = len(columns)
    arrays = [
        pa.array(columns.keys, pa.binary()),
        pa.array(columns.values, pa.binary()),
        *_same_for_all(tp, count),
        pa.array(columns.offsets, pa.int64()),
        pa.array(columns.timestamps, MILLISECONDS).cast(TIMESTAMP),
        pa.array(columns.timestamp_types, pa.int32()),
    ]
    if not headers:
        return pa.record_batch(arrays, schema=SCHEMA)
    rows = [[{"key": _text(name), "value": value} for name, value in row] if row else None for row in columns.headers]
    return pa.record_batch([*arrays, pa.array(rows, LIST)], schema=SCHEMA_WITH_HEADERS)


def concatenate(batches: Sequence[Any]) -> Any:
    """One RecordBatch of several with the same schema."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _text(name: str) -> str:
    """Replace invalid UTF-8 in a header name, as Java does."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
