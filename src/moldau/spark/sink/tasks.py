"""Write task in a Python worker: at least once here, exactly once in exactly_once.py.

Slow to import, so only tasks import it: Spark creates writers in other processes, for each batch.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from pyspark import TaskContext

from moldau.client.direct.produce import Producer
from moldau.spark.cluster import QueryFailed, open_cluster
from moldau.spark.options import WriteOptions
from moldau.spark.sink.control_offsets import ControlOffsets
from moldau.spark.sink.exactly_once import WriteTask, write_exactly_once
from moldau.spark.sink.foreach_batch import NO_SPECULATION, NO_STREAM, QUERY_ID, SPECULATION
from moldau.spark.sink.layout import Layout
from moldau.spark.sink.record_writer import RecordWriter, unwrap
from moldau.spark.sink.rows import rows_of
from moldau.spark.workers import freeze_imports
from moldau.wire.compression import Codec

ONLY_SINK = "sink"  # name of a stream's only sink
BATCH_ID, RUN_ID = "streaming.sql.batchId", "spark.jobGroup.id"  # local properties of a stream's tasks


def write(
    batches: Iterator[Any],
    options: WriteOptions,
    layout: Layout,
    query: str | None = None,
    batch: str | None = None,
    *,
    every_batch: bool = False,
) -> tuple[int, WriteTask | None]:
    """Number of rows written, and the task if exactly-once."""
    freeze_imports()
    if not options.exactly_once:
        return write_at_least_once(batches, options, layout), None
    task = this_task(options, query, batch, every_batch=every_batch)
    return write_exactly_once(batches, options, layout, task), task


def write_at_least_once(batches: Iterator[Any], options: WriteOptions, layout: Layout) -> int:
    """Write and wait for all acknowledgements. A repeated task may write duplicates."""
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
        encoder = options.encoder()
        for batch in batches:
            output.write(rows_of(batch, layout, encoder))
        output.flush()
        return output.rows


def this_task(options: WriteOptions, query: str | None, batch: str | None, *, every_batch: bool) -> WriteTask:
    """The task of this Python worker, from Spark's local properties or the foreachBatch sink."""
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
    return WriteTask(control, context.partitionId(), int(batch), run, every_batch)


def _run(group: str | None) -> str:
    """The run id of the query: a stream uses it as its job group, unless the user sets another."""
    try:
        return str(UUID(group or ""))
    except ValueError:
        return ""
