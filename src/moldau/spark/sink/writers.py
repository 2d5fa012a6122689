"""The writers that Spark calls: a batch's and a stream's. Check columns before a query runs, and run its tasks.

Writers travel to Python workers, where each task calls `write` with its rows; `commit` is called on the driver when all
tasks of a batch have returned. What is done exactly once is in exactly_once.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.base.settings import SettingError, SettingsRefused
from moldau.client.direct.produce import Producer
from moldau.spark.link import QueryFailed, open_cluster
from moldau.spark.options import WriteOptions, write_options
from moldau.spark.sink.control import Control
from moldau.spark.sink.exactly_once import Task, finish, write_exactly_once
from moldau.spark.sink.foreach_batch import BATCH, NAMELESS, NO_STREAM, QUERY
from moldau.spark.sink.output import Output, worked
from moldau.spark.sink.rows import Layout, layout_of, rows_of
from moldau.wire.compression import Codec

ONLY_SINK = "sink"  # the name of a stream's sink: it has no other
# What Spark tells the tasks of a stream.
QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver: how many rows it has written, and as which task, if that matters."""

    rows: int
    task: Task | None = None


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("moldau")`, also within foreachBatch, where it may be told which batch this is."""

    def __init__(self, options: WriteOptions, schema: Any, query: str | None, batch: str | None) -> None:
        self.options = options
        self.layout = layout_of(schema, options.topic)
        self.query = query
        self.batch = batch
        if options.exactly_once and not options.sink_name:
            raise SettingsRefused([SettingError("sinkName", NAMELESS)])

    def write(self, iterator: Iterator[Any]) -> Written:
        if not self.options.exactly_once:
            return write_at_least_once(iterator, self.options, self.layout)
        task = this_task(self.options, self.query, self.batch, every_batch=False)
        return Written(write_exactly_once(iterator, self.options, self.layout, task), task)

    def commit(self, messages: Sequence[Any]) -> None:
        finish_batch(self.options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("moldau")`. Made anew for every batch, and once more to commit it."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self.options = options
        self.layout = layout_of(schema, options.topic)

    def write(self, iterator: Iterator[Any]) -> Written:
        if not self.options.exactly_once:
            return write_at_least_once(iterator, self.options, self.layout)
        task = this_task(self.options, None, None, every_batch=True)
        return Written(write_exactly_once(iterator, self.options, self.layout, task), task)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        finish_batch(self.options, messages)


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> BatchWriter:
    """Refuses whatever is wrong with options and columns."""
    if overwrite:
        raise QueryFailed("mode overwrite cannot be had: records are only ever added to a topic. Use mode append")
    given = {name.lower(): value for name, value in options.items()}
    query, batch = given.pop(QUERY, None), given.pop(BATCH, None)
    return BatchWriter(write_options(given), schema, query, batch)


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


def this_task(options: WriteOptions, query: str | None, batch: str | None, *, every_batch: bool) -> Task:
    """Which task this Python worker runs, by what Spark or the sink for foreachBatch says."""
    context = TaskContext.get()
    assert context is not None, "a task runs this"
    query = query or context.getLocalProperty(QUERY_ID)
    batch = batch or context.getLocalProperty(BATCH_ID)
    if not query or not batch:
        raise QueryFailed(NO_STREAM)
    assert options.control_topic is not None, "checked with the options"
    control = Control(query, options.sink_name or ONLY_SINK, options.control_topic)
    run = _run(context.getLocalProperty(RUN_ID))
    return Task(control, context.partitionId(), int(batch), run, every_batch)


def _run(group: str | None) -> str:
    """Streams run their jobs in a group that is named for the start of the query, unless somebody else names it."""
    try:
        return str(UUID(group or ""))
    except ValueError:
        return ""


def finish_batch(options: WriteOptions, messages: Sequence[Any]) -> None:
    """On the driver: all tasks have returned."""
    tasks = [message.task for message in messages if message is not None and message.task is not None]
    if tasks:
        first = tasks[0]
        finish(options, first.control, first.batch, len(tasks), first.run)
