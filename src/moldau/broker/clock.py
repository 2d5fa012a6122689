"""The broker's clock: the time of day, and sleeping. Tests may advance it without waiting."""

import asyncio
import time
from typing import Any, NamedTuple


class _Sleeper(NamedTuple):
    end: float  # by the steady clock
    woken: asyncio.Future[None]


class Clock:
    def __init__(self, ahead_ms: int = 0) -> None:
        self._ahead_ms = ahead_ms  # of the machine's clock
        self._sleepers: dict[asyncio.Task[Any] | None, _Sleeper] = {}
        self._busy: set[asyncio.Task[Any] | None] = set()  # woken by an advance of the clock, and not asleep again
        self._idle = asyncio.Event()

    def now(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000 + self._ahead_ms

    async def sleep(self, span_ms: float) -> None:
        """Once per task at a time."""
        task = asyncio.current_task()
        self._rest(task)
        loop = asyncio.get_running_loop()
        sleeper = self._sleepers[task] = _Sleeper(self._steady() + span_ms, loop.create_future())
        try:
            while not sleeper.woken.done() and (left := sleeper.end - self._steady()) > 0:
                await asyncio.wait([sleeper.woken], timeout=left / 1000)
        except asyncio.CancelledError:
            self._rest(task)
            raise
        finally:
            del self._sleepers[task]

    async def pass_time(self, span_ms: int) -> None:
        """Advance the clock; returns when all tasks that were due until then have run."""
        self._ahead_ms += span_ms
        now = self._steady()
        for task, sleeper in self._sleepers.items():
            if sleeper.end <= now and not sleeper.woken.done():
                self._busy.add(task)
                sleeper.woken.set_result(None)
        while self._busy:
            self._idle.clear()
            await self._idle.wait()

    def _rest(self, task: asyncio.Task[Any] | None) -> None:
        self._busy.discard(task)
        if not self._busy:
            self._idle.set()

    def _steady(self) -> float:
        """Milliseconds of a monotonic clock, which does not jump when the machine's clock is set."""
        return asyncio.get_running_loop().time() * 1000 + self._ahead_ms
