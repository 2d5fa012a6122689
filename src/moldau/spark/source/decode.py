"""Decoder: JSON values to typed columns, in bulk, for `option("decode", "json")` with a schema.

`documents` defines which documents match. `bulk` reads all documents of a batch at once and names those that it cannot
vouch for; they are read one at a time. If it is stopped by one, that one is taken out and the batch goes on in shorter
chunks. So one bad record costs little, and the result does not depend on neighbouring records.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from moldau.spark.cluster import QueryFailed
from moldau.spark.source.bulk import Stopped, bulk_parser, doubtful_documents
from moldau.spark.source.documents import SchemaMismatch, UnsupportedColumn, document_reader
from moldau.spark.value_formats import Rejected

FEW: Final = 64  # documents: a call of the parser costs as much as reading this many one by one, or less
CHUNK: Final = 1024  # documents of a batch that has stopped the parser once
PARTS: Final = 4  # into which a chunk is split if the parser does not say where it stopped


class Decoder:
    """Picklable. `schema` is the Arrow schema that Spark expects."""

    def __init__(self, columns: StructType) -> None:
        self._columns = columns
        try:
            self.schema: pa.Schema = to_arrow_schema(columns, timezone="UTC")
            self._read_document = document_reader(self.schema)
        except UnsupportedColumn as unknown:
            raise QueryFailed(f"decode=json cannot fill the schema: {unknown}") from None
        self._bulk = bulk_parser(self.schema)

    def __reduce__(self) -> tuple[type["Decoder"], tuple[StructType]]:
        return Decoder, (self._columns,)

    def decode(self, batch: Any) -> tuple[Any, list[Rejected]]:
        """Decode the column `value` of a RecordBatch: the matching rows in the schema, and the rejected ones."""
        values = batch.column("value")
        if self._bulk is None or len(values) <= FEW:
            found = self._one_by_one(values, range(len(values)))
            return found.rows, found.rejected
        pieces, singles = self._in_bulk(values)
        if singles:
            singles.sort()
            pieces.append(self._one_by_one(values.take(singles), singles))
        return _merged(pieces, self.schema)

    def _in_bulk(self, values: Any) -> tuple[list["_Piece"], list[int]]:
        """Rows that the parser vouches for, and the numbers of the others."""
        assert self._bulk is not None
        pieces: list[_Piece] = []
        there, singles = _split(values)
        left = [there]
        while left:
            numbers = left.pop()
            if len(numbers) <= FEW:
                singles += numbers
                continue
            some = values if len(numbers) == len(values) else values.take(pa.array(numbers, pa.int32()))
            try:
                found = self._bulk.parse(some)
            except Stopped as stopped:
                left += _retries(numbers, stopped, singles)[::-1]
            else:
                singles += [numbers[each] for each in found.doubtful]
                pieces.append(_Piece(found.rows, _without(numbers, found.doubtful), []))
        return pieces, singles

    def _one_by_one(self, values: Any, numbers: Sequence[int]) -> "_Piece":
        rows, fitting, rejected = [], [], []
        for number, value in zip(numbers, values.to_pylist(), strict=True):
            try:
                rows.append(self._read_document(value))
                fitting.append(number)
            except SchemaMismatch as bad:
                rejected.append(Rejected(number, str(bad)))
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in self.schema]
        return _Piece(pa.record_batch(columns, schema=self.schema), fitting, rejected)


class _Piece(NamedTuple):
    """Matching rows with their numbers in the batch, and rejected ones."""

    rows: Any
    numbers: Sequence[int]
    rejected: list[Rejected]


def _split(values: Any) -> tuple[Sequence[int], list[int]]:
    """Numbers of the rows for the parser and of the others: tombstones, and what is surely no JSON object."""
    if values.null_count:
        there = pc.indices_nonzero(values.is_valid()).to_pylist()
        flags = doubtful_documents(values.drop_null())
    else:
        there = range(len(values))
        flags = doubtful_documents(values)
    singles = [there[each] for each in pc.indices_nonzero(flags).to_pylist()]
    if values.null_count:
        singles += pc.indices_nonzero(values.is_null()).to_pylist()
    return _without(range(len(values)), singles), singles


def _retries(numbers: Sequence[int], stopped: Stopped, singles: list[int]) -> list[Sequence[int]]:
    """What to give the parser next, in order; adds documents to be read one at a time."""
    if stopped.doubtful:
        singles += [numbers[each] for each in stopped.doubtful]
        return [_without(numbers, stopped.doubtful)]
    if stopped.at is None:
        size = min(CHUNK, -(-len(numbers) // PARTS))
        return _chunks(numbers, size)
    if stopped.at < FEW:  # close to the last one: a call for each would cost more than reading them
        singles += numbers[:FEW]
        return _chunks(numbers[FEW:], CHUNK)
    singles.append(numbers[stopped.at])
    return [*_chunks(numbers[: stopped.at], CHUNK), *_chunks(numbers[stopped.at + 1 :], CHUNK)]


def _chunks(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def _without(numbers: Sequence[int], positions: Sequence[int]) -> Sequence[int]:
    if not positions:
        return numbers
    gone = set(positions)
    return [number for position, number in enumerate(numbers) if position not in gone]


def _merged(pieces: list[_Piece], schema: pa.Schema) -> tuple[Any, list[Rejected]]:
    """All matching rows, in the order of the batch."""
    rejected = sorted(each for piece in pieces for each in piece.rejected)
    some = [piece for piece in pieces if len(piece.numbers)]
    if not some:
        return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema), rejected
    if len(some) == 1:
        return some[0].rows, rejected
    rows = pa.concat_batches([piece.rows for piece in some])
    numbers = [number for piece in some for number in piece.numbers]
    if any(before > after for before, after in pairwise(numbers)):
        rows = rows.take(pc.sort_indices(pa.array(numbers)))
    return rows, rejected
