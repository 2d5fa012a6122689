"""What a Python worker does with a task's rows: writes them at least once, or hands them to exactly_once.py.

Heavy to import, and imported where rows are: Spark makes writers in other processes, for each batch.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from pyspark import TaskContext

from moldau.client.direct.produce import Producer
from moldau.spark.cluster import QueryFailed, open_cluster
from moldau.spark.options import WriteOptions
from moldau.spark.sink.control_offsets import ControlOffsets
from moldau.spark.sink.exactly_once import Task, write_exactly_once
from moldau.spark.sink.foreach_batch import NO_SPECULATION, NO_STREAM, QUERY_ID, SPECULATION
from moldau.spark.sink.layout import Layout
from moldau.spark.sink.record_writer import RecordWriter, unwrap
from moldau.spark.sink.rows import rows_of
from moldau.wire.compression import Codec

ONLY_SINK = "sink"  # the name of a stream's sink: it has no other
BATCH_ID, RUN_ID = "streaming.sql.batchId", "spark.jobGroup.id"  # what Spark tells the tasks of a stream


def write(
    batches: Iterator[Any],
    options: WriteOptions,
    layout: Layout,
    query: str | None = None,
    batch: str | None = None,
    *,
    every_batch: bool = False,
) -> tuple[int, Task | None]:
    """How many rows this task has written, and which task it is if that matters."""
    if not options.exactly_once:
        return write_at_least_once(batches, options, layout), None
    task = this_task(options, query, batch, every_batch=every_batch)
    return write_exactly_once(batches, options, layout, task), task


def write_at_least_once(batches: Iterator[Any], options: WriteOptions, layout: Layout) -> int:
    """A task: returns when every row is acknowledged. One that fails or is repeated may leave rows twice."""
    with (
        open_cluster(options.connection, timeout_ms=options.delivery_timeout_ms) as cluster,
        Producer(
            cluster,
            codec=Codec.named(options.compression),
            acks=options.acks,
            idempotent=options.idempotent,
            batch_bytes=options.batch_bytes,
            request_bytes=options.request_bytes,
            delivery_timeout_s=options.delivery_timeout_ms / 1000,
        ) as producer,
    ):
        unwrap(producer.start())
        output = RecordWriter(cluster, producer, options)
        for batch in batches:
            output.write(rows_of(batch, layout))
        output.flush()
        return output.rows


def this_task(options: WriteOptions, query: str | None, batch: str | None, *, every_batch: bool) -> Task:
    """Which task this Python worker runs, by what Spark or the sink for foreachBatch says."""
    context = TaskContext.get()
    assert context is not None, "a task runs this"
    query = query or context.getLocalProperty(QUERY_ID)
    batch = batch or context.getLocalProperty(BATCH_ID)
    if (context.getLocalProperty(SPECULATION) or "").lower() == "true":
        raise QueryFailed(NO_SPECULATION)
    if not query or not batch:
        raise QueryFailed(NO_STREAM)
    assert options.control_topic is not None, "checked with the options"
    control = ControlOffsets(query, options.sink_name or ONLY_SINK, options.control_topic)
    run = _run(context.getLocalProperty(RUN_ID))
    return Task(control, context.partitionId(), int(batch), run, every_batch)


def _run(group: str | None) -> str:
    """Streams run their jobs in a group that is named for the start of the query, unless somebody else names it."""
    try:
        return str(UUID(group or ""))
    except ValueError:
        return ""
