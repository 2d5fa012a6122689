"""AvroEncoder: structs to Avro values with the id of their schema in a registry, for `option("encode", "avro")`."""

from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from moldau.spark.avro_schemas import AvroSchema, avro_schema, parsed_schema
from moldau.spark.cluster import QueryFailed
from moldau.spark.schema_registry import latest_schema
from moldau.spark.value_formats import FRAME, MAGIC, Encoding


class AvroEncoder:
    """Encodes with one schema. It is fetched with the first values: a task without rows asks no registry."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._schema: AvroSchema | None = None

    def encode(self, values: Any) -> Any:
        """An array of structs as one of bytes, null for null. Raises QueryFailed for a value that does not fit."""
        schema = self._schema = self._schema or self._fetched()
        unknown = sorted({each.name for each in values.type} - {each.name for each in schema.type})
        if unknown:
            raise QueryFailed(f"schema {schema.id} has no field {unknown[0]}, which the rows have in value")
        frame = bytes([MAGIC]) + schema.id.to_bytes(FRAME - 1)
        return pa.array(
            [None if each is None else self._bytes(each, schema, frame) for each in _documents(values)], pa.binary()
        )

    def _fetched(self) -> AvroSchema:
        registry = self._encoding.registry
        if self._encoding.schema_id is not None:
            return avro_schema(registry, self._encoding.schema_id)
        return parsed_schema(registry, latest_schema(registry, self._encoding.subject))

    @staticmethod
    def _bytes(document: Any, schema: AvroSchema, frame: bytes) -> bytes:
        out = BytesIO()
        out.write(frame)
        try:
            fastavro.schemaless_writer(out, schema.logical, document, strict_allow_default=True)
        except (AttributeError, ValueError, TypeError, KeyError, OverflowError) as wrong:
            raise QueryFailed(f"a row does not match schema {schema.id}: {' '.join(str(wrong).split())}") from None
        return out.getvalue()


def _documents(values: Any) -> list[Any]:
    plain = values.combine_chunks() if hasattr(values, "combine_chunks") else values
    found: list[Any] = plain.to_pylist(maps_as_pydicts="strict")
    return found
