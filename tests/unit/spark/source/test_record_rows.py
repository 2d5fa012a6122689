"""Rows with the record's columns and a decoded value; and schemas that rows cannot have."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pip install '.[spark]'")

from pyspark.sql import types

from moldau.base.settings import SettingsRefused
from moldau.client.direct.arrow import SCHEMA_WITH_HEADERS
from moldau.spark.cluster import QueryFailed
from moldau.spark.options import read_options, registered_subject
from moldau.spark.row_columns import record_columns, registered_record, spelled, value_type
from moldau.spark.source.record_rows import RecordDecoder
from moldau.spark.source.row_reader import RowReader, row_reader
from moldau.spark.value_formats import Rejected

OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders", "decode": "json"}
REGISTRY = {"decode": "avro", "schema.registry.url": "http://localhost:1"}
BINARY, STRING, INT, LONG = types.BinaryType(), types.StringType(), types.IntegerType(), types.LongType()
FIELDS = types.StructType([types.StructField("id", LONG, nullable=False), types.StructField("offset", STRING)])
HEADER = types.StructType([types.StructField("key", STRING), types.StructField("value", BINARY)])
KINDS: dict[str, types.DataType] = {
    "key": BINARY,
    "value": FIELDS,
    "topic": STRING,
    "partition": INT,
    "offset": LONG,
    "timestamp": types.TimestampType(),
    "timestampType": INT,
    "headers": types.ArrayType(HEADER),
}


def columns(**kinds: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


def without_headers() -> types.StructType:
    return columns(**{name: kind for name, kind in KINDS.items() if name != "headers"})


def records(*values: bytes | None) -> Any:
    rows = [
        {"key": b"k%d" % offset, "value": value, "topic": "orders", "partition": 3, "offset": offset}
        | {"timestamp": 0, "timestampType": 0, "headers": None}
        for offset, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA_WITH_HEADERS)


@pytest.mark.parametrize("repeated", [1, 100], ids=["one-by-one", "in-bulk"])
def test_values_beside_the_columns_of_their_records(repeated: int) -> None:
    """A JSON field may have the name of a column: it is within the struct."""
    values = (b'{"id": 1, "offset": "mine"}', b"?", None, b'{"offset": "no id"}', b'{"id": 2}') * repeated
    decoder = pickle.loads(pickle.dumps(RecordDecoder("json", without_headers())))
    found, rejected = decoder.decode(records(*values))
    assert found.schema.names == without_headers().names
    expected = [({"id": 1, "offset": "mine"}, 0), (None, 2), ({"id": 2, "offset": None}, 4)]
    assert [(row["value"], row["offset"] % 5) for row in found.to_pylist()] == expected * repeated
    assert all(row["key"] == b"k%d" % row["offset"] for row in found.to_pylist())
    assert [each.row for each in rejected] == [row for row in range(len(values)) if row % 5 in (1, 3)]
    assert rejected[1] == Rejected(3, "id: it must not be missing or null")


def test_all_records_without_a_value() -> None:
    found, rejected = RecordDecoder("json", columns(**KINDS)).decode(records(None, None))
    assert [(row["value"], row["headers"]) for row in found.to_pylist()] == [(None, None)] * 2
    assert not rejected


def reader(schema: types.StructType, **more: str) -> RowReader:
    return row_reader(read_options({**OPTIONS, **more}, stream=True), schema)


def test_which_schemas_rows_can_have() -> None:
    assert reader(without_headers(), valueSchema="…").decoder is not None
    assert reader(columns(**KINDS), valueSchema="…", includeHeaders="true").decoder is not None
    assert reader(columns(id=LONG, value=types.DoubleType())).decoder is not None
    required = types.StructType([types.StructField("timestamp", types.TimestampType(), nullable=False)])
    assert reader(required).decoder is not None, "never null in silence"


@pytest.mark.parametrize("name", ["key", "topic", "partition", "offset", "Timestamp", "timestampType", "headers"])
def test_columns_of_the_record_are_no_fields_of_its_value(name: str) -> None:
    with pytest.raises(
        QueryFailed, match=rf"and {name} would be null unless .* by option\(\"valueSchema\", \"\.\.\.\""
    ):
        reader(columns(id=LONG, **{name: STRING}))


def test_a_binary_value_is_not_a_field() -> None:
    with pytest.raises(QueryFailed, match="and value would be null unless"):
        reader(columns(id=LONG, value=BINARY))


@pytest.mark.parametrize(
    "schema",
    [columns(id=LONG), columns(**KINDS), columns(**{**KINDS, "value": BINARY}), columns(**{**KINDS, "offset": INT})],
    ids=["fields", "headers", "bytes", "types"],
)
def test_with_a_value_schema_the_columns_are_known(schema: types.StructType) -> None:
    with pytest.raises(QueryFailed, match=r"with valueSchema the columns are: key binary, .* leave out \.schema"):
        reader(schema, valueSchema="id bigint")


def test_columns_as_spark_parses_them() -> None:
    assert value_type(" id bigint, item string ") == value_type("struct<id bigint, item string>")
    assert record_columns(headers=False, value=value_type("id bigint")).startswith(
        "key binary, value struct<id bigint>, topic string, partition int, offset bigint, timestamp timestamp"
    )


@pytest.mark.parametrize("headers", [True, False])
def test_columns_of_a_registry_are_those_of_records(headers: bool) -> None:
    found = registered_record(FIELDS, headers=headers)
    ddl = record_columns(headers=headers, value=FIELDS.simpleString())
    assert spelled((each.name, each.dataType.simpleString()) for each in found) == ddl.replace(" ", "")
    assert reader(found, **REGISTRY, includeHeaders=str(headers)).decoder is not None


def test_fields_of_a_registry_alone() -> None:
    assert reader(columns(id=LONG), **REGISTRY).decoder is not None
    with pytest.raises(QueryFailed, match="includeHeaders needs valueSchema with decode"):
        reader(columns(id=LONG), **REGISTRY, includeHeaders="true")
    with pytest.raises(SettingsRefused, match="valueSubject or valueSchema must be set to read several topics"):
        registered_subject({**OPTIONS, **REGISTRY, "subscribe": "orders,notes"})
    given = {**OPTIONS, **REGISTRY, "schema.registry.basic.auth.user.info": "me:secret"}
    form, registry, subject = registered_subject(given)
    assert (form, registry.user_info, subject) == ("avro", "me:secret", "orders-value")
    assert registered_subject({**given, "valueSubject": "mine"})[2] == "mine"
