"""RowReader: options and decoder of a query. Spark pickles it for tasks.

The driver imports this module, but none that reads records: that would take a third of a query's start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from moldau.spark.cluster import QueryFailed
from moldau.spark.options import ReadOptions
from moldau.spark.source.plan import ReadTask

if TYPE_CHECKING:
    from moldau.spark.source.decode import Decoder


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads Kafka's columns or, with a decoder, the columns of the user's schema."""

    options: ReadOptions
    decoder: "Decoder | None"

    def rows(self, task: ReadTask) -> Iterator[Any]:
        """Arrow RecordBatches of a task."""
        from moldau.spark.source.task import read_task

        batches = read_task(self.options, task)
        return batches if self.decoder is None else self._decoded(self.decoder, batches)

    def _decoded(self, decoder: "Decoder", batches: Iterator[Any]) -> Iterator[Any]:
        """Records that do not match go to the dead-letter topic before the task ends, or fail it."""
        from moldau.spark.source.dead_letters import reject_handler

        with reject_handler(self.options.connection, self.options.dead_letters) as misfits:
            for batch in batches:
                fitting, rejected = decoder.decode(batch)
                misfits.take(batch, rejected)
                if fitting.num_rows:
                    yield fitting


def row_reader(options: ReadOptions, schema: StructType, columns: str) -> RowReader:
    """`schema` is the one Spark expects; without decode it must be Kafka's `columns`."""
    if options.decode is not None:
        from moldau.spark.source.decode import Decoder

        return RowReader(options, Decoder(schema))
    expected = columns.replace(" ", "")
    if "".join(f",{field.name}{field.dataType.simpleString()}" for field in schema)[1:] != expected:
        remedy = 'leave out .schema(...), or add option("decode", "json")'
        raise QueryFailed(f"without decode the columns are: {columns}; {remedy}")
    return RowReader(options, None)
