"""Avro schemas of a registry, parsed for fastavro, and the Arrow types of their values.

| Avro | Arrow |
|---|---|
| boolean, int, long, float, double, bytes, string | the type of that name |
| fixed, enum | binary, string |
| record, array, map | struct, list, map with string keys |
| a union of null and one type; of int and long; of float and double | that type, nullable; the wider one |
| date, timestamp-millis, timestamp-micros, local-timestamp-…, decimal, uuid | date, timestamp, …, decimal, string |

Values keep the numbers of logical types (except decimal), which Arrow takes as they are: no Python date per value.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa

from moldau.spark.cluster import QueryFailed
from moldau.spark.schema_registry import (
    MAX_CACHED,
    RegisteredSchema,
    schema_by_id,
    schema_of_version,
)
from moldau.spark.value_formats import Registry

MAX_REFERENCED: Final = 100  # schemas that one schema may refer to, also indirectly
AVRO: Final = "AVRO"
NULL: Final = "null"
MAX_PRECISION: Final = 38  # of Spark's decimals
PRIMITIVE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
WIDER: Final[Mapping[frozenset[Any], str]] = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}


class UnsupportedAvro(QueryFailed):
    """A schema without columns of Spark, or that is no Avro schema."""


class AvroSchema(NamedTuple):
    """`plain` is without logical types except decimal, for reading; `logical` has them, for writing."""

    id: int
    plain: Any
    logical: Any
    type: pa.StructType


@lru_cache(MAX_CACHED)
def avro_schema(registry: Registry, schema_id: int) -> AvroSchema:
    """Raises SchemaNotFound, UnsupportedAvro, or QueryFailed if the registry does not answer."""
    return parsed_schema(registry, schema_by_id(registry, schema_id))


def parsed_schema(registry: Registry, schema: RegisteredSchema) -> AvroSchema:
    named: dict[str, Any] = {}
    documents = [*_referenced(registry, schema, set()), schema]
    plain_names: dict[str, Any] = {}
    plain = logical = None
    try:
        for each in documents:
            document = json.loads(each.text)
            logical = fastavro.parse_schema(document, named)
            plain = fastavro.parse_schema(_without_logical(document), plain_names)
        kind = _Types(named).of(logical, f"schema {schema.id}")
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as wrong:
        raise UnsupportedAvro(f"schema {schema.id} is not a valid Avro schema: {wrong}") from wrong
    if not pa.types.is_struct(kind):
        raise UnsupportedAvro(f"schema {schema.id} is not a record, so it has no columns")
    return AvroSchema(schema.id, plain, logical, kind)


def _referenced(registry: Registry, schema: RegisteredSchema, seen: set[tuple[str, int]]) -> list[RegisteredSchema]:
    """Schemas that this one refers to, each behind those that it refers to itself."""
    if schema.kind != AVRO:
        raise UnsupportedAvro(f"schema {schema.id} is of the type {schema.kind}, not {AVRO}")
    found = []
    for reference in schema.references:
        place = (reference.subject, reference.version)
        if place in seen:
            continue
        seen.add(place)
        if len(seen) > MAX_REFERENCED:
            raise UnsupportedAvro(f"schema {schema.id} refers to more than {MAX_REFERENCED} other schemas")
        other = schema_of_version(registry, *place)
        found += [*_referenced(registry, other, seen), other]
    return found


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "logicalType" or value == "decimal"}
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _without_logical(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [
            {**each, "type": _without_logical(each["type"])} if isinstance(each, dict) and "type" in each else each
            for each in kept["fields"]
        ]
    return kept


class _Types:
    """Arrow types of parsed schemas. `within` are the records around the current place."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._within: list[str] = []

    def of(self, schema: Any, path: str) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in self._named:
                return self.of(self._named[schema], path)
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, path)
        match kind:
            case "record" | "error":
                return self._record(schema, path)
            case "array":
                item = self._field("element", schema["items"], f"{path}[]")
                return pa.list_(item)
            case "map":
                return pa.map_(pa.string(), self._field("value", schema["values"], f"{path}{{}}"))
            case _ if kind in PRIMITIVE:
                return _scalar(schema, kind)
            case _ if kind in self._named:
                return self.of(self._named[kind], path)
        # Null alone and empty records take no bytes: an array of them could be of any length.
        raise UnsupportedAvro(f"{path}: the Avro type {kind} has no column type")

    def _record(self, schema: Any, path: str) -> pa.DataType:
        name = schema["name"]
        if name in self._within:
            raise UnsupportedAvro(f"{path}: the record {name} contains itself, which no column can")
        if not schema["fields"]:
            raise UnsupportedAvro(f"{path}: the record {name} has no fields")
        self._within.append(name)
        fields = [self._field(each["name"], each["type"], f"{path}.{each['name']}") for each in schema["fields"]]
        self._within.pop()
        return pa.struct(fields)

    def _field(self, name: str, schema: Any, path: str) -> pa.Field:
        nullable = isinstance(schema, list) and NULL in schema
        return pa.field(name, self.of(schema, path), nullable)

    def _union(self, schema: list[Any], path: str) -> pa.DataType:
        others = [each for each in schema if each != NULL]
        if len(others) == 1:
            return self.of(others[0], path)
        if all(isinstance(each, str) for each in others) and frozenset(others) in WIDER:
            return PRIMITIVE[WIDER[frozenset(others)]]
        raise UnsupportedAvro(f"{path}: a union of several types has no column type")


def _scalar(schema: Mapping[str, Any], kind: str) -> pa.DataType:
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = schema["precision"]
        if precision > MAX_PRECISION:
            raise UnsupportedAvro(f"decimals have at most {MAX_PRECISION} digits, and the schema has {precision}")
        return pa.decimal128(precision, schema.get("scale", 0))
    return LOGICAL.get((kind, str(logical)), PRIMITIVE[kind])
