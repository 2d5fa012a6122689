"""Records of a topic as Spark reads them, by a query or by its tasks alone, comparable with confluent-kafka's."""

from typing import Any

from support.clients.confluent import Record
from support.spark.frames import as_records


def records(frame: Any) -> list[Record]:
    """All rows of a frame, by topic, partition and offset."""
    return as_records(frame.collect())


def streamed(spark: Any, options: dict[str, str], checkpoint: str) -> list[list[Record]]:
    """The batches of a stream that reads everything available now."""
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


def without_spark(options: dict[str, str]) -> list[Record]:
    """The result of a batch query's tasks in this process: no JVM, so that many examples can be tried."""
    from moldau.spark.options import read_options
    from moldau.spark.source.batch import BatchReader
    from moldau.spark.source.row_reader import RowReader

    reader = BatchReader(RowReader(read_options(options, stream=False), None))
    return as_records(row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist())
