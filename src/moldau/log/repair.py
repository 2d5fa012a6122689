"""How far a log is what was written: for a replica that can get the rest from its leader."""

from pathlib import Path

from moldau.log.log import Log
from moldau.log.recovery import check
from moldau.log.segment import LOG


def sound_to(log: Log) -> int:
    """The offset before which every batch is whole and right; the log's end if all are. For a thread: reads all.

    Nothing may be appended meanwhile.
    """
    for segment in list(log.segments.each):
        checked = check(Path(segment.stem + LOG), segment.base, log.config, synced=0)
        if checked.size < segment.size:
            return max(checked.end_offset, segment.base)
    return log.end_offset


def unbroken_to(log: Log) -> int:
    """The offset before which nothing is missing. Reads what was not synced when the machine lost its power.

    The system may have written a segment and not the one before it: the end of the log then says nothing of what is in
    it. Whoever has no other copy is glad of what is left; a replica that counted as complete with it would be trusted
    with records that it does not have.
    """
    end = max(log.recovery_point, log.start_offset)
    for header in log.read_headers(end):
        if header.base_offset > end:
            break
        end = header.last_offset + 1
    return end
