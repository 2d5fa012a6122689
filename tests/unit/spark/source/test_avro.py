"""Avro values of a registry to columns and back: schema resolution, types, references, and values that do not fit."""

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pip install '.[spark]'")
pytest.importorskip("fastavro", reason="needs pip install '.[spark]'")

from pyspark.sql import types

from moldau.spark.avro_schemas import MAX_REFERENCED
from moldau.spark.cluster import QueryFailed
from moldau.spark.sink.avro import AvroEncoder
from moldau.spark.source.avro import AvroDecoder, latest_columns
from moldau.spark.value_formats import READER_ID, Encoding, Registry, Rejected, ValueDecoder, value_decoder
from support.spark.registry import SmallRegistry, avro, small_registry

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "product", "type": "string", "aliases": ["item"]},
        {"name": "currency", "type": "string", "default": "CZK"},
    ],
}
TEXT_ID = [{"name": "id", "type": "string"}]
LONG, STRING, INT = types.LongType(), types.StringType(), types.IntegerType()
SUBJECT = "orders-value"


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as found:
        yield found


def columns(**kinds: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


def decode(decoder: ValueDecoder, *values: bytes | None) -> tuple[list[Any], list[Rejected]]:
    rows, rejected = decoder.decode(pa.record_batch({"value": pa.array(values, pa.binary())}))
    return rows.to_pylist(), rejected


def test_old_values_are_read_with_the_schema_of_the_columns(registry: SmallRegistry) -> None:
    old = registry.register(SUBJECT, V1)
    new = registry.register(SUBJECT, V2)
    found = latest_columns(registry.registry, SUBJECT)
    assert [(each.name, each.dataType, each.metadata) for each in found] == [
        (name, kind, {READER_ID: new}) for name, kind in (("id", LONG), ("product", STRING), ("currency", STRING))
    ]
    decoder = pickle.loads(pickle.dumps(value_decoder("avro", found, registry.registry)))
    registry.register(SUBJECT, {**V2, "fields": V2["fields"][:1]})  # the columns stay those of before
    rows, rejected = decode(
        decoder,
        avro(new, V2, {"id": 1, "product": "beer", "currency": "EUR"}),
        avro(old, V1, {"id": 2, "item": "wine"}),
        avro(new, V2, {"id": 3, "product": "rum", "currency": "EUR"}),
    )
    assert rejected == []
    assert [tuple(row.values()) for row in rows] == [(1, "beer", "EUR"), (2, "wine", "CZK"), (3, "rum", "EUR")]


def test_fields_go_to_columns_by_name(registry: SmallRegistry) -> None:
    old, new = registry.register(SUBJECT, V1), registry.register(SUBJECT, V2)
    decoder = AvroDecoder(columns(id=LONG, item=STRING, more=STRING), registry.registry)
    rows, rejected = decode(
        decoder,
        avro(new, V2, {"id": 1, "product": "beer", "currency": "EUR"}),
        avro(old, V1, {"id": 2, "item": "wine"}),
        avro(new, V2, {"id": 3, "product": "rum", "currency": "EUR"}),
    )
    assert rejected == []
    assert [tuple(row.values()) for row in rows] == [(1, None, None), (2, "wine", None), (3, None, None)]
    assert len(registry.asked) == 2, "each schema is asked for once"


def test_values_that_do_not_fit_are_told_from_their_neighbours(registry: SmallRegistry) -> None:
    number, other = registry.register(SUBJECT, V1), registry.register("text-value", {**V1, "fields": TEXT_ID})
    good = avro(number, V1, {"id": 1, "item": "beer"})
    odd = registry.register("odd", "string")
    json_schema = registry.register("json", {}, kind="JSON")
    values = (
        good,
        None,
        b"",
        b"{}",
        b"\0\0\0\x03\xe7abc",
        good[:-1],
        good + b"\0\0",
        b"\0" + odd.to_bytes(4),
        b"\0" + json_schema.to_bytes(4),
        avro(other, {**V1, "fields": TEXT_ID}, {"id": "7"}),
        good,
    )
    rows, rejected = decode(AvroDecoder(columns(id=INT), registry.registry), *values)
    assert rows == [{"id": 1}, {"id": 1}]
    said = {each.row: each.reason for each in rejected}
    assert said[1] == "no value"
    assert said[2] == said[3]
    assert said[3].startswith("no id of a schema in front")
    assert said[4] == "schema 999 is not in the registry"
    assert said[5].startswith("not Avro of schema 1: ")
    assert said[6] == "not Avro of schema 1: 2 bytes are left over"
    assert said[7] == "schema 3 is not a record, so it has no columns"
    assert said[8] == "schema 4 is of the type JSON, not AVRO"
    assert said[9] == "id: the records have string, which does not become int32"
    assert sorted(said) == list(range(1, 10))


def test_a_column_that_must_not_be_null(registry: SmallRegistry) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": ["null", "int"]}]}
    number = registry.register(SUBJECT, schema)
    strict = types.StructType([types.StructField("id", LONG, nullable=False)])
    rows, rejected = decode(
        AvroDecoder(strict, registry.registry), avro(number, schema, {"id": 5}), avro(number, schema, {"id": None})
    )
    assert (rows, rejected) == ([{"id": 5}], [Rejected(1, "id: it must not be missing or null")])


WIDE = {
    "type": "record",
    "name": "a.Wide",
    "fields": [
        {"name": "ok", "type": "boolean"},
        {"name": "ratio", "type": ["float", "double"]},
        {"name": "raw", "type": "bytes"},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exact", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "here", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "who", "type": {"type": "record", "name": "Who", "fields": [{"name": "age", "type": "int"}]}},
        {"name": "other", "type": ["null", "Who"]},
    ],
}
WIDE_ROW = {
    "ok": True,
    "ratio": 0.5,
    "raw": b"ab",
    "fixed": b"xy",
    "day": date(2026, 11, 16),
    "at": datetime(2026, 11, 16, 10, 0, 0, 123_000, UTC),
    "exact": datetime(2026, 11, 16, 10, 0, 0, 123_456, UTC),
    "here": datetime(2026, 11, 16, 10),
    "price": Decimal("12.50"),
    "kind": "B",
    "again": "A",
    "tags": ["a", None],
    "counts": {"a": 1},
    "who": {"age": 5},
    "other": None,
}


def test_every_type_comes_back_as_it_was_written(registry: SmallRegistry) -> None:
    number = registry.register(SUBJECT, WIDE)
    found = latest_columns(registry.registry, SUBJECT)
    decoder = AvroDecoder(found, registry.registry)
    rows, rejected = decoder.decode(pa.record_batch({"value": pa.array([avro(number, WIDE, WIDE_ROW)])}))
    assert rejected == []
    assert rows.to_pylist(maps_as_pydicts="strict") == [WIDE_ROW]
    encoder = AvroEncoder(Encoding("avro", registry.registry, SUBJECT))
    struct = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
    written = encoder.encode(pa.concat_arrays([struct, pa.nulls(1, struct.type)]))
    assert written.to_pylist() == [avro(number, WIDE, WIDE_ROW), None]


def test_schemas_that_refer_to_others(registry: SmallRegistry) -> None:
    registry.register("who", {"type": "record", "name": "a.Who", "fields": [{"name": "age", "type": "int"}]})
    schema = {"type": "record", "name": "Order", "fields": [{"name": "who", "type": "a.Who"}]}
    number = registry.register(SUBJECT, schema, ("a.Who", "who", 1))
    decoder = AvroDecoder(latest_columns(registry.registry, SUBJECT), registry.registry)
    rows, rejected = decode(decoder, b"\0" + number.to_bytes(4) + b"\x0a")
    assert (rows, rejected) == ([{"who": {"age": 5}}], [])


def test_references_have_a_limit(registry: SmallRegistry) -> None:
    for number in range(MAX_REFERENCED + 1):
        registry.register(f"s{number}", {"type": "record", "name": f"R{number}", "fields": TEXT_ID})
    all_of_them = [(f"R{number}", f"s{number}", 1) for number in range(MAX_REFERENCED + 1)]
    registry.register(SUBJECT, V1, *all_of_them)
    with pytest.raises(QueryFailed, match=f"refers to more than {MAX_REFERENCED} other schemas"):
        latest_columns(registry.registry, SUBJECT)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (["int", "string"], r"schema 1\.x: a union of several types has no column type"),
        ("null", r"schema 1\.x: the Avro type null has no column type"),
        (["null", "Order"], "the record Order contains itself, which no column can"),
        ({"type": "record", "name": "E", "fields": []}, "the record E has no fields"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "decimals have at most 38 digits"),
        ("nonsense", "schema 1 is not a valid Avro schema: nonsense"),
    ],
)
def test_schemas_without_columns(registry: SmallRegistry, kind: object, said: str) -> None:
    registry.register(SUBJECT, {"type": "record", "name": "Order", "fields": [{"name": "x", "type": kind}]})
    with pytest.raises(QueryFailed, match=said):
        latest_columns(registry.registry, SUBJECT)


def test_rows_that_a_schema_does_not_take(registry: SmallRegistry) -> None:
    registry.register(SUBJECT, V1)

    def encode(document: dict[str, object]) -> None:
        AvroEncoder(Encoding("avro", registry.registry, SUBJECT)).encode(pa.array([document]))

    with pytest.raises(QueryFailed, match="schema 1 has no field price, which the rows have in value"):
        encode({"id": 1, "item": "beer", "price": 2.5})
    with pytest.raises(QueryFailed, match=r"a row does not match schema 1: .*item"):
        encode({"id": 1})
    with pytest.raises(QueryFailed, match="a row does not match schema 1: "):
        encode({"id": None, "item": "beer"})
    with pytest.raises(QueryFailed, match="returned 404 for /schemas/ids/99: Schema not found"):
        AvroEncoder(Encoding("avro", registry.registry, SUBJECT, 99)).encode(pa.array([{"id": 1}]))


def test_a_registry_that_does_not_answer_fails_the_query(registry: SmallRegistry) -> None:
    registry.register(SUBJECT, V1)
    registry.credentials = "Basic dXNlcjpwYXNz"
    with pytest.raises(QueryFailed, match="returned 401 for /subjects/orders-value/versions/latest: Unauthorized"):
        latest_columns(registry.registry, SUBJECT)
    assert latest_columns(Registry(registry.url, "user:pass"), SUBJECT).names == ["id", "item"]
    assert "pass" not in repr(Registry(registry.url, "user:pass"))
    with pytest.raises(QueryFailed, match=r"cannot reach the schema registry http://127\.0\.0\.1:1: "):
        decode(AvroDecoder(columns(id=LONG), Registry("http://127.0.0.1:1")), b"\0\0\0\0\1")
    registry.credentials, registry.schemas[1] = "", {"x": 1}
    with pytest.raises(QueryFailed, match="does not answer as a schema registry does"):
        latest_columns(registry.registry, SUBJECT)
