"""Columns from Avro values, as Arrow arrays: fields by name, without a change of type except to a wider one."""

from typing import Any

import pyarrow as pa

WIDER = {
    (pa.int32(), pa.int64()),
    (pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    (pa.timestamp("ms"), pa.timestamp("us")),
}


class ColumnMismatch(ValueError):
    """A column cannot have the values of a field."""


def column_of(values: Any, field: pa.Field) -> Any:
    """The field of this name as a column; null in all rows if the records have none. Raises ColumnMismatch."""
    index = values.type.get_field_index(field.name)
    if index < 0:
        return pa.nulls(len(values), field.type)
    problem = mismatch(values.type.field(index).type, field.type, field.name)
    if problem:
        raise ColumnMismatch(problem)
    column = values.field(index)
    return column if column.type == field.type else column.cast(field.type)


def mismatch(given: pa.DataType, wanted: pa.DataType, path: str) -> str | None:
    """Why a column cannot hold values of another type."""
    if given == wanted or (given, wanted) in WIDER:
        return None
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        fields = [wanted.field(number) for number in range(wanted.num_fields)]
        both = [(given.field(each.name), each) for each in fields if given.get_field_index(each.name) >= 0]
        problems = (mismatch(one.type, other.type, f"{path}.{other.name}") for one, other in both)
        return next((each for each in problems if each), None)
    if pa.types.is_list(given) and pa.types.is_list(wanted):
        return mismatch(given.value_type, wanted.value_type, f"{path}[]")
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return mismatch(given.item_type, wanted.item_type, f"{path}{{}}")
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted) and _fits(given, wanted):
        return None
    return f"{path}: the records have {given}, which does not become {wanted}"


def _fits(given: pa.Decimal128Type, wanted: pa.Decimal128Type) -> bool:
    """As many digits before and after the point."""
    return bool(given.scale <= wanted.scale and given.precision - given.scale <= wanted.precision - wanted.scale)


def misfitting_nulls(column: Any, field: pa.Field) -> str | None:
    """Why a column has nulls where its type allows none, on the outside or inside."""
    if column.null_count and not field.nullable:
        return f"{field.name}: it must not be missing or null"
    if not _is_strict(field.type):
        return None
    kind = field.type
    if pa.types.is_struct(kind):
        there = column.drop_null()
        inner = [(there.field(number), kind.field(number)) for number in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        inner = [(column.items, kind.item_field)]
    else:
        inner = [(column.flatten(), kind.value_field)]
    problems = (misfitting_nulls(*each) for each in inner)
    found = next((each for each in problems if each), None)
    return f"{field.name}.{found}" if found else None


def _is_strict(kind: pa.DataType) -> bool:
    """Tell whether something inside must not be null."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _is_strict(kind.item_type)
    if pa.types.is_list(kind):
        return not kind.value_field.nullable or _is_strict(kind.value_type)
    fields = [kind.field(number) for number in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return any(not each.nullable or _is_strict(each.type) for each in fields)
