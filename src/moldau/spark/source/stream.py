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

from moldau.base.ids import TopicPartition
from moldau.spark.source import stream_offsets
from moldau.spark.source.data_loss import DataLoss
from moldau.spark.source.group_commits import GroupCommitter
from moldau.spark.source.offset_reader import OffsetReader
from moldau.spark.source.plan import OffsetRange, Task, known_cores, split
from moldau.spark.source.read_limits import TriggerDelay, limit_offsets
from moldau.spark.source.row_reader import RowReader
from moldau.spark.source.stream_offsets import StreamOffset


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's half has a view of the cluster; copies for tasks have the options and nothing that is open."""

    def __init__(self, row_reader: RowReader) -> None:
        self._row_reader = row_reader
        self._options = options = row_reader.options
        self._offset_reader = OffsetReader(options)
        self._progress = GroupCommitter(options.group_id)
        self._waiting = TriggerDelay(options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms / 1000)
        self._target: StreamOffset | None = None  # where a query with trigger(availableNow=True) ends
        self._latest: StreamOffset | None = None  # as last seen

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamReader, (self._row_reader,)

    # ── the driver ──────────────────────────────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = self._offset_reader.partitions()
        starts = self._offset_reader.resolve(self._options.start, found.partitions, "starting")
        return stream_offsets.write(StreamOffset(starts, found.topic_ids))

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
        finished = stream_offsets.read(start)
        self._progress.report(self._offset_reader.cluster, finished.offsets)
        self._latest = self._target or self._ends(finished.offsets)
        if (self._latest.offsets, self._latest.topic_ids) == (finished.offsets, finished.topic_ids):
            return start
        starts = self._starts(finished, self._latest)
        ends = {tp: end for tp, end in self._latest.offsets.items() if tp in starts}
        if not isinstance(limit, ReadAllAvailable):
            available = sum(end - starts[tp] for tp, end in ends.items())
            if self._target is None and self._waiting.waits(available, time.monotonic()):
                return start
            if self._options.max_offsets_per_trigger is not None:
                ends = limit_offsets(self._options.max_offsets_per_trigger, starts, ends)
        tasks = split(
            [OffsetRange(*tp, starts[tp], end) for tp, end in ends.items()],
            cores=known_cores(os.environ),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return stream_offsets.write(StreamOffset(ends, self._latest.topic_ids, tuple(tasks)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the progress that Spark shows."""
        return None if self._latest is None else stream_offsets.write(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:  # nothing new; the tasks in the journal are those of the batch before
            return []
        mark = stream_offsets.read(end)
        return [InputPartition(Task(piece, mark.topic_ids.get(piece.topic))) for piece in mark.tasks]

    def _ends(self, reached: Mapping[TopicPartition, int]) -> StreamOffset:
        """A topic that is not there is for `_starts` to judge: to a query that has read none of it it is no loss.

        A new leader may take a moment to know what was committed before: ends before what is `reached` are not
        believed at once.
        """
        retries = self._options.offset_retries
        while True:
            found = self._offset_reader.partitions(missing=True)
            ends = self._offset_reader.latest(found.partitions)
            if retries == 0 or all(end >= reached.get(tp, 0) for tp, end in ends.items()):
                return StreamOffset(ends, found.topic_ids)
            retries -= 1
            time.sleep(self._options.offset_retry_ms / 1000)

    def _starts(self, finished: StreamOffset, latest: StreamOffset) -> dict[TopicPartition, int]:
        """Where the next batch starts in each partition: where the last one ended, if that is still there."""
        loss = DataLoss(self._options.fail_on_data_loss)
        for tp in sorted(finished.offsets.keys() - latest.offsets.keys()):
            loss.report(f"Partition {tp.partition} of {tp.topic} is gone")
        earliest = self._offset_reader.earliest(latest.offsets)
        starts = {}
        for tp, end in latest.offsets.items():
            if tp not in earliest:  # deleted a moment ago; the next batch will notice
                continue
            before = finished.offsets.get(tp)
            what = _lost(tp, before, earliest[tp], end, _namesake(tp.topic, finished, latest))
            if what is not None:
                loss.report(what)
            starts[tp] = earliest[tp] if what is not None or before is None else before
        return starts

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._row_reader.rows(partition.value)


def _namesake(topic: str, finished: StreamOffset, latest: StreamOffset) -> bool:
    """Whether the topic is another one than before."""
    ids = {each.topic_ids[topic] for each in (finished, latest) if topic in each.topic_ids}
    return len(ids) > 1


def _lost(tp: TopicPartition, before: int | None, earliest: int, end: int, namesake: bool) -> str | None:
    """What is missing of a partition between the last batch and the next."""
    name = f"{tp.topic}-{tp.partition}"
    if before is None:
        return f"The new partition {name} begins at {earliest}, not at 0" if earliest > 0 else None
    if namesake:
        return f"The topic {tp.topic} was deleted and created anew"
    if end < before:
        return (
            f"{name} ends at {end}, before the offset {before} that the query has reached: the topic was deleted and "
            "created anew, or the query was told to start behind the end"
        )
    if before < earliest:
        return f"{OffsetRange(*tp, before, earliest)} is gone: the partition begins at {earliest}"
    return None
