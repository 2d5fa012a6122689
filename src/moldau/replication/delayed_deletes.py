"""Removes files that left a log after `file.delete.delay.ms`: reads under way have had time to finish by then."""

import asyncio
import logging
from concurrent.futures import Executor
from pathlib import Path

from moldau.log import files

logger = logging.getLogger("moldau.replication")


class DelayedDeletes:
    def __init__(self, disk: Executor) -> None:
        self._disk = disk
        self._timers: set[asyncio.TimerHandle] = set()

    def schedule(self, paths: list[Path], delay_ms: int) -> None:
        if not paths:
            return
        loop = asyncio.get_running_loop()

        def go() -> None:
            self._timers.discard(timer)
            loop.run_in_executor(self._disk, _remove, paths)

        timer = loop.call_later(delay_ms / 1000, go)
        self._timers.add(timer)

    def cancel(self) -> None:
        """Cancel the pending deletions; the next start removes the files."""
        for timer in self._timers:
            timer.cancel()


def _remove(paths: list[Path]) -> None:
    """In a thread."""
    try:
        files.remove(paths)
    except OSError as problem:
        logger.warning("Removing files of a deleted log failed; the next start removes them: %s", problem)
