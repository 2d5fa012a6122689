"""Checks of a replica's log for corruption and gaps, and truncation before them: the leader has the rest."""

import logging
from collections.abc import Callable
from pathlib import Path

from moldau.log.files import is_transient
from moldau.log.log import Log
from moldau.log.recovery import check
from moldau.log.segment import LOG, CorruptLogError, Segment

logger = logging.getLogger("moldau.log")


def corruption_check(log: Log, offset: int) -> Callable[[], bool]:
    """A check of the segment with `offset` for corruption, to be run in a thread. Appends may go on meanwhile."""
    segment = log.segments.each[log.segments.holding(offset)]
    size = segment.size
    return lambda: _corrupt(log, segment, size)


def valid_to(log: Log) -> int:
    """The base offset of the first corrupt segment; the log end offset if there is none.

    Reads the whole log, in a thread; nothing may be appended meanwhile.
    """
    for segment in list(log.segments.each):
        if _corrupt(log, segment, segment.size):
            return segment.base
    return log.end_offset


def _corrupt(log: Log, segment: Segment, size: int) -> bool:
    """An unreadable segment counts as corrupt; a transient error is raised. Deleted segments do not count."""
    try:
        return check(Path(segment.stem + LOG), segment.base, log.config, synced=0).size < size and not segment.gone
    except (OSError, CorruptLogError) as problem:
        if segment.gone:
            return False
        if isinstance(problem, OSError) and is_transient(problem):
            raise
        logger.error("%s: segment %d cannot be read; treating it as corrupt: %s", log.name, segment.base, problem)
        return True


def drop_segments(log: Log, base: int, now: int) -> list[Path]:
    """Delete the segment at `base` and all later ones without reading them."""
    if base <= log.segments.bases[0]:
        return log.truncate_fully_and_start_at(log.start_offset, now)
    return log.segments.drop_behind(base - 1) + log.truncate_to(base, now)


def contiguous_to(log: Log) -> int:
    """The offset before which no record is missing. Reads the records that were not flushed before the power cut.

    The system may have written a segment but not the one before it, or a truncated segment may be back behind records
    of a later leader. A sole replica keeps the rest; any other one would count as in sync with records missing.
    """
    end = max(log.recovery_point, log.start_offset)
    for header in log.read_headers(end):
        if header.base_offset > end or header.leader_epoch < log.epochs.epoch_of(header.base_offset):
            break
        end = header.last_offset + 1
    return end


def truncate_before_gap(log: Log, now: int) -> list[Path]:
    """Truncate before missing records; files to remove. The leader has these and the rest."""
    whole = contiguous_to(log)
    if whole == log.end_offset:
        return []
    logger.warning(
        "%s: after a machine crash records are missing at offset %d; removing offsets %d to %d. The replica copies "
        "them from its leader.",
        log.name,
        whole,
        whole,
        log.end_offset - 1,
    )
    return log.truncate_to(whole, now)
