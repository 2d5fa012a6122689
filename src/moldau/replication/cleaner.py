"""Cleaner: the broker's end of a cleaner process, which does one piece of work at a time."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

from moldau.log.compaction.work import Cleaned, Tally, Work
from moldau.replication import child_process

PROGRAM = "moldau.replication.cleaner_main"
LONGEST_LINE = 1024 * 1024 * 64  # of a response, which lists the segments of a group


class CleanerFailed(Exception):
    """The disk refused a read or write, or the process ended. A retry may succeed."""


class LogUncleanable(Exception):
    """The log is corrupt. A retry would fail again."""


class Cleaner:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Use `Cleaner.start` instead."""
        self._process = process

    @classmethod
    async def start(cls) -> "Cleaner":
        return cls(await child_process.start(PROGRAM, limit=LONGEST_LINE))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def do(self, work: Work, bytes_per_second: float) -> AsyncIterator[Cleaned | Tally]:
        """Send the work to the process. Yields each group of segments when it is written, and the tally at the end."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        request = {"work": work.to_json(), "bytes_per_second": bytes_per_second}
        with suppress(ConnectionError):  # then there is no response either
            stdin.write(json.dumps(request).encode() + b"\n")
            await stdin.drain()
        while True:
            line = await stdout.readline()
            if not line.endswith(b"\n"):
                raise CleanerFailed("the cleaner process ended")
            [(kind, value)] = json.loads(line).items()
            if kind == "corrupt":
                raise LogUncleanable(value)
            if kind == "failed":
                raise CleanerFailed(value)
            if kind == "done":
                yield Tally(**value)
                return
            yield Cleaned(**value)

    async def stop(self) -> None:
        """Kill the process, even in the middle of its work."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
