"""The log to compact next, and how far: as in Kafka the dirtiest one, up to its first uncleanable segment."""

from collections.abc import Iterator
from typing import NamedTuple

from moldau.base.ids import Offset
from moldau.log.compaction.work import Work
from moldau.log.log import Log
from moldau.log.segment import CorruptLogError, Segment
from moldau.log.settings import MAX_LONG

LEAST_CHUNK = 65536  # bytes; a smaller log.cleaner.io.buffer.size would only be slower


class LogToClean(NamedTuple):
    """A log's clean and dirty part, as in Kafka's LogToClean."""

    first_dirty: Offset
    upper: Offset  # the first uncleanable offset; a segment begins here
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # max.compaction.lag.ms has passed for some record

    @property
    def ratio(self) -> float:
        whole = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / whole if whole else 0.0

    def due(self, least_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > least_ratio)


def measure(log: Log, stable: int, now: int) -> LogToClean:
    """The clean and dirty part of a log. `stable` is the last stable offset: records behind it are not compacted."""
    first_dirty = log.first_dirty_offset
    if not log.start_offset <= first_dirty <= log.end_offset:  # retention passed it, or the checkpoint is wrong
        first_dirty = log.start_offset
    segments = list(_finished(log))
    limit = min(stable, segments[-1].end if segments else first_dirty)
    dirty = [each for each in segments if each.end > first_dirty]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (each.segment.base for each in dirty if log.segments.max_timestamp(each.segment)[0] > now - lag_ms)
        limit = min(limit, next(young, limit))
    upper = max((each.end for each in segments if each.end <= limit), default=first_dirty)
    return LogToClean(
        first_dirty=first_dirty,
        upper=upper,
        clean_bytes=sum(each.segment.size for each in segments if each.segment.base < first_dirty),
        dirty_bytes=sum(each.segment.size for each in dirty if each.end <= upper),
        overdue=_overdue(log, dirty, now),
    )


class _Finished(NamedTuple):
    segment: Segment
    end: int


def _finished(log: Log) -> Iterator[_Finished]:
    """The segments with complete files, each with its end offset."""
    each, bases = log.segments.each, log.segments.bases
    for segment, end in zip(each, bases[1:], strict=False):
        if segment.live is not None:  # its indexes are not written yet
            break
        yield _Finished(segment, end)


def _overdue(log: Log, dirty: list[_Finished], now: int) -> bool:
    if log.config.max_compaction_lag_ms == MAX_LONG:
        return False
    begun = (each.segment.first_timestamp() or 0 for each in dirty)
    return any(0 < timestamp < now - log.config.max_compaction_lag_ms for timestamp in begun)


def plan(log: Log, to_clean: LogToClean, now: int, key_memory: int, chunk: int) -> Work:
    """The work for a cleaner process."""
    upper, config = to_clean.upper, log.config
    segments = [each.segment for each in _finished(log) if each.end <= upper]
    for segment in segments:
        if segment.aborts:
            _repair_aborted(log, segment)
    last_data, last_epochs = {}, {}
    for producer in log.producers:
        if not producer.batches:
            last_epochs[producer.producer_id] = producer.epoch
        elif producer.batches[-1].last_offset < upper:
            last_data[producer.producer_id] = producer.batches[-1].last_offset
    return Work(
        directory=log.directory,
        segments=[(segment.base, segment.size, segment.aborts) for segment in segments],
        first_dirty=to_clean.first_dirty,
        upper=upper,
        now=now,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        key_memory=key_memory,
        chunk=max(chunk, LEAST_CHUNK),
        last_data=last_data,
        last_epochs=last_epochs,
        aborted_later=[tuple(each) for each in log.aborted_transactions(upper, upper)],  # type: ignore[misc]
    )


def _repair_aborted(log: Log, segment: Segment) -> None:
    """Rebuild the transaction index if it is corrupt: the cleaner reads it."""
    try:
        segment.aborted_entries()
    except CorruptLogError:
        log.aborted_transactions(segment.base, segment.base + 1)
