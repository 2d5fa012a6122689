"""Many documents at once are what each of them is alone, whatever the schema and whatever the documents."""

import json
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs pip install 'moldau[spark]'")

from pyspark.sql import types

from moldau.spark.source import decode
from moldau.spark.source.decode import Decoder
from moldau.spark.source.documents import Misfit, document_reader

NAMES = ["a", "b", "č", "a b", ""]
SIMPLE = [
    types.BooleanType(),
    types.ByteType(),
    types.ShortType(),
    types.IntegerType(),
    types.LongType(),
    types.FloatType(),
    types.DoubleType(),
    types.StringType(),
    types.BinaryType(),
    types.DateType(),
    types.TimestampType(),
    types.TimestampNTZType(),
    types.DecimalType(5, 2),
    types.DecimalType(38, 18),
    types.DecimalType(10, 0),
]
TOKENS = [
    *[
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-7",
        "127",
        "128",
        "-129",
        "32768",
        "2147483648",
        "9223372036854775807",
    ],
    *["9223372036854775808", "1.0", "1.50", "1.555", "0.1", "1e2", "1E-2", "-1.5e+3", "1e400", "-1e400", "1e-400"],
    *["3.5e38", "3.4028235677973366e38", "123456789012345678901234567890", "0.0000000000000000001", "-0.0", "1e38"],
    *["NaN", "-NaN", "Infinity", "-Infinity", "Inf", "01", "1.", ".5", "+1", "'a'", "nul", "[", "]", "{", "}", ",", ""],
    *['""', '"x"', '"1"', '"1.25"', '"YWI="', '"YWI"', '"YW I="', '"Zg=="', '"\\ud800"', '"\\ud83d\\ude00"', '"č"'],
    *['"\\u0000"', '"a\tb"', '"a: NaN"', '"[Infinity"', '"2026-11-16"', '"2026-02-30"', '"0000-01-01"', '"0001-01-01"'],
    *['"2026-11-16T10:00:00Z"', '"2026-11-16 10:00"', '"2026-11-16T10:00+02"', '"2026-11-16T10:00:00.123456789-0130"'],
    *['"2026-11-16T24:00:00Z"', '"2026-11-16T23:59:60Z"', '"2026-11-16T10:00:00.1+25:00"', '"2026-11-16T10"'],
    *['"0001-01-01T00:00:00+01:00"', '"9999-12-31T23:59:59.999999-00:01"', '"2026-11-16T10:00:00.Z"', '"20261116"'],
    *['"2026-11-16T10:00:00+02:60"', '"2026-11-16T10:00:00\\n"', '"2026-11-16\\n"', '"9999-12-31T23:59:59.999999"'],
    *["[]", "{}", "[1]", "[null]", '{"a":1}', '{"a":1,"a":2}', '{"a":[]}', "[[]]", '["x"]', '[{"a":null}]'],
]


def columns(depth: int = 2) -> st.SearchStrategy[Any]:
    simple = st.sampled_from(SIMPLE)
    if not depth:
        return simple
    deeper = columns(depth - 1)
    return st.one_of(
        simple,
        simple,
        st.builds(types.ArrayType, deeper, st.booleans()),
        st.builds(types.MapType, st.just(types.StringType()), deeper, st.booleans()),
        structs(depth - 1),
    )


def structs(depth: int = 2) -> st.SearchStrategy[Any]:
    field = st.tuples(columns(depth), st.booleans())
    return st.dictionaries(st.sampled_from(NAMES), field, min_size=1, max_size=3).map(
        lambda rows: types.StructType([types.StructField(name, kind, null) for name, (kind, null) in rows.items()])
    )


def documents(kind: Any) -> st.SearchStrategy[str]:
    """JSON for a type, mostly: of its shape, with anything at its leaves."""
    token = st.sampled_from(TOKENS)
    if isinstance(kind, types.ArrayType):
        shaped = st.lists(documents(kind.elementType), max_size=3).map(lambda parts: f"[{','.join(parts)}]")
    elif isinstance(kind, types.MapType):
        shaped = st.dictionaries(st.sampled_from(NAMES), documents(kind.valueType), max_size=2).map(joined)
    elif isinstance(kind, types.StructType):
        members = st.fixed_dictionaries({}, optional={field.name: documents(field.dataType) for field in kind.fields})
        extra = st.dictionaries(st.sampled_from(["z", "ž"]), token, max_size=1)
        shaped = st.tuples(members, extra).map(lambda both: joined({**both[0], **both[1]}))
    else:
        return st.one_of(token, *[fitting(kind)] * 4)
    return st.one_of(shaped, shaped, shaped, token)


def fitting(kind: Any) -> st.SearchStrategy[str]:
    """JSON that fits, or nearly."""
    times = st.datetimes().map(lambda time: time.isoformat() + "Z")
    found: Any = {
        "boolean": st.booleans(),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": st.text(max_size=5),
        "date": st.dates().map(str),
        "timestamp": times,
        "timestamp_ntz": st.datetimes().map(str),
        "binary": st.binary(max_size=5).map(lambda data: b64encode(data).decode()),
        "byte": st.integers(-130, 130),
        "short": st.integers(-(2**15) - 2, 2**15 + 2),
        "integer": st.integers(-(2**31) - 2, 2**31 + 2),
        "long": st.integers(-(2**63) - 2, 2**63 + 2),
    }.get(kind.typeName(), st.just(0))
    if isinstance(kind, types.DecimalType):
        number = st.decimals(allow_nan=False, allow_infinity=False, places=kind.scale).map(str)
        return st.one_of(number, st.decimals(-999, 999, places=min(2, kind.scale)).map(str))
    return st.one_of(found.map(json.dumps), found.map(lambda value: json.dumps(value, ensure_ascii=False)))


def joined(members: dict[str, str]) -> str:
    return f"{{{','.join(f'{json.dumps(name)}: {text}' for name, text in members.items())}}}"


@st.composite
def damaged(draw: st.DrawFn, kind: Any) -> bytes | None:
    """A document, or what became of one."""
    text = draw(documents(kind)).encode("utf-8", "surrogatepass")
    what = draw(st.integers(0, 30))
    if what == 0:
        return None
    if what == 1:
        cut = draw(st.integers(0, len(text)))
        return (
            text[:cut] + draw(st.sampled_from([b"", b"\xff", b"\0", b"\n", b'"', b"{", b"}", b"{}", b" "])) + text[cut:]
        )
    if what == 2:
        return text[: draw(st.integers(0, len(text)))]
    return text


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[bytes | None]]:
    kind = draw(structs())
    return kind, draw(st.lists(damaged(kind), min_size=2, max_size=8))


ONE_NUMBER = types.StructType([types.StructField("a", types.LongType())])


@settings(deadline=None, database=None, max_examples=400)
@given(cases())
@example((ONE_NUMBER, [b'{"a":', b"1}", b"{}{}"]))
@example((ONE_NUMBER, [b'{"a":1}{"a":2}', b"", b" "]))
@example((ONE_NUMBER, [b"\xef\xbb\xbf{}", b"{}", b"{}\0"]))
@example((ONE_NUMBER, [b'{"a":1}', b'{"z":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"z":' + b"[" * 5000]))
@example((ONE_NUMBER, [b'{"a":' + b"1" * 5000 + b"}", b'{"z":' + b"1" * 5000 + b"}"]))
def test_many_at_once_are_as_each_alone(case: tuple[Any, list[bytes | None]]) -> None:
    kind, values = case
    few, decode.FEW = decode.FEW, 1
    try:
        batch, rejected = Decoder(kind).decode(pa.record_batch([pa.array(values, pa.binary())], ["value"]))
    finally:
        decode.FEW = few
    batch.validate(full=True)
    schema = batch.schema
    read = document_reader(schema)
    rows, reasons = [], []
    for row, value in enumerate(values):
        try:
            rows.append(read(value))
        except Misfit as bad:
            reasons.append((row, str(bad)))
    assert rejected == reasons
    expected = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    assert batch.equals(pa.record_batch(expected, schema=schema)), (batch.to_pylist(), rows)


@settings(deadline=None, database=None, max_examples=600)
@given(structs().flatmap(lambda kind: st.tuples(st.just(kind), damaged(kind))))
def test_what_is_taken_at_once_is_right(case: tuple[Any, bytes | None]) -> None:
    """One document beside itself: nothing else can spoil it."""
    kind, value = case
    decoder = Decoder(kind)
    found = decoder._at_once(pa.array([value, value], pa.binary())) if decoder._plain else None
    if found is not None:
        row = document_reader(decoder.schema)(value)
        expected = [pa.array([row[field.name]] * 2, field.type) for field in decoder.schema]
        assert found.equals(pa.record_batch(expected, schema=decoder.schema)), (found.to_pylist(), row)
