"""Rows of our source in a Spark session of this process, as records comparable with confluent-kafka's."""

from collections.abc import Iterable
from typing import Any

from support.clients.confluent import Record


def as_records(rows: Iterable[Any]) -> list[Record]:
    """Collected rows, sorted by topic, partition and offset. Null headers count as none."""
    return sorted((_record(row) for row in rows), key=lambda each: (each.topic, each.partition, each.offset))


def _record(row: Any) -> Record:
    headers = (row["headers"] or ()) if "headers" in row else ()
    return Record(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        key=_data(row["key"]),
        value=_data(row["value"]),
        timestamp_ms=round(row["timestamp"].timestamp() * 1000),
        timestamp_type=row["timestampType"],
        headers=tuple((header["key"], _data(header["value"])) for header in headers),
    )


def _data(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
