"""Retention: deletes a log's oldest segments by age and size. Knows nothing of compaction.

As in Kafka whole segments are deleted, oldest first, and a segment is as old as its newest record. The active segment
is deleted too when all of its records are too old, after a roll.
"""

from collections.abc import Iterable
from pathlib import Path

from moldau.log.files import is_transient
from moldau.log.log import Log
from moldau.log.segments import SegmentSummary
from moldau.log.settings import LogConfig


def delete_old_segments(log: Log, now: int, upper: int) -> list[Path]:
    """Delete segments by retention, but nothing from `upper` on; files to remove later."""
    if log.config.deletes:
        end = retained_from(log.segments.summaries(log.end_offset), log.size, log.config, now, upper)
        if end is not None:
            if end == log.end_offset and not _rolled(log, now):
                end = log.segments.bases[-1]
            return log.advance_start(end)
    return []


def _rolled(log: Log, now: int) -> bool:
    """Whether a new segment was rolled. A full disk may have no room; older segments are deleted all the same."""
    try:
        log.roll(now)
    except OSError as problem:
        if not is_transient(problem):
            raise
        return False
    return True


def retained_from(segments: Iterable[SegmentSummary], size: int, config: LogConfig, now: int, upper: int) -> int | None:
    """The log start offset after retention; None if nothing is deleted. `size` is that of the whole log.

    As in Kafka a negative setting means no limit.
    """
    excess = size - config.retention_bytes
    found, before = None, -1
    for segment in segments:
        too_old = config.retention_ms >= 0 and now - segment.newest > config.retention_ms
        too_much = config.retention_bytes >= 0 and excess >= segment.size
        nothing_yet = not segment.size and segment.end == before  # unlike one that compaction emptied
        if nothing_yet or segment.end > upper or not (too_old or too_much):
            break
        excess -= segment.size
        found = before = segment.end
    return found
