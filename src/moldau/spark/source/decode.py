"""Decoder: JSON values to typed columns, in bulk, for `option("decode", "json")` with a schema.

`documents` defines which documents match. Arrow's parser reads all documents of a batch at once, into types for which
it is as strict as that definition; the rest is checked afterwards. If the parser fails or a value is uncertain, the
batch is split until the documents in question are few enough to be read one at a time. So one bad record costs little,
and the result does not depend on neighbouring records.

The parser reads a stream of documents and ignores where a record ends. A marker document with a random name before each
value proves that each value was one document. (It also keeps `null` from being first, which crashes pyarrow 26.)
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from moldau.spark.cluster import QueryFailed
from moldau.spark.source.columns import Uncertain, convert, parser_schema
from moldau.spark.source.documents import NO_VALUE, SchemaMismatch, UnsupportedColumn, document_reader

FEW: Final = 128  # documents: a call of the parser costs as much as reading this many one by one
PARTS: Final = 8  # into which an uncertain batch is split
MAX_BRACKETS: Final = 400  # more may exceed the nesting limit of Python's parser, which Arrow's does not have
OBJECT: Final = r"^[ \t\r\n]*\{"  # Arrow's parser accepts null as an object
NOT_JSON: Final = r"[\[:,]\s*-?(?:NaN|Inf)"  # Arrow's parser accepts these as numbers


class Rejected(NamedTuple):
    """A record that does not match: its row in the batch, and the reason."""

    row: int
    reason: str


class Decoder:
    """Picklable. `schema` is the Arrow schema that Spark expects."""

    def __init__(self, columns: StructType) -> None:
        self._columns = columns
        try:
            self.schema: pa.Schema = to_arrow_schema(columns, timezone="UTC")
            self._read_document = document_reader(self.schema)
        except UnsupportedColumn as unknown:
            raise QueryFailed(f"decode=json cannot fill the schema: {unknown}") from None
        self._plain = parser_schema(self.schema)

    def __reduce__(self) -> tuple[type["Decoder"], tuple[StructType]]:
        return Decoder, (self._columns,)

    def decode(self, batch: Any) -> tuple[Any, list[Rejected]]:
        """Decode the column `value` of a RecordBatch: the matching rows in the schema, and the rejected ones."""
        values = batch.column("value")
        rejected: list[Rejected] = []
        if not values.null_count:
            return self._decode(values, range(len(values)), rejected), rejected
        # Tombstones are rejected first: there may be many, and they must not slow down the others.
        there = values.is_valid().to_pylist()
        rejected += [Rejected(row, NO_VALUE) for row, is_there in enumerate(there) if not is_there]
        found = self._decode(values.drop_null(), [row for row, is_there in enumerate(there) if is_there], rejected)
        return found, sorted(rejected)

    def _decode(self, values: Any, rows: Sequence[int], rejected: list[Rejected]) -> Any:
        pieces: list[Any] = []
        left = [(0, len(values))]
        while left:
            first, count = left.pop()
            some = values.slice(first, count)
            if count <= FEW or self._plain is None:
                pieces.append(self._one_by_one(some, rows[first : first + count], rejected))
                continue
            found = self._at_once(some)
            if found is None:
                size = -(-count // PARTS)
                left += [(row, min(size, first + count - row)) for row in range(first, first + count, size)][::-1]
            else:
                pieces.append(found)
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _one_by_one(self, values: Any, numbers: Sequence[int], rejected: list[Rejected]) -> Any:
        rows = []
        for number, value in zip(numbers, values.to_pylist(), strict=True):
            try:
                rows.append(self._read_document(value))
            except SchemaMismatch as bad:
                rejected.append(Rejected(number, str(bad)))
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in self.schema]
        return pa.record_batch(columns, schema=self.schema)

    def _at_once(self, values: Any) -> Any | None:
        """None if the result could differ from `documents`."""
        if _doubtful(values):
            return None
        try:
            values.cast(pa.string())  # checks that they are UTF-8
            table = self._parse(values)
            if table is None:
                return None
            columns = [convert(table.column(field.name).combine_chunks(), field) for field in self.schema]
        except (Uncertain, pa.ArrowInvalid):
            return None
        return pa.record_batch(columns, schema=self.schema)

    def _parse(self, values: Any) -> Any | None:
        mark = secrets.token_hex(12)
        marker = pa.scalar(f'\n{{"{mark}":true}}\n'.encode())
        marked = pc.binary_join_element_wise(marker, values, b"")
        text = pc.binary_join(pa.ListArray.from_arrays([0, len(marked)], marked), b"")[0].as_buffer()
        assert self._plain is not None
        table = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._plain.append(pa.field(mark, pa.bool_())),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        marks = table.column(mark).combine_chunks().is_valid()
        return table.filter(pc.invert(marks)) if marks.equals(pa.array([True, False] * len(values))) else None


def _doubtful(values: Any) -> bool:
    if not pc.all(pc.match_substring_regex(values, OBJECT)).as_py():
        return True
    if pc.any(pc.match_substring_regex(values, NOT_JSON)).as_py():
        return True
    if pc.max(pc.binary_length(values)).as_py() <= 2 * MAX_BRACKETS:
        return False
    brackets = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{"))
    return bool(pc.max(brackets).as_py() > MAX_BRACKETS)
