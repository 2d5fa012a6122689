"""BatchReader: `spark.read.format("moldau")`. Resolves start and end offsets and plans the tasks."""

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.base.ids import TopicPartition
from moldau.spark.cluster import QueryFailed
from moldau.spark.plain_errors import plain_errors
from moldau.spark.source.data_loss import DataLoss
from moldau.spark.source.offset_reader import OffsetReader
from moldau.spark.source.plan import OffsetRange, known_cores, read_tasks, split
from moldau.spark.source.row_reader import RowReader


class BatchReader(DataSourceReader):
    """Spark pickles it for tasks, so it holds options and no connections."""

    def __init__(self, row_reader: RowReader) -> None:
        self._row_reader = row_reader
        self._options = row_reader.options

    @plain_errors()
    def partitions(self) -> list[InputPartition]:
        with closing(OffsetReader(self._options)) as offset_reader:
            found = offset_reader.partitions()
            ranges = self._ranges(offset_reader, found.partitions)
        pieces = split(
            ranges,
            cores=known_cores(os.environ),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [InputPartition(task) for task in read_tasks(pieces, found.topic_ids)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is not None:  # Spark's placeholder for an empty list
            with plain_errors():
                yield from self._row_reader.rows(partition.value)

    def _ranges(self, offset_reader: OffsetReader, partitions: tuple[TopicPartition, ...]) -> list[OffsetRange]:
        assert self._options.end is not None, "a batch query has an end"
        earliest = offset_reader.earliest(partitions)  # first, and the latest last: changes in between are no data loss
        starts = offset_reader.resolve(self._options.start, partitions, "starting")
        ends = offset_reader.resolve(self._options.end, partitions, "ending")
        latest = offset_reader.latest(partitions)
        loss = DataLoss(self._options.fail_on_data_loss)
        return [
            _checked(OffsetRange(*tp, starts[tp], ends[tp]), earliest[tp], latest[tp], loss)
            for tp in partitions
            if all(tp in found for found in (starts, ends, earliest, latest))
        ]


def _checked(wanted: OffsetRange, earliest: int, latest: int, loss: DataLoss) -> OffsetRange:
    """The part of a range that exists."""
    if wanted.start > wanted.end:
        name = f"{wanted.topic}-{wanted.partition}"
        raise QueryFailed(f"the query would end in {name} at offset {wanted.end}, before its start at {wanted.start}")
    if wanted.start < earliest:
        loss.report(f"{wanted._replace(end=min(earliest, wanted.end))} was deleted: the log start offset is {earliest}")
        wanted = wanted._replace(start=earliest)
    if wanted.end > latest:
        loss.report(
            f"{wanted._replace(start=max(latest, wanted.start))} does not exist: the partition ends at {latest}"
        )
        wanted = wanted._replace(end=latest)
    return wanted
