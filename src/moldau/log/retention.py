"""Retention: which of a log's oldest segments have had their time, by age or by size. Knows nothing of compaction.

As in Kafka whole segments go, oldest first, and a segment is as old as its newest record. The active one goes too when
all of its records are too old, after a new and empty one was begun.
"""

from collections.abc import Iterable
from pathlib import Path

from moldau.log.files import is_transient
from moldau.log.log import Log
from moldau.log.segments import SegmentSummary
from moldau.log.settings import LogConfig


def delete_old_segments(log: Log, now: int, upper: int) -> list[Path]:
    """Takes segments out of the log whose time is over; files to remove later. Nothing from `upper` on goes."""
    if log.config.deletes:
        end = retained_from(log.segments.summaries(log.end_offset), log.size, log.config, now, upper)
        if end is not None:
            if end == log.end_offset and not _rolled(log, now):
                end = log.segments.bases[-1]
            return log.advance_start(end)
    return []


def _rolled(log: Log, now: int) -> bool:
    """Whether a new segment was begun. A full disk may have no room for one; what is old goes all the more."""
    try:
        log.roll(now)
    except OSError as problem:
        if not is_transient(problem):
            raise
        return False
    return True


def retained_from(segments: Iterable[SegmentSummary], size: int, config: LogConfig, now: int, upper: int) -> int | None:
    """Where the log begins once all is gone that may go; None if nothing may. `size` is that of the whole log.

    As in Kafka every number below 0 means for ever, or without limit.
    """
    excess = size - config.retention_bytes
    found, before = None, -1
    for segment in segments:
        too_old = config.retention_ms >= 0 and now - segment.newest > config.retention_ms
        too_much = config.retention_bytes >= 0 and excess >= segment.size
        nothing_yet = not segment.size and segment.end == before  # and not one that compaction emptied
        if nothing_yet or segment.end > upper or not (too_old or too_much):
            break
        excess -= segment.size
        found = before = segment.end
    return found
