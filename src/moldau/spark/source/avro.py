"""AvroDecoder: Avro values with the id of their schema in a registry to typed columns, for `option("decode", "avro")`.

A value is a zero byte, the id of its writer schema as four bytes, and the data. The reader schema is the version that
the columns were made from (Avro's schema resolution: defaults, aliases, wider types). Without one, the columns are the
user's, and fields go to them by name.
"""

import struct
from collections import defaultdict
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from moldau.spark.avro_schemas import AvroSchema, UnsupportedAvro, avro_schema, parsed_schema
from moldau.spark.schema_registry import SchemaNotFound, latest_schema
from moldau.spark.source.avro_columns import ColumnMismatch, column_of, misfitting_nulls
from moldau.spark.value_formats import FRAME, MAGIC, READER_ID, Registry, Rejected

NO_VALUE: Final = "no value"  # of a tombstone
# What fastavro raises for bytes that are not of the schema, and for schemas that do not resolve.
FOREIGN_BYTES: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
    struct.error,
    fastavro.read.SchemaResolutionError,
)
MAX_REASON: Final = 200  # characters of what fastavro says


def latest_columns(registry: Registry, subject: str) -> StructType:
    """Columns of the latest version of a subject; their metadata names it, so that tasks read with that version."""
    schema = parsed_schema(registry, latest_schema(registry, subject))
    columns = from_arrow_schema(pa.schema(list(schema.type)))
    for each in columns:
        each.metadata = {READER_ID: schema.id}
    return columns


class AvroDecoder:
    """Picklable. Fetches schemas when it meets them."""

    def __init__(self, columns: StructType, registry: Registry) -> None:
        self._columns = columns
        self._registry = registry
        self.schema: pa.Schema = to_arrow_schema(columns, timezone="UTC")
        self._reader_id: int | None = (columns[0].metadata or {}).get(READER_ID) if len(columns) else None
        self._met: dict[int, AvroSchema | str] = {}

    def __reduce__(self) -> tuple[type["AvroDecoder"], tuple[StructType, Registry]]:
        return AvroDecoder, (self._columns, self._registry)

    def decode(self, batch: Any) -> tuple[Any, list[Rejected]]:
        """Decode the column `value` of a RecordBatch: the matching rows in the schema, and the rejected ones."""
        values = batch.column("value")
        rejected: list[Rejected] = []
        groups = self._read(values, rejected)
        pieces: list[Any] = []
        numbers: list[int] = []
        for writer_id in sorted(groups):
            rows, at = groups[writer_id]
            written = self._known(self._reader_id or writer_id)
            assert isinstance(written, AvroSchema), "values of an unknown schema are rejected"
            some, kept = self._converted(rows, at, written, rejected)
            pieces += some
            numbers += kept
        rejected.sort()
        if not pieces:
            return pa.record_batch([pa.array([], each.type) for each in self.schema], schema=self.schema), rejected
        if len(pieces) == 1:
            return pieces[0], rejected
        return pa.concat_batches(pieces).take(pc.sort_indices(pa.array(numbers))), rejected

    def _read(self, values: Any, rejected: list[Rejected]) -> dict[int, tuple[list[Any], list[int]]]:
        """Values as Python objects, with their rows: by writer schema, or all together if there is a reader schema."""
        groups: dict[int, tuple[list[Any], list[int]]] = defaultdict(lambda: ([], []))
        reader = None if self._reader_id is None else self._reader_schema().plain
        for row, value in enumerate(values.to_pylist()):
            problem = frame_problem(value)
            if problem:
                rejected.append(Rejected(row, problem))
                continue
            writer_id = int.from_bytes(value[1:FRAME])
            writer = self._known(writer_id)
            if isinstance(writer, str):
                rejected.append(Rejected(row, writer))
                continue
            data = BytesIO(value)
            data.seek(FRAME)
            try:
                found = fastavro.schemaless_reader(data, writer.plain, reader)
            except FOREIGN_BYTES as wrong:
                rejected.append(Rejected(row, f"not Avro of schema {writer_id}: {_said(wrong)}"))
                continue
            if data.tell() != len(value):
                left = len(value) - data.tell()
                rejected.append(Rejected(row, f"not Avro of schema {writer_id}: {left} bytes are left over"))
                continue
            rows, numbers = groups[0 if reader is not None else writer_id]
            rows.append(found)
            numbers.append(row)
        return dict(groups)

    def _reader_schema(self) -> AvroSchema:
        assert self._reader_id is not None, "asked for only if there is one"
        return avro_schema(self._registry, self._reader_id)

    def _known(self, schema_id: int) -> AvroSchema | str:
        """The schema, or why values of it are rejected. Raises QueryFailed if the registry does not answer."""
        found = self._met.get(schema_id)
        if found is None:
            try:
                found = avro_schema(self._registry, schema_id)
            except SchemaNotFound:
                found = f"schema {schema_id} is not in the registry"
            except UnsupportedAvro as unsupported:
                found = str(unsupported)
            self._met[schema_id] = found
        return found

    def _converted(
        self, rows: list[Any], numbers: list[int], written: AvroSchema, rejected: list[Rejected]
    ) -> tuple[list[Any], list[int]]:
        """Batches in the schema of the columns. A row that does not fit is rejected; it is found one by one."""
        try:
            return [self._batch(rows, written)], numbers
        except (ColumnMismatch, pa.lib.ArrowException, OverflowError) as mismatch:
            if len(rows) == 1:
                rejected.append(Rejected(numbers[0], _said(mismatch)))
                return [], []
        pieces: list[Any] = []
        kept: list[int] = []
        for row, number in zip(rows, numbers, strict=True):
            piece, one = self._converted([row], [number], written, rejected)
            pieces += piece
            kept += one
        return pieces, kept

    def _batch(self, rows: list[Any], written: AvroSchema) -> Any:
        """Raises ColumnMismatch or an error of Arrow if a row does not fit."""
        values = pa.array(rows, written.type)
        columns = [column_of(values, field) for field in self.schema]
        for column, field in zip(columns, self.schema, strict=True):
            problem = misfitting_nulls(column, field)
            if problem:
                raise ColumnMismatch(problem)
        return pa.record_batch(columns, schema=self.schema)


def frame_problem(value: bytes | None) -> str | None:
    """What is wrong in front of the data."""
    if value is None:
        return NO_VALUE
    if len(value) < FRAME or value[0] != MAGIC:
        return "no id of a schema in front: a value of a registry begins with a zero byte and four bytes of the id"
    return None


def _said(wrong: Exception) -> str:
    text = " ".join(str(wrong).split()) or type(wrong).__name__
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"
