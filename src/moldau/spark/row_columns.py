"""Columns of the rows that a source returns: those of the record, with a binary or a decoded value. Imports no Arrow.

Without `decode` they are the columns of Spark's Kafka source. With `decode` and `valueSchema`, or a schema from a
registry, the column `value` is a struct. With `decode` and `.schema(...)` the rows have the fields of the value alone.
"""

from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

KEY, VALUE = "key", "value"
BINARY = "binary"
AFTER_VALUE = "topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = "headers array<struct<key: string, value: binary>>"
# Names of the record's columns. `value` may well be a field of a JSON document.
RECORD_NAMES = frozenset({"key", "topic", "partition", "offset", "timestamp", "timestamptype", "headers"})
STRUCT = "struct<"
ONE_OF_BOTH = (
    "decode needs the schema of the values: .schema(...) for rows with their fields alone, or the option valueSchema "
    "for rows with the record's columns, in which value is a struct"
)


def record_columns(*, headers: bool, value: str = BINARY) -> str:
    """DDL of the record's columns; `value` is the type of that column."""
    columns = f"{KEY} {BINARY}, {VALUE} {value}, {AFTER_VALUE}"
    return f"{columns}, {HEADERS}" if headers else columns


def value_type(text: str) -> str:
    """Type of the column value from `valueSchema`, which is DDL, with or without `struct<>`."""
    plain = text.strip()
    return plain if plain.lower().startswith(STRUCT) else f"{STRUCT}{plain}>"


def registered_record(fields: StructType, *, headers: bool) -> StructType:
    """The record's columns with a struct of these fields, which may have metadata, as its value. No DDL has these."""
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types: dict[str, DataType] = {
        KEY: BinaryType(),
        VALUE: fields,
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        **({"headers": ArrayType(header)} if headers else {}),
    }
    return StructType([StructField(name, kind) for name, kind in types.items()])


def has_record_columns(schema: StructType, *, headers: bool) -> bool:
    """Tell whether a schema has the record's columns, with any struct as its value."""
    types = {field.name: field.dataType for field in schema.fields}
    if not isinstance(types.get(VALUE), StructType):
        return False
    plain = [(name, BINARY if name == VALUE else kind.simpleString()) for name, kind in types.items()]
    return spelled(plain) == record_columns(headers=headers).replace(" ", "")


def spelled(columns: Iterable[tuple[str, str]]) -> str:
    """Names and types as in `record_columns`, without blanks."""
    return ",".join(f"{name}{kind}" for name, kind in columns).replace(" ", "")


def unfilled(schema: StructType) -> str | None:
    """Error if fields of a value have names of the record's columns: such a column may be expected to have them.

    One that is not nullable is never null in silence: a value without the field is rejected.
    """
    names = [field.name for field in schema.fields if field.nullable and field.name.lower() in RECORD_NAMES]
    names += [f.name for f in schema.fields if f.nullable and (f.name, f.dataType.simpleString()) == (VALUE, BINARY)]
    if not names:
        return None
    listed = ", ".join(names)
    return (
        f"decode with .schema(...) returns fields of the values, and {listed} would be null unless a value has a field "
        'of that name. For the columns of the record replace .schema("...") by option("valueSchema", "..."): then '
        "value is a struct with the fields, beside key, topic, partition, offset, timestamp and, with includeHeaders, "
        "headers. If the values have such a field, use valueSchema too, or declare it NOT NULL"
    )
