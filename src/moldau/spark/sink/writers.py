"""The writers that Spark calls: a batch's and a stream's. Check options and columns, before any task runs.

Writers travel to Python workers, where each task calls `write` with its rows; `commit` is called on the driver when all
tasks of a batch have returned. Light to import: what a task does is in tasks.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.base.settings import SettingError, SettingsRefused
from moldau.spark.options import WriteOptions, write_options
from moldau.spark.sink.foreach_batch import BATCH, NAMELESS, QUERY
from moldau.spark.sink.layout import layout_of

if TYPE_CHECKING:
    from moldau.spark.sink.exactly_once import Task


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver: how many rows it has written, and as which task, if that matters."""

    rows: int
    task: "Task | None" = None


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("moldau")`, also within foreachBatch, where it may be told which batch this is."""

    def __init__(self, options: WriteOptions, schema: Any, query: str | None, batch: str | None) -> None:
        if options.exactly_once and not options.sink_name:
            raise SettingsRefused([SettingError("sinkName", NAMELESS)])
        self.options = options
        self.layout = layout_of(schema, options.topic)
        self.query = query
        self.batch = batch

    def write(self, iterator: Iterator[Any]) -> Written:
        from moldau.spark.sink.tasks import write

        return Written(*write(iterator, self.options, self.layout, self.query, self.batch))

    def commit(self, messages: Sequence[Any]) -> None:
        finish_batch(self.options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("moldau")`. Made anew for every batch, and once more to commit it."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self.options = options
        self.layout = layout_of(schema, options.topic)

    def write(self, iterator: Iterator[Any]) -> Written:
        from moldau.spark.sink.tasks import write

        return Written(*write(iterator, self.options, self.layout, every_batch=True))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        finish_batch(self.options, messages)


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> BatchWriter:
    """Refuses whatever is wrong with options and columns."""
    if overwrite:
        sentence = "mode overwrite cannot be had: records are only ever added to a topic. Use mode append"
        raise SettingsRefused([SettingError("mode", sentence)])
    given = {name.lower(): value for name, value in options.items()}
    query, batch = given.pop(QUERY, None), given.pop(BATCH, None)
    return BatchWriter(write_options(given), schema, query, batch)


def stream_writer(options: Mapping[str, str], schema: Any) -> StreamWriter:
    """In output mode complete, too, each batch's rows are added to what is there, as by Spark's Kafka sink."""
    return StreamWriter(write_options(options), schema)


def finish_batch(options: WriteOptions, messages: Sequence[Any]) -> None:
    """On the driver: all tasks have returned."""
    tasks = [message.task for message in messages if message is not None and message.task is not None]
    if tasks:
        from moldau.spark.sink.exactly_once import finish

        first = tasks[0]
        finish(options, first.control, first.batch, len(tasks), first.run)
