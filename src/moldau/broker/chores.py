"""What a broker does by the clock: checkpoints, idle connections, forgotten producers. Each chore has an interval."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from moldau.broker.clock import Clock

log = logging.getLogger("moldau.broker")

LEAST_PAUSE_MS = 10  # an interval of 0 is allowed, and must not keep the loop from everything else


class Chore(NamedTuple):
    name: str
    every_ms: int
    work: Callable[[], Awaitable[None] | None]
    first_ms: int | None = None  # the pause before the first time, if it is another


class Chores:
    """Runs each chore in a task of its own, until stopped."""

    def __init__(self, chores: tuple[Chore, ...], clock: Clock) -> None:
        self._clock = clock
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(chore), name=chore.name) for chore in chores]

    async def _repeat(self, chore: Chore) -> None:
        pause_ms = chore.every_ms if chore.first_ms is None else chore.first_ms
        while True:
            await self._clock.sleep(max(pause_ms, LEAST_PAUSE_MS))
            pause_ms = chore.every_ms
            try:
                result = chore.work()
                if result is not None:
                    await result
            except Exception:
                log.exception("chore failed: %s", chore.name)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
