"""A cleaner process as the broker sees it: started, asked for one piece of work at a time, ended."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import moldau
from moldau.log.compaction.work import Cleaned, Tally, Work

PROGRAM = "moldau.replication.cleaner_main"
LONGEST_LINE = 1024 * 1024 * 64  # of an answer, which lists the segments of a group


class CleanerFailed(Exception):
    """The work was not done: the disk refused something, or the process is gone. Worth another try later."""


class LogUncleanable(Exception):
    """The log has something in it that cannot be read. Trying again would not help."""


class Cleaner:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Not for callers: `Cleaner.start`."""
        self._process = process

    @classmethod
    async def start(cls) -> "Cleaner":
        # The program is to be the same version as this one, wherever that was imported from.
        path = os.pathsep.join(filter(None, (str(Path(moldau.__file__).parent.parent), os.environ.get("PYTHONPATH"))))
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", PROGRAM),
                stdin=pipe,
                stdout=pipe,
                limit=LONGEST_LINE,
                env={**os.environ, "PYTHONPATH": path},
            )
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def do(self, work: Work, bytes_per_second: float) -> AsyncIterator[Cleaned | Tally]:
        """Has the work done, and tells of each group of segments as it is written; at the end of the whole."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        request = {"work": work.to_json(), "bytes_per_second": bytes_per_second}
        with suppress(ConnectionError):  # then the answer is missing as well
            stdin.write(json.dumps(request).encode() + b"\n")
            await stdin.drain()
        while True:
            line = await stdout.readline()
            if not line.endswith(b"\n"):
                raise CleanerFailed("the cleaner process ended")
            [(what, value)] = json.loads(line).items()
            if what == "corrupt":
                raise LogUncleanable(value)
            if what == "failed":
                raise CleanerFailed(value)
            if what == "done":
                yield Tally(**value)
                return
            yield Cleaned(**value)

    async def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
