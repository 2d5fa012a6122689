"""Log lines and errors about full log directories: one line at the start, few meanwhile, one at the end.

Every path that writes reports here: appends, copies from a leader, flushes, retention, checkpoints, opening a log.
"""

import errno
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moldau.base.errors import MAKE_ROOM

logger = logging.getLogger("moldau.replication")

REMIND_S = 60.0  # between two lines about a directory that is still full
QUIET_S = 5.0  # without a refused write before a directory counts as usable again
ENOUGH_BYTES = 1024 * 1024  # free bytes with which it does
OPEN_FILES = (errno.EMFILE, errno.ENFILE)
OPEN_FILES_REMEDY = "Raise the limit of open files (ulimit -n) and restart the broker."


def free_bytes(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0


def describe(name: str, directory: Path, problem: OSError, state: str = "read-only") -> str:
    """What happened to a topic-partition or file, what follows, and what to do: for the log and for clients."""
    if problem.errno in OPEN_FILES:
        return f"Too many open files: {name} is {state} until some are closed. {OPEN_FILES_REMEDY}"
    cause = "Disk quota exceeded" if problem.errno == errno.EDQUOT else "Disk full"
    left = free_bytes(directory)
    return f"{cause}: {name} is {state} until space is freed ({directory}, {left:,} bytes left). {MAKE_ROOM}"


@dataclass(slots=True)
class _Full:
    since: float
    told_at: float
    refused_at: float
    refused: int = 0
    refused_since_told: int = 0
    names: set[str] = field(default_factory=set)


class FullDirectories:
    """The log directories that refuse writes just now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, free: Callable[[Path], int] = free_bytes) -> None:
        self._clock = clock
        self._free = free
        self._full: dict[Path, _Full] = {}

    def refused(self, directory: Path, name: str, problem: OSError, state: str = "read-only") -> None:
        """A write to `name`, a topic-partition or a file, was refused."""
        now = self._clock()
        full = self._full.get(directory)
        if full is None:
            full = self._full[directory] = _Full(now, now, now)
            logger.error("%s", describe(name, directory, problem, state))
        full.refused += 1
        full.refused_since_told += 1
        full.refused_at = now
        full.names.add(name)
        if now - full.told_at >= REMIND_S:
            self._remind(directory, full, now)

    def look(self) -> None:
        """Say which directories are full no longer, and remind of those that are. Called about once a second."""
        now = self._clock()
        for directory, full in list(self._full.items()):
            if now - full.refused_at >= QUIET_S and self._free(directory) >= ENOUGH_BYTES:
                del self._full[directory]
                logger.warning(
                    "%s accepts writes again (%s bytes left). It refused %d writes to %s in %.0f s.",
                    directory,
                    f"{self._free(directory):,}",
                    full.refused,
                    _some(full.names),
                    full.refused_at - full.since,
                )
            elif now - full.told_at >= REMIND_S:
                self._remind(directory, full, now)

    def _remind(self, directory: Path, full: _Full, now: float) -> None:
        logger.error(
            "%s is still full after %.0f s (%s bytes left): %d writes to %s were refused in the last %.0f s. %s",
            directory,
            now - full.since,
            f"{self._free(directory):,}",
            full.refused_since_told,
            _some(full.names),
            now - full.told_at,
            MAKE_ROOM,
        )
        full.told_at = now
        full.refused_since_told = 0


def _some(names: set[str]) -> str:
    first = sorted(names)[:3]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
