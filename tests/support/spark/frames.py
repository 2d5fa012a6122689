"""Rows of our source's columns in a Spark session of this process, as the records that confluent-kafka would read."""

from collections.abc import Iterable
from typing import Any

from support.clients.confluent import Record


def as_records(rows: Iterable[Any]) -> list[Record]:
    """Rows that were collected, by topic, partition and offset. Headers that are null are none."""
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
