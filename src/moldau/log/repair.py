"""How far a log's bytes are what was written, and how the rest goes: for a replica that gets it from its leader."""

import logging
from collections.abc import Callable
from pathlib import Path

from moldau.log.log import Log
from moldau.log.recovery import check
from moldau.log.segment import LOG, CorruptLogError, Segment

logger = logging.getLogger("moldau.log")


def doubted(log: Log, offset: int) -> Callable[[], bool]:
    """Whether the segment that holds `offset` is damaged, for a thread to find out. It may be appended to meanwhile."""
    segment = log.segments.each[log.segments.holding(offset)]
    size = segment.size
    return lambda: _damaged(log, segment, size)


def sound_to(log: Log) -> int:
    """Where the first segment begins that is not whole and right; the log's end if all are. For a thread.

    Nothing may be appended meanwhile.
    """
    for segment in list(log.segments.each):
        if _damaged(log, segment, segment.size):
            return segment.base
    return log.end_offset


def _damaged(log: Log, segment: Segment, size: int) -> bool:
    """What cannot be read is as good as damaged."""
    try:
        return check(Path(segment.stem + LOG), segment.base, log.config, synced=0).size < size
    except (OSError, CorruptLogError) as problem:
        logger.error("%s: segment %d cannot be read: %s", log.name, segment.base, problem)
        return True


def drop_segments(log: Log, base: int, now: int) -> list[Path]:
    """Drops the segment that begins at `base` and those behind it, unread: damaged files are not believed."""
    if base <= log.segments.bases[0]:
        return log.restart_at(log.start_offset, now)
    return log.segments.drop_behind(base - 1) + log.truncate_to(base, now)
