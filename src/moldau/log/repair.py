"""How far a log's bytes are what was written: for a replica that can get the rest from its leader. Reads all of it."""

from pathlib import Path

from moldau.log.log import Log
from moldau.log.recovery import check
from moldau.log.segment import LOG


def sound_to(log: Log) -> int:
    """The offset before which every batch is whole and right; the log's end if all are. For a thread.

    Nothing may be appended meanwhile.
    """
    for segment in list(log.segments.each):
        checked = check(Path(segment.stem + LOG), segment.base, log.config, synced=0)
        if checked.size < segment.size:
            return max(checked.end_offset, segment.base)
    return log.end_offset
