"""RowReader: options and decoder of a query. Spark pickles it for tasks.

The driver imports this module, but none that reads records: that would take a third of a query's start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from moldau.spark.cluster import QueryFailed
from moldau.spark.options import HEADERS_NEED, ReadOptions
from moldau.spark.row_columns import has_record_columns, record_columns, spelled, unfilled
from moldau.spark.source.plan import ReadTask
from moldau.spark.value_formats import REGISTRY_FORMATS, ValueDecoder, value_decoder


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads Kafka's columns; with a decoder, the columns that it returns."""

    options: ReadOptions
    decoder: ValueDecoder | None

    def rows(self, task: ReadTask) -> Iterator[Any]:
        """Arrow RecordBatches of a task."""
        from moldau.spark.source.task import read_task

        batches = read_task(self.options, task)
        return batches if self.decoder is None else self._decoded(self.decoder, task, batches)

    def _decoded(self, decoder: ValueDecoder, task: ReadTask, batches: Iterator[Any]) -> Iterator[Any]:
        """Records that do not match go to the dead-letter topic before the task ends, or fail it."""
        from moldau.spark.source.dead_letters import reject_handler

        with reject_handler(self.options, task) as misfits:
            for batch in batches:
                fitting, rejected = decoder.decode(batch)
                misfits.take(batch, rejected)
                if fitting.num_rows:
                    yield fitting


def row_reader(options: ReadOptions, schema: StructType) -> RowReader:
    """`schema` is the one Spark expects; raises QueryFailed if the rows cannot have it."""
    if options.decode is None:
        columns = record_columns(headers=options.include_headers)
        if spelled((field.name, field.dataType.simpleString()) for field in schema) != columns.replace(" ", ""):
            remedy = 'leave out .schema(...), or add option("decode", "json")'
            raise QueryFailed(f"without decode the columns are: {columns}; {remedy}")
        return RowReader(options, None)
    whole = has_record_columns(schema, headers=options.include_headers)
    if options.value_schema is None and not (whole and options.decode in REGISTRY_FORMATS):
        problem = unfilled(schema) or (f"includeHeaders {HEADERS_NEED}" if options.include_headers else None)
        if problem is not None:
            raise QueryFailed(problem)
        return RowReader(options, value_decoder(options.decode, schema, options.registry))
    if not whole:
        columns = record_columns(headers=options.include_headers, value="struct of valueSchema")
        raise QueryFailed(f"with valueSchema the columns are: {columns}; leave out .schema(...)")
    from moldau.spark.source.record_rows import RecordDecoder

    return RowReader(options, RecordDecoder(options.decode, schema, options.registry))
