"""Which documents fit which columns, one by one: the sentences of documents.py, as examples."""

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pip install '.[spark]'")

from pyspark.sql import types

from moldau.spark.cluster import QueryFailed
from moldau.spark.source import decode
from moldau.spark.source.decode import Decoder
from moldau.spark.value_formats import Rejected

KINDS = {
    "tinyint": types.ByteType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "decimal": types.DecimalType(5, 2),
    "boolean": types.BooleanType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "array": types.ArrayType(types.IntegerType()),
    "struct": types.StructType([types.StructField("x", types.IntegerType())]),
    "strict": types.StructType([types.StructField("x", types.IntegerType(), nullable=False)]),
    "map": types.MapType(types.StringType(), types.IntegerType()),
    "void": types.NullType(),
    "numbered": types.MapType(types.IntegerType(), types.IntegerType()),
    "twins": types.StructType([types.StructField("x", types.IntegerType())] * 2),
}


def schema(columns: str) -> types.StructType:
    """`a int, b string not null`, with the kinds above."""
    words = [column.split() for column in columns.split(", ")]
    return types.StructType([types.StructField(name, KINDS[kind], not more) for name, kind, *more in words])


def decoded(columns: str, *values: bytes | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and reasons: the same one at a time and many at once."""
    decoder = pickle.loads(pickle.dumps(Decoder(schema(columns))))
    batch, rejected = decoder.decode(pa.record_batch([pa.array(values, pa.binary())], ["value"]))
    assert batch.schema.equals(decoder.schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "FEW", 1)
        many, more = decoder.decode(pa.record_batch([pa.array(values * 2, pa.binary())], ["value"]))
    assert many.to_pylist() == batch.to_pylist() * 2
    assert [each.reason for each in more] == [each.reason for each in rejected] * 2
    return batch.to_pylist(), [each.reason for each in rejected]


def only(kind: str, text: str) -> Any:
    """What a column of the type has for a JSON value; a sentence in brackets if it does not fit."""
    rows, reasons = decoded(f"a {kind}", b'{"a": %s}' % text.encode())
    return rows[0]["a"] if rows else f"[{reasons[0]}]"


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("int", "7", 7),
        ("int", "-0", 0),
        ("int", "null", None),
        ("int", "1.5", "[a: 1.5 is not a whole number]"),
        ("int", "1.0", "[a: 1.0 is not a whole number]"),
        ("int", "1e2", "[a: 1e2 is not a whole number]"),
        ("int", '"7"', '[a: "7" is not a whole number]'),
        ("int", "true", "[a: true is not a whole number]"),
        ("int", "[7]", "[a: an array is not a whole number]"),
        ("int", "2147483648", "[a: 2147483648 is out of the range of 32 bits]"),
        ("tinyint", "-128", -128),
        ("tinyint", "128", "[a: 128 is out of the range of 8 bits]"),
        ("bigint", "9223372036854775807", 9223372036854775807),
        ("bigint", "9223372036854775808", "[a: 9223372036854775808 is out of the range of 64 bits]"),
        ("double", "1", 1.0),
        ("double", "1e308", 1e308),
        ("double", "1e400", "[a: 1e400 is out of range]"),
        ("double", "NaN", "[not JSON: NaN]"),
        ("double", '"1"', '[a: "1" is not a number]'),
        ("float", "0.5", 0.5),
        ("float", "1e39", "[a: 1e39 is out of range]"),
        ("decimal", "1.5", Decimal("1.50")),
        ("decimal", '"-999.990"', Decimal("-999.99")),
        ("decimal", "1e2", Decimal("100.00")),
        ("decimal", "1.555", "[a: 1.555 is not exact in decimal(5,2)]"),
        ("decimal", "1000", "[a: 1000 is not exact in decimal(5,2)]"),
        ("decimal", "1e999999999", "[a: 1e999999999 is not exact in decimal(5,2)]"),
        ("decimal", '"x"', '[a: "x" is not a decimal number]'),
        ("boolean", "true", True),
        ("boolean", "1", "[a: 1 is not true or false]"),
        ("string", '"\\u010d"', "č"),
        ("string", "1", "[a: 1 is not a string]"),
        ("string", '"\\ud800"', "[a: half of a surrogate pair is not text]"),
        ("binary", '"YWI="', b"ab"),
        ("binary", '"YWI"', '[a: "YWI" is not a string of Base64]'),
        ("date", '"2026-11-16"', date(2026, 11, 16)),
        ("date", '"2026-02-30"', "[a: 2026-02-30 does not exist]"),
        ("date", '"16.11.2026"', '[a: "16.11.2026" is not a date such as 2026-11-16]'),
        ("timestamp", '"2026-11-16T10:00:00Z"', datetime(2026, 11, 16, 10, tzinfo=UTC)),
        ("timestamp", '"2026-11-16 10:00"', datetime(2026, 11, 16, 10, tzinfo=UTC)),
        ("timestamp", '"2026-11-16T10:00:00.5+02:00"', datetime(2026, 11, 16, 8, 0, 0, 500_000, tzinfo=UTC)),
        ("timestamp", '"2026-11-16T10:00:00.123456789Z"', datetime(2026, 11, 16, 10, 0, 0, 123_456, tzinfo=UTC)),
        ("timestamp", "1700000000000", "[a: 1700000000000 is not a string]"),
        ("timestamp", '"2026-11-16"', '[a: "2026-11-16" is not a time such as 2026-11-16T10:00:00Z]'),
        ("timestamp", '"2026-11-16T25:00:00Z"', "[a: 2026-11-16T25:00:00Z does not exist]"),
        ("timestamp_ntz", '"2026-11-16T10:00:00"', datetime(2026, 11, 16, 10)),
        ("timestamp_ntz", '"2026-11-16T10:00:00Z"', '[a: "2026-11-16T10:00:00Z" is not a time without a zone]'),
        ("array", "[1, null]", [1, None]),
        ("array", '{"0": 1}', "[a: an object is not an array]"),
        ("array", '[1, "x"]', '[a.element: "x" is not a whole number]'),
        ("struct", '{"x": 1, "y": 2}', {"x": 1}),
        ("struct", "{}", {"x": None}),
        ("struct", '{"x": 1, "x": 2}', "[a.x: it occurs twice]"),
        ("strict", "{}", "[a.x: it must not be missing or null]"),
        ("strict", "null", None),
        ("map", '{"x": 1, "y": null}', [("x", 1), ("y", None)]),
        ("map", '{"x": 1, "x": 2}', "[a.x: it occurs twice]"),
        ("map", '{"x": 1.5}', "[a.value: 1.5 is not a whole number]"),
    ],
)
def test_values(kind: str, text: str, found: Any) -> None:
    assert only(kind, text) == found


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "not JSON: expecting value at character 0"),
        (b"null", "null is not an object"),
        (b"[]", "an array is not an object"),
        (b"7", "7 is not an object"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": 1} {"a": 2}', "not JSON: extra data at character 9"),
        (b'{"a": 1}\0', "not JSON: extra data"),
        (b'\xef\xbb\xbf{"a": 1}', "not JSON"),
        (b'{"a": "\xff"}', "not UTF-8: byte 7"),
        (b'{"a": 1, "a": 1}', "a: it occurs twice"),
        (b'{"z": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (b'{"a": ' + b"9" * 200_000 + b"}", "is out of the range of 32 bits"),
    ],
)
def test_documents_that_never_fit(value: bytes | None, reason: str) -> None:
    rows, reasons = decoded("a int", value)
    assert not rows
    assert reason in reasons[0]
    assert len(reasons[0]) < 300, "a reason is for people, whatever the record"


def test_what_the_schema_does_not_have_does_not_matter() -> None:
    odd = b'{"z": 1e999, "z": "\\ud800", "y": ' + b"9" * 9000 + b', "x": {"a": "x", "a": 1}, "a": 1}'
    assert decoded("a int, b string", odd, b"{}") == ([{"a": 1, "b": None}, {"a": None, "b": None}], [])


def test_columns_that_must_not_be_null() -> None:
    rows, reasons = decoded("a int not null, b int", b'{"a": 1}', b'{"b": 1}', b'{"a": null}')
    assert rows == [{"a": 1, "b": None}]
    assert reasons == ["a: it must not be missing or null"] * 2


def test_rejected_rows_are_named_and_the_others_stay_in_order() -> None:
    values: list[bytes | None] = [b'{"a": %d}' % number for number in range(1000)]
    for row in (0, 77, 500, 999):
        values[row] = b"?"
    found, rejected = Decoder(schema("a int")).decode(pa.record_batch([pa.array(values, pa.binary())], ["value"]))
    assert [row["a"] for row in found.to_pylist()] == [row for row in range(1000) if row not in (0, 77, 500, 999)]
    assert rejected == [Rejected(row, "not JSON: expecting value at character 0") for row in (0, 77, 500, 999)]


MISFITS = (
    b"?",
    b'{"a": 1, "t": "2026',
    b'{"a": oops}',
    b'{"a": "x"}',
    b'{"a": 1.5}',
    b'{"a": 1}{"a": 2}',
    b'{"a": [',
    b'{"t": "2026-02-30T10:00:00Z"}',
    b'{"t": "yesterday"}',
    b'{"s": {}}',
    b'{"l": [1, 1.5]}',
    b'{"a": "\xff"}',
    None,
)


@pytest.mark.parametrize("every", [3, 50, 400], ids=lambda every: f"one-in-{every}")
@pytest.mark.parametrize("misfits", [MISFITS, *((each,) for each in MISFITS)], ids=repr)
def test_misfits_among_many_do_not_change_their_neighbours(misfits: tuple[bytes | None, ...], every: int) -> None:
    """In bulk as one at a time, whatever stops the parser, and however often."""
    columns = "a int, t timestamp, s strict, l array"
    good = [
        b'{"a": %d, "t": "2026-11-16T10:00:00Z", "s": {"x": 1}, "l": [1, %d]}' % (number, number)
        for number in range(1600)
    ]
    values = [misfits[row // every % len(misfits)] if row % every == 1 else good[row] for row in range(len(good))]
    found, rejected = Decoder(schema(columns)).decode(pa.record_batch([pa.array(values, pa.binary())], ["value"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "FEW", len(values))
        expected = Decoder(schema(columns)).decode(pa.record_batch([pa.array(values, pa.binary())], ["value"]))
    assert (found, rejected) == expected
    assert [each.row for each in rejected] == list(range(1, len(values), every))


def test_a_value_that_takes_in_the_next_one_is_not_two_rows() -> None:
    values = [b'{"a": %d}' % number for number in range(500)]
    values[100:103] = [b'{"z": [', b'{"a": 1}', b'], "a": 1}']
    values[200:203] = [b'{"z": [{}', b'{"a": 1}', b"{}]}"]
    found, rejected = Decoder(schema("a int")).decode(pa.record_batch([pa.array(values, pa.binary())], ["value"]))
    assert [each.row for each in rejected] == [100, 102, 200, 202]
    assert found.num_rows == 496


def test_no_records_are_no_rows() -> None:
    found, rejected = Decoder(schema("a int")).decode(pa.record_batch([pa.array([], pa.binary())], ["value"]))
    assert (found.num_rows, rejected) == (0, [])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("void", "a: the type null has no JSON form"),
        ("numbered", "a: JSON has no maps with keys of the type int32"),
        ("twins", "a: two columns have the same name"),
    ],
)
def test_schemas_that_no_json_fills_are_refused(kind: str, reason: str) -> None:
    with pytest.raises(QueryFailed, match=reason):
        Decoder(schema(f"a {kind}"))
