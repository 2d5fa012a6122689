"""What the tasks of a query share: its options, and which columns it gives. Spark sends copies of it to them.

The driver imports this, but nothing that reads records: that would cost each query a third of its start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from moldau.spark.cluster import QueryFailed
from moldau.spark.options import ReadOptions
from moldau.spark.source.plan import Task

if TYPE_CHECKING:
    from moldau.spark.source.decode import Decoder


@dataclass(frozen=True, slots=True)
class RowReader:
    """With a decoder values become the columns of the user's schema; without one records have Kafka's columns."""

    options: ReadOptions
    decoder: "Decoder | None"

    def rows(self, task: Task) -> Iterator[Any]:
        """Arrow record batches of these columns."""
        from moldau.spark.source.task import read_task

        batches = read_task(self.options, task)
        return batches if self.decoder is None else self._decoded(self.decoder, batches)

    def _decoded(self, decoder: "Decoder", batches: Iterator[Any]) -> Iterator[Any]:
        """What does not fit is delivered to its topic before the task is done, or stops it."""
        from moldau.spark.source.dead_letters import reject_handler

        with reject_handler(self.options.connection, self.options.dead_letters) as misfits:
            for batch in batches:
                fitting, rejected = decoder.decode(batch)
                misfits.take(batch, rejected)
                if fitting.num_rows:
                    yield fitting


def row_reader(options: ReadOptions, schema: StructType, columns: str) -> RowReader:
    """`schema` is what Spark expects, `columns` are Kafka's, which cannot be others unless values are decoded."""
    if options.decode is not None:
        from moldau.spark.source.decode import Decoder

        return RowReader(options, Decoder(schema))
    expected = columns.replace(" ", "")
    if "".join(f",{field.name}{field.dataType.simpleString()}" for field in schema)[1:] != expected:
        remedy = 'leave out .schema(...), or add option("decode", "json")'
        raise QueryFailed(f"without decode the columns are always these: {columns}; {remedy}")
    return RowReader(options, None)
