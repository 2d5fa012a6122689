"""Many documents at once are what each of them is alone, whatever the schema and whatever the documents."""

import json
import random
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs pip install '.[spark]'")

from pyspark.sql import types

from moldau.spark.source import decode
from moldau.spark.source.decode import Decoder
from moldau.spark.source.documents import SchemaMismatch, document_reader

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


class Chance(random.Random):
    """Schemas and documents by chance: of a schema's shape, with anything at the leaves, and sometimes damaged."""

    def column(self, depth: int = 2) -> Any:
        kind = self.choice(("simple", "simple", "simple", "array", "map", "struct", "struct")) if depth else "simple"
        if kind == "array":
            return types.ArrayType(self.column(depth - 1), self.random() < 0.7)
        if kind == "map":
            return types.MapType(types.StringType(), self.column(depth - 1), self.random() < 0.7)
        return self.struct(depth - 1) if kind == "struct" else self.choice(SIMPLE)

    def struct(self, depth: int = 2) -> Any:
        names = self.sample(NAMES, self.randint(1, 4))
        return types.StructType([types.StructField(name, self.column(depth), self.random() < 0.8) for name in names])

    def document(self, kind: Any) -> str:
        if self.random() < 0.03:
            return self.choice(TOKENS)
        if isinstance(kind, types.ArrayType):
            return f"[{','.join(self.document(kind.elementType) for _ in range(self.randint(0, 3)))}]"
        if isinstance(kind, types.MapType):
            return joined({name: self.document(kind.valueType) for name in self.sample(NAMES, self.randint(0, 2))})
        if not isinstance(kind, types.StructType):
            return self.fitting(kind)
        members = {field.name: self.document(field.dataType) for field in kind.fields if self.random() < 0.9}
        extra = {"z": self.choice(TOKENS)} if self.random() < 0.05 else {"ž": "[1]"}
        return joined({**members, **extra})

    def fitting(self, kind: Any) -> str:
        """JSON that fits a simple type, or nearly."""
        name = kind.typeName()
        if name in BITS:
            edge = self.choice((-1, 1)) * 2 ** (BITS[name] - 1) + self.randint(-2, 2)
            return str(edge if self.random() < 0.05 else self.randint(-128, 127))
        if name in ("float", "double"):
            return self.choice(
                (repr(self.uniform(-1e9, 1e9)), repr(self.random() * 10.0 ** self.randint(-50, 45)), "3")
            )
        if name in ("timestamp", "timestamp_ntz", "date"):
            return json.dumps(self.time(name))
        if name == "boolean":
            return self.choice(("true", "false"))
        if name == "decimal":
            return self.choice(("1", "0.5", "-99.25", "1e1", '"3"', str(self.randint(-(10**37), 10**37))))
        if name == "binary":
            return json.dumps(b64encode(self.randbytes(self.randint(0, 4))).decode())
        text = "".join(self.choice('ab"\\\n\0č😀NaN:[{') for _ in range(self.randint(0, 4)))
        return json.dumps(text, ensure_ascii=self.random() < 0.5)

    def time(self, name: str) -> str:
        day = f"{self.randint(1, 9999):04}-{self.randint(1, 12):02}-{self.randint(1, 28):02}"
        if name == "date":
            return day
        clock = f"{self.randint(0, 23):02}:{self.randint(0, 59):02}"
        if self.random() < 0.8:
            clock += f":{self.randint(0, 59):02}"
            clock += "." + str(self.randint(0, 10 ** self.randint(1, 9) - 1)) if self.random() < 0.5 else ""
        zone = self.choice(("Z", "", "+02", "-0130", "+14:00", "-23:59")) if name == "timestamp" else ""
        return f"{day}{self.choice('T ')}{clock}{zone}"

    def value(self, kind: Any) -> bytes | None:
        """A document, or what became of one."""
        text = self.document(kind).encode("utf-8", "surrogatepass")
        what = self.randint(0, 40)
        if what == 0:
            return None
        cut = self.randint(0, len(text))
        if what == 1:
            return text[:cut] + self.choice((b"", b"\xff", b"\0", b"\n", b'"', b"{", b"}", b"{}", b" ")) + text[cut:]
        return text[:cut] if what == 2 else text


BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def joined(members: dict[str, str]) -> str:
    return f"{{{','.join(f'{json.dumps(name)}: {text}' for name, text in members.items())}}}"


def alone(schema: pa.Schema, values: list[bytes | None]) -> tuple[Any, list[tuple[int, str]]]:
    """The definition: one document at a time."""
    read = document_reader(schema)
    rows, reasons = [], []
    for row, value in enumerate(values):
        try:
            rows.append(read(value))
        except SchemaMismatch as bad:
            reasons.append((row, str(bad)))
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.record_batch(columns, schema=schema), reasons


def at_once(kind: Any, values: list[bytes | None]) -> tuple[Any, list[decode.Rejected]]:
    """With as little done one by one as can be."""
    few, decode.FEW = decode.FEW, 1
    try:
        return Decoder(kind).decode(pa.record_batch([pa.array(values, pa.binary())], ["value"]))
    finally:
        decode.FEW = few


def same(kind: Any, values: list[bytes | None]) -> None:
    batch, rejected = at_once(kind, values)
    batch.validate(full=True)
    expected, reasons = alone(batch.schema, values)
    assert rejected == reasons
    assert batch.equals(expected), (batch.to_pylist(), expected.to_pylist())


ONE_NUMBER = types.StructType([types.StructField("a", types.LongType())])


@settings(deadline=None, database=None, max_examples=250)
@given(st.integers(0, 2**64))
def test_many_at_once_are_as_each_alone(seed: int) -> None:
    chance = Chance(seed)
    kind = chance.struct()
    same(kind, [chance.value(kind) for _ in range(chance.randint(2, 12))])


@settings(deadline=None, database=None, max_examples=250)
@given(st.integers(0, 2**64))
def test_one_document_beside_itself_is_what_it_is_alone(seed: int) -> None:
    """Nothing else can spoil it: what is wrong with it has to be noticed."""
    chance = Chance(seed)
    kind = chance.struct()
    same(kind, [chance.value(kind)] * 2)


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
def test_every_token_in_every_column(kind: Any) -> None:
    for token in TOKENS:
        same(types.StructType([types.StructField("a", kind)]), [b'{"a": %s}' % token.encode()] * 2)


@pytest.mark.parametrize(
    "values",
    [
        [b'{"a":', b"1}", b"{}{}"],
        [b'{"a":1}{"a":2}', b"", b" "],
        [b'{"a":1},"b":{}', b'{"a":1}]'],
        [b"null", b"null"],
        [b"{}", b"null", b"{} null", b"null {}"],
        [b"\xef\xbb\xbf{}", b"{}", b"{}\0"],
        [b'{"a":1}', b'{"z":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"z":' + b"[" * 5000],
        [b'{"a":' + b"1" * 5000 + b"}", b'{"z":' + b"1" * 5000 + b"}"],
    ],
)
def test_values_that_are_not_one_document(values: list[bytes | None]) -> None:
    same(ONE_NUMBER, values)
    same(ONE_NUMBER, [*values, *reversed(values)])
