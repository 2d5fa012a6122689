"""StreamReader: `spark.readStream.format("moldau")`. Decides where each micro-batch ends and plans its tasks.

Spark runs it in a Python process per query and calls it twice per batch: `latestOffset` returns the end with the tasks,
`partitions` reads the tasks from it. `latestOffset` gets the end of the last batch only after that batch is finished,
so it commits the group's progress: Spark calls `commit` a batch later, and not at all for the last batch.
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
from moldau.spark.plain_errors import plain_errors
from moldau.spark.source import stream_offsets
from moldau.spark.source.data_loss import DataLoss
from moldau.spark.source.group_commits import GroupCommitter
from moldau.spark.source.idle_wait import IdleWait
from moldau.spark.source.offset_reader import OffsetReader
from moldau.spark.source.plan import OffsetRange, known_cores, read_tasks, split
from moldau.spark.source.read_limits import TriggerDelay, limit_offsets
from moldau.spark.source.row_reader import RowReader
from moldau.spark.source.same_topics import check_same_topics, selects
from moldau.spark.source.stream_offsets import StreamOffset


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's instance has a client; pickled copies for tasks have the options only."""

    def __init__(self, row_reader: RowReader) -> None:
        self._row_reader = row_reader
        self._options = options = row_reader.options
        self._offset_reader = OffsetReader(options)
        self._progress = GroupCommitter(options.group_id)
        self._waiting = TriggerDelay(options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms / 1000)
        self._idle = IdleWait()
        self._target: StreamOffset | None = None  # end of a query with trigger(availableNow=True)
        self._latest: StreamOffset | None = None  # log ends, as last seen

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamReader, (self._row_reader,)

    # ── the driver ──────────────────────────────────────────────────────────────────────────────────────────────────

    @plain_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = self._offset_reader.partitions()
        starts = self._offset_reader.resolve(self._options.start, found.partitions, "starting")
        return stream_offsets.write(StreamOffset(starts, found.topic_ids))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """PySpark has no composite limit: return the maximum, and `latestOffset` applies the minimum."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends({})

    @plain_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself if there is none."""
        finished = self._read(start)
        self._progress.report(self._offset_reader.cluster, finished.offsets)
        if self._target is None and self._latest is not None:
            self._offset_reader.wait_past(self._latest.offsets, self._idle.seconds(time.monotonic()))
        self._latest = self._target or self._ends(finished.offsets)
        end = self._next_end(finished, self._latest, limit)
        self._idle.returns(time.monotonic(), empty=end is None)
        return start if end is None else stream_offsets.write(end)

    def _next_end(self, finished: StreamOffset, latest: StreamOffset, limit: ReadLimit) -> StreamOffset | None:
        if (latest.offsets, latest.topic_ids) == (finished.offsets, finished.topic_ids):
            return None
        starts = self._starts(finished, latest)
        ends = {tp: end for tp, end in latest.offsets.items() if tp in starts}
        if not isinstance(limit, ReadAllAvailable):
            available = sum(end - starts[tp] for tp, end in ends.items())
            if self._target is None and self._waiting.should_wait(available, time.monotonic()):
                return None
            if self._options.max_offsets_per_trigger is not None:
                ends = limit_offsets(self._options.max_offsets_per_trigger, starts, ends)
        tasks = split(
            [OffsetRange(*tp, starts[tp], end) for tp, end in ends.items()],
            cores=known_cores(os.environ),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return StreamOffset(ends, latest.topic_ids, tuple(tasks))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For Spark's StreamingQueryProgress."""
        return None if self._latest is None else stream_offsets.write(self._latest)

    @plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:  # no new batch; `end` has the tasks of the batch before
            return []
        mark = self._read(end)  # of a checkpoint, if a batch is repeated
        return [InputPartition(task) for task in read_tasks(sorted(mark.tasks), mark.topic_ids)]

    def _read(self, document: dict[str, Any]) -> StreamOffset:
        """An offset of this query; raises QueryFailed for one of another."""
        found = stream_offsets.read(document)
        check_same_topics(self._options.topics, found.offsets, lenient=not self._options.fail_on_data_loss)
        return found

    def _ends(self, reached: Mapping[TopicPartition, int]) -> StreamOffset:
        """The log ends. `_starts` reports missing topics: one that the query has not read is no data loss.

        A new leader's high watermark may lag for a moment: retry while an end is below the `reached` offset.
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
        """The start of the next batch per partition: the end of the last one, if it still exists."""
        loss = DataLoss(self._options.fail_on_data_loss)
        for tp in sorted(finished.offsets.keys() - latest.offsets.keys()):
            is_read = selects(self._options.topics, tp)
            loss.report(f"Partition {tp} was deleted" if is_read else f"The query no longer reads {tp}")
        earliest = self._offset_reader.earliest(latest.offsets)
        starts = {}
        for tp, end in latest.offsets.items():
            if tp not in earliest:  # just deleted; the next batch reports it
                continue
            before = finished.offsets.get(tp)
            what = _lost(tp, before, earliest[tp], end, _was_recreated(tp.topic, finished, latest))
            if what is not None:
                loss.report(what)
            starts[tp] = earliest[tp] if what is not None or before is None else before
        return starts

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with plain_errors():
            yield from self._row_reader.rows(partition.value)


def _was_recreated(topic: str, finished: StreamOffset, latest: StreamOffset) -> bool:
    """Tell whether the topic was recreated since the last batch."""
    ids = {each.topic_ids[topic] for each in (finished, latest) if topic in each.topic_ids}
    return len(ids) > 1


def _lost(tp: TopicPartition, before: int | None, earliest: int, end: int, recreated: bool) -> str | None:
    """The data loss of a partition between the last batch and the next, or None."""
    name = f"{tp.topic}-{tp.partition}"
    if before is None:
        return f"The log start offset of the new partition {name} is {earliest}, not 0" if earliest > 0 else None
    if recreated:
        return f"The topic {tp.topic} was deleted and recreated"
    if end < before:
        return (
            f"{name} ends at {end}, before the offset {before} of the query: the topic was deleted and recreated, or "
            "the query was told to start after the end"
        )
    if before < earliest:
        return f"{OffsetRange(*tp, before, earliest)} was deleted: the log start offset is {earliest}"
    return None
