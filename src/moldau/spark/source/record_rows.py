"""RecordDecoder: rows with the record's columns, in which the value is a struct. For `valueSchema`,
and for schemas from a registry.

A record without a value (a tombstone) is a row with null as its value.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from moldau.spark.row_columns import VALUE
from moldau.spark.value_formats import Registry, Rejected, ValueDecoder, value_decoder


class RecordDecoder:
    """Picklable, as the decoder of the values is."""

    def __init__(self, form: str, schema: StructType, registry: Registry | None = None) -> None:
        fields = schema[VALUE].dataType
        assert isinstance(fields, StructType), "checked with the schema"
        self._names = schema.names
        self._values: ValueDecoder = value_decoder(form, fields, registry)

    def decode(self, batch: Any) -> tuple[Any, list[Rejected]]:
        """The rows of matching records, and the rejected records of the batch."""
        values = batch.column(VALUE)
        there = pc.indices_nonzero(values.is_valid()).to_pylist() if values.null_count else None
        found, rejected = self._values.decode(batch if there is None else batch.take(pa.array(there, pa.int64())))
        if there is not None:
            rejected = [Rejected(there[each.row], each.reason) for each in rejected]
        gone = {each.row for each in rejected}
        kept = [row for row in range(len(values)) if row not in gone] if gone else range(len(values))
        decoded = pa.StructArray.from_arrays(found.columns, fields=list(found.schema))
        if there is not None:
            decoded = decoded.take(_places(kept, set(there)))
        records = batch.take(pa.array(kept, pa.int64())) if gone else batch
        columns = [decoded if name == VALUE else records.column(name) for name in self._names]
        return pa.record_batch(columns, names=self._names), rejected


def _places(rows: Any, there: set[int]) -> Any:
    """Places of the rows' values among the decoded ones; null for a row without a value."""
    places: list[int | None] = []
    count = 0
    for row in rows:
        places.append(count if row in there else None)
        count += row in there
    return pa.array(places, pa.int64())
