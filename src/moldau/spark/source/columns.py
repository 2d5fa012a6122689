"""Convert columns of Arrow's JSON parser to the types of a schema, as strictly as `documents` defines them.

The parser reads timestamps, dates and binary as strings and floats as doubles; they are checked and converted by
column. A value that is not clearly valid raises Uncertain with its row, and `documents` decides. Maps and decimals are
not read this way: the parser does not support maps, and its decimals overflow silently (pyarrow 26).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.source.documents import SIMPLE, SchemaMismatch, base64_bytes

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
FIRST_DAY: Final = pa.scalar("0001-01-01").cast(pa.date32())
FIRST_TIME: Final = pa.scalar("0001-01-01T00:00:00").cast(TIMESTAMP_NTZ)
LAST_TIME: Final = pa.scalar("9999-12-31T23:59:59.999999").cast(TIMESTAMP_NTZ)

DATE: Final = r"^\d{4}-\d\d-\d\d$"
LOCAL_TIME: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?"
ZONE: Final = r"(?:Z|[+-]\d\d(?::?\d\d)?)$"
TOO_FINE: Final = r"(\.\d{6})\d+"


class Uncertain(Exception):
    """Values may or may not match the schema: in these rows, or unknown in which."""

    def __init__(self, rows: Sequence[int] | None = None) -> None:
        super().__init__(rows)
        self.rows = rows


def parser_schema(schema: pa.Schema) -> pa.Schema | None:
    """The schema for the parser; None if it cannot read one of the types."""
    kinds = [(field.name, _plain(field.type)) for field in schema]
    return None if not kinds or any(kind is None for _, kind in kinds) else pa.schema(kinds)


def _plain(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        kinds = [(field.name, _plain(field.type)) for field in fields]
        return None if not kinds or any(each is None for _, each in kinds) else pa.struct(kinds)
    if pa.types.is_list(kind):
        element = _plain(kind.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_integer(kind) or kind in (pa.bool_(), pa.string(), pa.float64()):
        return kind
    return PLAIN.get(kind)


def convert(array: Any, field: pa.Field) -> Any:
    """Convert a column to the field's type; raises Uncertain."""
    if not field.nullable and array.null_count:
        _require(array.is_valid())
    kind = field.type
    if pa.types.is_struct(kind):
        return _convert_struct(array, kind)
    if pa.types.is_list(kind):
        return _convert_list(array, kind)
    if kind not in CONVERTERS:
        return array
    try:
        return CONVERTERS[kind](array)
    except pa.ArrowInvalid:  # it does not say which value
        raise Uncertain(_mismatches(array, kind)) from None


def _mismatches(array: Any, kind: pa.DataType) -> list[int] | None:
    """Rows with values that `documents` refuses; None if there are none."""
    found = []
    for row, value in enumerate(array.to_pylist()):
        try:
            if value is not None:
                SIMPLE[kind](value)
        except SchemaMismatch:
            found.append(row)
    return found or None


def _convert_list(array: Any, kind: pa.DataType) -> Any:
    try:
        elements = convert(array.flatten(), kind.value_field)
    except Uncertain as uncertain:
        if uncertain.rows is None:
            raise
        parents = pc.list_parent_indices(array).to_pylist()
        raise Uncertain(sorted({parents[element] for element in uncertain.rows})) from None
    return pa.ListArray.from_arrays(array.offsets, elements, type=kind, mask=array.is_null())


def _convert_struct(array: Any, kind: pa.DataType) -> Any:
    """Where the struct is null, its columns may be null even if they are not nullable."""
    fields = [kind.field(index) for index in range(kind.num_fields)]
    there = array.is_valid()
    children = []
    for field, child in zip(fields, array.flatten(), strict=True):
        if not field.nullable and child.null_count:
            _require(pc.or_(child.is_valid(), pc.invert(there)))
        children.append(convert(child, field.with_nullable(True)))
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _double(array: Any) -> Any:
    _require(pc.is_finite(array))
    return array


def _float(array: Any) -> Any:
    return _double(array.cast(pa.float32(), safe=False))


def _date(array: Any) -> Any:
    _require(pc.match_substring_regex(array, DATE))
    days = array.cast(pa.date32())
    _require(pc.greater_equal(days, FIRST_DAY))
    return days


def _timestamp(array: Any) -> Any:
    zoned = pc.match_substring_regex(array, LOCAL_TIME + ZONE)
    if not _all(zoned):
        _require(pc.or_(zoned, pc.match_substring_regex(array, LOCAL_TIME + "$")))
        array = pc.binary_join_element_wise(array, pc.if_else(zoned, "", "Z"), "")
    return _in_range(_cut(array).cast(TIMESTAMP))


def _timestamp_without_zone(array: Any) -> Any:
    _require(pc.match_substring_regex(array, LOCAL_TIME + "$"))
    return _in_range(_cut(array).cast(TIMESTAMP_NTZ))


def _cut(array: Any) -> Any:
    return pc.replace_substring_regex(array, TOO_FINE, r"\1")


def _in_range(times: Any) -> Any:
    """Check for the years 1 to 9999, the range of Python's datetime and Spark's timestamp."""
    plain = times.cast(TIMESTAMP_NTZ)
    _require(pc.and_(pc.greater_equal(plain, FIRST_TIME), pc.less_equal(plain, LAST_TIME)))
    return times


def _binary(array: Any) -> Any:
    try:
        return pa.array([None if text is None else base64_bytes(text) for text in array.to_pylist()], pa.binary())
    except SchemaMismatch:
        raise Uncertain(_mismatches(array, pa.binary())) from None


def _require(flags: Any) -> None:
    if not _all(flags):
        raise Uncertain(pc.indices_nonzero(pc.invert(flags.fill_null(True))).to_pylist())


def _all(flags: Any) -> bool:
    return bool(pc.all(flags, min_count=0).as_py())


PLAIN: Final = {
    pa.float32(): pa.float64(),
    pa.binary(): pa.string(),
    pa.date32(): pa.string(),
    TIMESTAMP: pa.string(),
    TIMESTAMP_NTZ: pa.string(),
}
CONVERTERS: Final[dict[pa.DataType, Callable[[Any], Any]]] = {
    pa.float32(): _float,
    pa.float64(): _double,
    pa.binary(): _binary,
    pa.date32(): _date,
    TIMESTAMP: _timestamp,
    TIMESTAMP_NTZ: _timestamp_without_zone,
}
