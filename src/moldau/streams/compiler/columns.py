"""Frames of records: which columns they have, and their rows as records in Python.

Columns are key, value, timestamp, window if the records have one, and partition and offset of the record that they came
from, by which operators with state put them in order.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa

from moldau.streams.operators.records import Record, millis_of, moment, window_row
from moldau.streams.sql import types as t
from moldau.streams.sql.types import Array, Decimal, Map, Struct, Type, spelled
from moldau.streams.topology.nodes import Shape

ORIGIN: Final = ("partition", "offset")
ARROW: Final = {
    t.STRING: pa.string(),
    t.BINARY: pa.binary(),
    t.BOOLEAN: pa.bool_(),
    t.TINYINT: pa.int8(),
    t.SMALLINT: pa.int16(),
    t.INT: pa.int32(),
    t.BIGINT: pa.int64(),
    t.FLOAT: pa.float32(),
    t.DOUBLE: pa.float64(),
    t.DATE: pa.date32(),
    t.TIMESTAMP: pa.timestamp("us", "UTC"),
}
Rows: TypeAlias = Iterator[pa.RecordBatch]
Convert: TypeAlias = Callable[[Any], Any]


def columns_of(shape: Shape) -> dict[str, Type]:
    window: dict[str, Type] = {"window": t.WINDOW} if shape.windowed else {}
    return {
        "key": shape.key,
        "value": shape.value,
        "timestamp": t.TIMESTAMP,
        **window,
        "partition": t.INT,
        "offset": t.BIGINT,
    }


def frame_schema(shape: Shape) -> str:
    """The columns as DDL for Spark."""
    return ", ".join(f"{name} {spelled(t.without_nulls_known(kind))}" for name, kind in columns_of(shape).items())


def arrow_schema(shape: Shape) -> pa.Schema:
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns_of(shape).items()])


def arrow_type(kind: Type) -> pa.DataType:
    match kind:
        case Struct(fields):
            return pa.struct([(field.name, arrow_type(field.type)) for field in fields])
        case Array(element):
            return pa.list_(arrow_type(element))
        case Map(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case _:
            return ARROW[kind]


class RowReader:
    """Rows of Arrow batches as records, each with its origin."""

    def __init__(self, shape: Shape) -> None:
        self._key, self._value = from_arrow(shape.key), from_arrow(shape.value)
        self._windowed = shape.windowed

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Record, int, int]]:
        for batch in batches:
            for row in batch.to_pylist():
                window = row.get("window") if self._windowed else None
                span = None if window is None else (millis_of(window["start"]), millis_of(window["end"]))
                record = Record(self._key(row["key"]), self._value(row["value"]), millis_of(row["timestamp"]), span)
                yield record, row["partition"] or 0, row["offset"] or 0


class RowWriter:
    """Records as Arrow batches, of a bounded number of rows."""

    ROWS: Final = 10_000

    def __init__(self, shape: Shape) -> None:
        self._schema = arrow_schema(shape)
        self._key, self._value = to_arrow(shape.key), to_arrow(shape.value)
        self._windowed = shape.windowed

    def write(self, records: Iterable[tuple[Record, int, int]]) -> Rows:
        rows: list[dict[str, Any]] = []
        for record, partition, offset in records:
            rows.append(self._row(record, partition, offset))
            if len(rows) == self.ROWS:
                yield pa.RecordBatch.from_pylist(rows, self._schema)
                rows = []
        yield pa.RecordBatch.from_pylist(rows, self._schema)

    def _row(self, record: Record, partition: int, offset: int) -> dict[str, Any]:
        return {
            "key": None if record.key is None else self._key(record.key),
            "value": None if record.value is None else self._value(record.value),
            "timestamp": moment(record.time),
            "window": window_row(record.window) if record.window else None,
            "partition": partition,
            "offset": offset,
        }


def from_arrow(kind: Type) -> Convert:
    """Arrow's Python values as ours: maps come as pairs."""
    return _convert(kind, lambda pairs, value: {name: value(each) for name, each in pairs}) or _same


def to_arrow(kind: Type) -> Convert:
    return _convert(kind, lambda given, value: [(name, value(each)) for name, each in given.items()]) or _same


def _convert(kind: Type, convert_map: Callable[[Any, Convert], Any]) -> Convert | None:
    """A conversion of the maps in a value; None if it has none."""
    match kind:
        case Struct(fields):
            inner = {each.name: made for each in fields if (made := _convert(each.type, convert_map))}
            if not inner:
                return None
            return lambda value: value and {name: inner.get(name, _same)(each) for name, each in value.items()}
        case Array(element):
            each_of = _convert(element, convert_map)
            return each_of and (lambda value: None if value is None else [each_of(each) for each in value])
        case Map(_, value_type):
            of_value = _convert(value_type, convert_map) or _same
            return lambda value: None if value is None else convert_map(value, of_value)
        case _:
            return None


def _same(value: Any) -> Any:
    return value
