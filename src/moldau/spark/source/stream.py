"""Streams: `spark.readStream.format("moldau")`. Decides where each batch ends; its tasks are journalled with that end.

Spark calls this in a process of its own, one for each query, and asks it twice about a batch: where it ends
(`latestOffset`), then which tasks it has (`partitions`). `latestOffset` is told where the last batch ended only after
that batch is finished, so the group's progress is committed there: `commit` is called a batch later, and not at all
for the last one.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from moldau.client.direct.metadata import Place
from moldau.spark.source import journal
from moldau.spark.source.group import Progress
from moldau.spark.source.journal import Mark
from moldau.spark.source.limits import Waiting, at_most
from moldau.spark.source.lookup import Lookup
from moldau.spark.source.loss import Loss
from moldau.spark.source.plan import Range, Task, known_cores, split
from moldau.spark.source.reading import Reading


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's half has a view of the cluster; copies for tasks have the options and nothing that is open."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._options = options = reading.options
        self._lookup = Lookup(options)
        self._progress = Progress(options.group_id)
        self._waiting = Waiting(options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms / 1000)
        self._target: Mark | None = None  # where a query with trigger(availableNow=True) ends
        self._latest: Mark | None = None  # as last seen

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamReader, (self._reading,)

    # ── the driver ──────────────────────────────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = self._lookup.partitions()
        starts = self._lookup.resolve(self._options.start, found.places, "starting")
        return journal.write(Mark(starts, found.topic_ids))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """PySpark has no limit that is both: of two the larger is told, and `latestOffset` knows the other."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends({})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; `start` itself if there is none."""
        finished = journal.read(start)
        self._progress.report(self._lookup.cluster, finished.offsets)
        self._latest = self._target or self._ends(finished.offsets)
        if (self._latest.offsets, self._latest.topic_ids) == (finished.offsets, finished.topic_ids):
            return start
        starts = self._starts(finished, self._latest)
        ends = {place: end for place, end in self._latest.offsets.items() if place in starts}
        if not isinstance(limit, ReadAllAvailable):
            available = sum(end - starts[place] for place, end in ends.items())
            if self._target is None and self._waiting.waits(available, time.monotonic()):
                return start
            if self._options.max_offsets_per_trigger is not None:
                ends = at_most(self._options.max_offsets_per_trigger, starts, ends)
        tasks = split(
            [Range(*place, starts[place], end) for place, end in ends.items()],
            cores=known_cores(os.environ),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return journal.write(Mark(ends, self._latest.topic_ids, tuple(tasks)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the progress that Spark shows."""
        return None if self._latest is None else journal.write(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:  # nothing new; the tasks in the journal are those of the batch before
            return []
        mark = journal.read(end)
        return [InputPartition(Task(piece, mark.topic_ids.get(piece.topic))) for piece in mark.tasks]

    def _ends(self, reached: Mapping[Place, int]) -> Mark:
        """A topic that is not there is for `_starts` to judge: to a query that has read none of it it is no loss.

        A new leader may take a moment to know what was committed before: ends before what is `reached` are not
        believed at once.
        """
        retries = self._options.offset_retries
        while True:
            found = self._lookup.partitions(missing=True)
            ends = self._lookup.latest(found.places)
            if retries == 0 or all(end >= reached.get(place, 0) for place, end in ends.items()):
                return Mark(ends, found.topic_ids)
            retries -= 1
            time.sleep(self._options.offset_retry_ms / 1000)

    def _starts(self, finished: Mark, latest: Mark) -> dict[Place, int]:
        """Where the next batch starts in each partition: where the last one ended, if that is still there."""
        loss = Loss(self._options.fail_on_data_loss)
        for place in sorted(finished.offsets.keys() - latest.offsets.keys()):
            loss.report(f"Partition {place.partition} of {place.topic} is gone")
        earliest = self._lookup.earliest(latest.offsets)
        starts = {}
        for place, end in latest.offsets.items():
            if place not in earliest:  # deleted a moment ago; the next batch will notice
                continue
            before = finished.offsets.get(place)
            what = _lost(place, before, earliest[place], end, _namesake(place.topic, finished, latest))
            if what is not None:
                loss.report(what)
            starts[place] = earliest[place] if what is not None or before is None else before
        return starts

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.rows(partition.value)


def _namesake(topic: str, finished: Mark, latest: Mark) -> bool:
    """Whether the topic is another one than before."""
    ids = {each.topic_ids[topic] for each in (finished, latest) if topic in each.topic_ids}
    return len(ids) > 1


def _lost(place: Place, before: int | None, earliest: int, end: int, namesake: bool) -> str | None:
    """What is missing of a partition between the last batch and the next."""
    name = f"{place.topic}-{place.partition}"
    if before is None:
        return f"The new partition {name} begins at {earliest}, not at 0" if earliest > 0 else None
    if namesake:
        return f"The topic {place.topic} was deleted and created anew"
    if end < before:
        return (
            f"{name} ends at {end}, before the offset {before} that the query has reached: the topic was deleted and "
            "created anew, or the query was told to start behind the end"
        )
    if before < earliest:
        return f"{Range(*place, before, earliest)} is gone: the partition begins at {earliest}"
    return None
