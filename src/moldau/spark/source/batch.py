"""Batch queries: `spark.read.format("moldau")`. Knows where to start and end, and leaves the reading to tasks."""

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.client.direct.metadata import Place
from moldau.spark.link import QueryFailed
from moldau.spark.source.lookup import Lookup
from moldau.spark.source.loss import Loss
from moldau.spark.source.plan import Range, Task, known_cores, split
from moldau.spark.source.reading import Reading


class BatchReader(DataSourceReader):
    """Spark sends copies of it to tasks: it has options and nothing that is open."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._options = reading.options

    def partitions(self) -> list[InputPartition]:
        with closing(Lookup(self._options)) as lookup:
            found = lookup.partitions()
            ranges = self._ranges(lookup, found.places)
        pieces = split(
            ranges,
            cores=known_cores(os.environ),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [InputPartition(Task(piece, found.topic_ids.get(piece.topic))) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:  # what Spark makes of an empty list
            return iter(())
        return self._reading.rows(partition.value)

    def _ranges(self, lookup: Lookup, places: tuple[Place, ...]) -> list[Range]:
        assert self._options.end is not None, "a batch query has an end"
        earliest = lookup.earliest(places)  # asked for first, and the latest last: what moves meanwhile is no loss
        starts = lookup.resolve(self._options.start, places, "starting")
        ends = lookup.resolve(self._options.end, places, "ending")
        latest = lookup.latest(places)
        loss = Loss(self._options.fail_on_data_loss)
        return [
            _checked(Range(*place, starts[place], ends[place]), earliest[place], latest[place], loss)
            for place in places
            if all(place in found for found in (starts, ends, earliest, latest))
        ]


def _checked(wanted: Range, earliest: int, latest: int, loss: Loss) -> Range:
    """The part of a range that is there."""
    if wanted.start > wanted.end:
        name = f"{wanted.topic}-{wanted.partition}"
        raise QueryFailed(f"the query would end in {name} at {wanted.end}, before its start at {wanted.start}")
    if wanted.start < earliest:
        loss.report(f"{wanted._replace(end=min(earliest, wanted.end))} is gone: the partition begins at {earliest}")
        wanted = wanted._replace(start=earliest)
    if wanted.end > latest:
        loss.report(f"{wanted._replace(start=max(latest, wanted.start))} is not there: the partition ends at {latest}")
        wanted = wanted._replace(end=latest)
    return wanted
