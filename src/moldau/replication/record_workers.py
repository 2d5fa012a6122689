"""Record workers: a broker's pool of processes that look inside records. Knows no partition and no schema.

Processes are started as batches come, up to a number, and one batch is with a worker at a time; batches that wait are
those at the heads of their partitions' inspection queues. A worker that dies or takes too long costs the batch that it
had, and is replaced.
"""

import asyncio
import logging
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from moldau.replication import child_process
from moldau.replication.record_checks import Checked
from moldau.replication.record_rules import PackedRules
from moldau.replication.worker_frames import LENGTHS, READY, Request, pack, read_response

logger: Final = logging.getLogger("moldau.replication")

PROGRAM: Final = "moldau.replication.record_worker_main"
RULES_AT_MOST: Final = 64  # that a worker remembers
LARGEST_HEAD: Final = 64 * 1024 * 1024  # of a response: MAX_RECORD_ERRORS reasons are below
START_S: Final = 60.0  # for Python to start and import
GRACE_S: Final = 1.0  # the broker waits this much longer than the worker's own timer


class WorkerLost(Exception):
    """A worker died or took too long, or the pool is stopping; the text is the end of a sentence."""


class WorkerSettings(NamedTuple):
    processes: int
    timeout_s: float  # for the check of one batch


class RecordWorkers:
    def __init__(self, settings: Callable[[], WorkerSettings]) -> None:
        self._settings = settings
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._starting = 0
        self._freed = asyncio.Condition()
        self.stopped = False

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in (*self._idle, *self._busy)]

    async def check(self, rules: PackedRules, batch: bytes, partition: int) -> Checked:
        """What became of a batch; WorkerLost if nobody can say."""
        worker = await self._take()
        kept = False
        try:
            checked = await worker.check(rules, batch, partition)
            kept = not self.stopped
            return checked
        finally:
            self._busy.discard(worker)
            if kept:
                self._idle.append(worker)
            else:
                worker.kill()
            async with self._freed:
                self._freed.notify()

    async def _take(self) -> "_Worker":
        """An idle worker, a new one, or the next that is free."""
        settings = self._settings()
        async with self._freed:
            await self._freed.wait_for(
                lambda: self.stopped or self._idle or len(self._busy) + self._starting < settings.processes
            )
            if self.stopped:
                raise WorkerLost("the broker is stopping")
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    self._busy.add(worker)
                    return worker
            self._starting += 1
        try:
            worker = await _Worker.start(settings.timeout_s)
        except OSError as problem:
            raise WorkerLost(f"no process can be started: {problem.strerror or problem}") from None
        finally:
            self._starting -= 1
        self._busy.add(worker)
        return worker

    async def stop(self) -> None:
        """Kill all workers; what they were checking is lost, and told so."""
        self.stopped = True
        workers = [*self._idle, *self._busy]
        for worker in workers:
            worker.kill()
        async with self._freed:
            self._freed.notify_all()
        await asyncio.gather(*(worker.ended() for worker in workers))


class _Worker:
    def __init__(self, process: Process, timeout_s: float) -> None:
        self._process = process
        self._timeout_s = timeout_s
        self._known: set[str] = set()  # names of rules

    @classmethod
    async def start(cls, timeout_s: float) -> "_Worker":
        process = await child_process.start(PROGRAM, str(timeout_s))
        worker = cls(process, timeout_s)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(START_S):
                await process.stdout.readexactly(len(READY))
        except BaseException as problem:
            worker.kill()
            if isinstance(problem, TimeoutError | asyncio.IncompleteReadError):
                raise OSError("it ended, or was not ready in time") from None
            raise
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def check(self, rules: PackedRules, batch: bytes, partition: int) -> Checked:
        request = Request(rules.name, partition)
        if rules.name not in self._known:
            forget = len(self._known) >= RULES_AT_MOST
            if forget:
                self._known.clear()
            self._known.add(rules.name)
            request = Request(rules.name, partition, rules.packed, forget)
        try:
            async with asyncio.timeout(self._timeout_s + GRACE_S):
                return await self._exchange(pack(request, batch))
        except TimeoutError:
            raise WorkerLost(f"the check took longer than {self._timeout_s:g} s") from None
        except (ConnectionError, asyncio.IncompleteReadError):
            raise WorkerLost("the process that checked it ended") from None

    async def _exchange(self, pieces: list[bytes]) -> Checked:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.writelines(pieces)
        await stdin.drain()
        head_size, body_size = LENGTHS.unpack(await stdout.readexactly(LENGTHS.size))
        if head_size > LARGEST_HEAD:
            raise ConnectionError
        return read_response(await stdout.readexactly(head_size), await stdout.readexactly(body_size))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> None:
        await self._process.wait()
