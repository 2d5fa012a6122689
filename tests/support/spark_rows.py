"""Rows with Kafka's columns as the records of support.records, to compare Spark with confluent-kafka."""

from collections.abc import Iterable
from typing import Any

from support.records import Record


def records(frame: Any) -> list[Record]:
    """All rows of a frame, by topic, partition and offset. Without a column of headers there are none."""
    rows = frame.selectExpr("*", "unix_micros(timestamp) AS us").drop("timestamp").collect()
    return in_order(_record(row.asDict()) for row in rows)


def in_order(found: Iterable[Record]) -> list[Record]:
    return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))


def _record(row: dict[str, Any]) -> Record:
    assert row["us"] % 1000 == 0, f"Kafka has milliseconds, the row {row['us']} µs"
    return Record(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        key=_bytes(row["key"]),
        value=_bytes(row["value"]),
        timestamp_ms=row["us"] // 1000,
        timestamp_type=row["timestampType"],
        headers=tuple((each["key"], _bytes(each["value"])) for each in row.get("headers") or ()),
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def streamed(spark: Any, options: dict[str, str], checkpoint: str) -> list[list[Record]]:
    """What a stream gives until it has all that is there now, batch by batch."""
    batches: list[list[Record]] = []
    writer = (
        spark.readStream.format("moldau")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda frame, _: batches.append(records(frame)))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    writer.start().awaitTermination()
    return batches
