"""How far a log is what was written, and how the rest goes: for a replica that gets it from its leader."""

import logging
from collections.abc import Callable
from pathlib import Path

from moldau.log.files import is_transient
from moldau.log.log import Log
from moldau.log.recovery import check
from moldau.log.segment import LOG, CorruptLogError, Segment

logger = logging.getLogger("moldau.log")


def corruption_check(log: Log, offset: int) -> Callable[[], bool]:
    """Whether the segment that holds `offset` is damaged, for a thread to find out. It may be appended to meanwhile."""
    segment = log.segments.each[log.segments.holding(offset)]
    size = segment.size
    return lambda: _damaged(log, segment, size)


def valid_to(log: Log) -> int:
    """Where the first segment begins that is not whole and right; the log's end if all are. For a thread: reads all.

    Nothing may be appended meanwhile.
    """
    for segment in list(log.segments.each):
        if _damaged(log, segment, segment.size):
            return segment.base
    return log.end_offset


def _damaged(log: Log, segment: Segment, size: int) -> bool:
    """What cannot be read is as good as damaged, unless it can be later, which is an OSError.

    What has left the log meanwhile is of no concern.
    """
    try:
        return check(Path(segment.stem + LOG), segment.base, log.config, synced=0).size < size and not segment.gone
    except (OSError, CorruptLogError) as problem:
        if segment.gone:
            return False
        if isinstance(problem, OSError) and is_transient(problem):
            raise
        logger.error("%s: segment %d cannot be read: %s", log.name, segment.base, problem)
        return True


def drop_segments(log: Log, base: int, now: int) -> list[Path]:
    """Drops the segment that begins at `base` and those behind it, unread: damaged files are not believed."""
    if base <= log.segments.bases[0]:
        return log.truncate_fully_and_start_at(log.start_offset, now)
    return log.segments.drop_behind(base - 1) + log.truncate_to(base, now)


def contiguous_to(log: Log) -> int:
    """The offset before which nothing is missing. Reads what was not synced when the machine lost its power.

    The system may have written a segment and not the one before it: the end of the log then says nothing of what is in
    it. Or a segment that was cut off is there again, behind records of a later leader. Whoever has no other copy is
    glad of what is left; a replica that counted as complete with it would be trusted with records that it does not
    have.
    """
    end = max(log.recovery_point, log.start_offset)
    for header in log.read_headers(end):
        if header.base_offset > end or header.leader_epoch < log.epochs.epoch_of(header.base_offset):
            break
        end = header.last_offset + 1
    return end


def truncate_before_gap(log: Log, now: int) -> list[Path]:
    """Drops what lies behind missing records; files to remove. The leader has both, the missing ones and the others."""
    whole = contiguous_to(log)
    if whole == log.end_offset:
        return []
    logger.warning("%s: records are missing at offset %d; it is copied anew from there", log.name, whole)
    return log.truncate_to(whole, now)
