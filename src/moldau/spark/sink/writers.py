"""BatchWriter and StreamWriter, which Spark calls. They check options and columns before any task runs.

Spark pickles them for Python workers, where each task calls `write`, and calls `commit` on the driver when all tasks of
a batch have returned. Fast to import: tasks.py does the work of a task.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.base.settings import SettingError, SettingsRefused
from moldau.spark.options import WriteOptions, write_options
from moldau.spark.plain_errors import plain_errors
from moldau.spark.sink.foreach_batch import BATCH, NAMELESS, QUERY
from moldau.spark.sink.layout import layout_of
from moldau.spark.workers import freeze_imports

if TYPE_CHECKING:
    from moldau.spark.sink.exactly_once import WriteTask


@dataclass
class Written(WriterCommitMessage):
    """Message of a task to the driver: number of rows, and the task if exactly-once."""

    rows: int
    task: "WriteTask | None" = None


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("moldau")`; inside foreachBatch it may get the query and batch."""

    def __init__(self, options: WriteOptions, schema: Any, query: str | None, batch: str | None) -> None:
        if options.exactly_once and not options.sink_name:
            raise SettingsRefused([SettingError("sinkName", NAMELESS)])
        self.options = options
        self.layout = layout_of(schema, options.topic, options.encoding.form if options.encoding else None)
        self.query = query
        self.batch = batch

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> Written:
        from moldau.spark.sink.tasks import write

        return Written(*write(iterator, self.options, self.layout, self.query, self.batch))

    @plain_errors()
    def commit(self, messages: Sequence[Any]) -> None:
        finish_batch(self.options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("moldau")`. Spark creates one per batch, and another to commit it."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self.options = options
        self.layout = layout_of(schema, options.topic, options.encoding.form if options.encoding else None)

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> Written:
        from moldau.spark.sink.tasks import write

        return Written(*write(iterator, self.options, self.layout, every_batch=True))

    @plain_errors()
    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        finish_batch(self.options, messages)


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> BatchWriter:
    """Raises SettingsRefused with all problems of options and columns."""
    if overwrite:
        sentence = "mode overwrite is not supported: records can only be appended to a topic. Use mode append"
        raise SettingsRefused([SettingError("mode", sentence)])
    given = {name.lower(): value for name, value in options.items()}
    query, batch = given.pop(QUERY, None), given.pop(BATCH, None)
    return BatchWriter(write_options(given), schema, query, batch)


def stream_writer(options: Mapping[str, str], schema: Any) -> StreamWriter:
    """Output mode complete also appends the rows of each batch, as Spark's Kafka sink does."""
    freeze_imports()  # Spark calls this twice per batch, in two processes
    return StreamWriter(write_options(options), schema)


def finish_batch(options: WriteOptions, messages: Sequence[Any]) -> None:
    """On the driver: all tasks have returned."""
    tasks = [message.task for message in messages if message is not None and message.task is not None]
    if tasks:
        from moldau.spark.sink.exactly_once import commit_batch

        first = tasks[0]
        commit_batch(options, first.control, first.batch, len(tasks), first.run)
