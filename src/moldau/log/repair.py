"""How far a log's bytes are what was written: for a replica that can get the rest from its leader. Reads all of it."""

import logging
from pathlib import Path

from moldau.log.log import Log
from moldau.log.recovery import check
from moldau.log.segment import LOG

logger = logging.getLogger("moldau.log")


def sound_to(log: Log) -> int:
    """Where the first segment begins that is not whole and right; the log's end if all are. For a thread.

    Nothing may be appended meanwhile.
    """
    for segment in list(log.segments.each):
        try:
            checked = check(Path(segment.stem + LOG), segment.base, log.config, synced=0)
        except OSError as problem:
            logger.error("%s: segment %d cannot be read: %s", log.name, segment.base, problem)
            return segment.base
        if checked.size < segment.size:
            return segment.base
    return log.end_offset
