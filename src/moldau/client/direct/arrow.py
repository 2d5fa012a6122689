"""Columns of records as Arrow, in the schema of Spark's Kafka source. The one file here that imports pyarrow."""

from typing import Any

import pyarrow as pa

from moldau.client.direct.metadata import Place
from moldau.client.direct.records import Columns

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
FIELDS = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
)
SCHEMA = pa.schema(FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*FIELDS, pa.field("headers", pa.list_(HEADER))])


def record_batch(columns: Columns, place: Place, *, headers: bool = False) -> Any:
    """A pyarrow RecordBatch. Without headers a record has null for them, as Spark's own source has."""
    count = len(columns)
    arrays = [
        pa.array(columns.keys, pa.binary()),
        pa.array(columns.values, pa.binary()),
        pa.repeat(pa.scalar(place.topic, pa.string()), count),
        pa.repeat(pa.scalar(place.partition, pa.int32()), count),
        pa.array(columns.offsets, pa.int64()),
        pa.array(columns.timestamps, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
        pa.array(columns.timestamp_types, pa.int32()),
    ]
    if not headers:
        return pa.record_batch(arrays, schema=SCHEMA)
    rows = [[{"key": _text(name), "value": value} for name, value in row] if row else None for row in columns.headers]
    return pa.record_batch([*arrays, pa.array(rows, pa.list_(HEADER))], schema=SCHEMA_WITH_HEADERS)


def _text(name: str) -> str:
    """A header's name that is not UTF-8 loses the wrong bytes, as it does in Java."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
