"""Rows: the columns of an Arrow batch as bytes, ready for a producer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from moldau.client.direct.records import NO_HEADERS, Headers
from moldau.spark.cluster import QueryFailed
from moldau.spark.sink.layout import Layout
from moldau.spark.value_formats import ValueEncoder


class Rows(NamedTuple):
    """Rows of one Arrow batch: `keys` and `values` are arrays of bytes or None, `topics` of str."""

    keys: Any
    values: Any
    headers: Sequence[Headers] | None
    topics: Any
    partitions: Any

    def __len__(self) -> int:
        return len(self.values)


def rows_of(batch: Any, layout: Layout, encoder: ValueEncoder | None = None) -> Rows:
    """Columns of an Arrow batch; raises QueryFailed for a null topic or header name, or a value without encoding."""
    values = batch.column(layout.value)
    return Rows(
        keys=_nothing(len(batch)) if layout.key is None else _bytes(batch.column(layout.key)),
        values=_bytes(values if encoder is None else encoder.encode(values)),
        headers=None if layout.headers is None else _headers(batch.column(layout.headers)),
        topics=None if layout.topic is None else _topics(batch.column(layout.topic)),
        partitions=None if layout.partition is None else _partitions(batch.column(layout.partition)),
    )


def _nothing(count: int) -> Any:
    import numpy

    return numpy.full(count, None, object)


def _bytes(column: Any) -> Any:
    """An object array, a third faster than `to_pylist`. Strings become UTF-8 without decoding."""
    if "string" in str(column.type):
        column = column.cast("large_binary" if str(column.type).startswith("large") else "binary")
    return column.to_numpy(zero_copy_only=False)


def _topics(column: Any) -> Any:
    if column.null_count:
        raise QueryFailed("a row has null as its topic: give each row a topic, or set the option topic")
    return column.to_numpy(zero_copy_only=False)


def _partitions(column: Any) -> list[int | None] | None:
    """None if no row has a partition."""
    if column.null_count == len(column):
        return None
    found: list[int | None] = column.to_pylist()
    return found


def _headers(column: Any) -> Sequence[Headers] | None:
    """None if no row has any."""
    if column.null_count == len(column):
        return None
    lists = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    inner = lists.flatten()
    if inner.null_count or inner.field(0).null_count:
        raise QueryFailed("a row has a header with null as its name, which is not allowed")
    names: list[str] = inner.field(0).to_pylist()
    contents: list[bytes | None] = inner.field(1).to_pylist()
    pairs = list(zip(names, contents, strict=True))
    found: list[Headers] = []
    position = 0
    for length in lists.value_lengths().to_pylist():
        found.append(pairs[position : position + length] if length else NO_HEADERS)
        position += length or 0
    return found
