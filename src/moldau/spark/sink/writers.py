"""The writers that Spark calls: a batch's and a stream's. Check columns before a query runs, and run its tasks.

Writers travel to Python workers, where each task calls `write` with its rows; `commit` is called on the driver when all
tasks of a batch have returned. What a task does exactly once is in exactly_once.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.client.direct.produce import Producer
from moldau.spark.link import QueryFailed, open_cluster
from moldau.spark.options import WriteOptions, write_options
from moldau.spark.sink.output import Output, worked
from moldau.spark.sink.rows import Layout, layout_of, rows_of
from moldau.wire.compression import Codec


class Written(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("moldau")`, also within foreachBatch."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self.options = options
        self.layout = layout_of(schema, options.topic)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_at_least_once(iterator, self.options, self.layout)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("moldau")`. Made anew for every batch, and once more to commit it."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self.options = options
        self.layout = layout_of(schema, options.topic)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_at_least_once(iterator, self.options, self.layout)


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> BatchWriter:
    """Refuses whatever is wrong with options and columns."""
    if overwrite:
        raise QueryFailed("mode overwrite cannot be had: records are only ever added to a topic. Use mode append")
    return BatchWriter(write_options(options), schema)


def stream_writer(options: Mapping[str, str], schema: Any) -> StreamWriter:
    """In output mode complete, too, each batch's rows are added to what is there, as by Spark's Kafka sink."""
    return StreamWriter(write_options(options), schema)


def write_at_least_once(batches: Iterator[Any], options: WriteOptions, layout: Layout) -> Written:
    """A task: returns when every row is acknowledged. One that fails or is repeated may leave rows twice."""
    with (
        open_cluster(options.connection, timeout_ms=options.delivery_timeout_ms) as cluster,
        Producer(
            cluster,
            codec=Codec.named(options.compression),
            acks=options.acks or 1,  # 0 would leave lost rows unnoticed, at no gain: requests are pipelined
            idempotent=options.idempotent,
            batch_bytes=options.batch_bytes,
        ) as producer,
    ):
        worked(producer.start())
        output = Output(cluster, producer, options)
        for batch in batches:
            output.write(rows_of(batch, layout))
        output.flush()
        return Written(output.rows)
