"""Scheduler: a broker's periodic tasks, such as checkpoints, retention and the expiration of producers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from moldau.broker.clock import Clock
from moldau.net.tasks import cancel

logger = logging.getLogger("moldau.broker")

LEAST_PAUSE_MS = 10  # an interval of 0 is valid, and must not starve the event loop


class PeriodicTask(NamedTuple):
    name: str
    every_ms: int
    run: Callable[[], Awaitable[None] | None]
    first_ms: int | None = None  # the delay before the first run, if it is not `every_ms`


class Scheduler:
    """Runs each periodic task in an asyncio task of its own, until stopped."""

    def __init__(self, tasks: tuple[PeriodicTask, ...], clock: Clock) -> None:
        self._clock = clock
        loop = asyncio.get_running_loop()
        self._running = [loop.create_task(self._repeat(task), name=task.name) for task in tasks]

    async def _repeat(self, task: PeriodicTask) -> None:
        pause_ms = task.every_ms if task.first_ms is None else task.first_ms
        while True:
            await self._clock.sleep(max(pause_ms, LEAST_PAUSE_MS))
            pause_ms = task.every_ms
            try:
                result = task.run()
                if result is not None:
                    await result
            except Exception:
                logger.exception("Periodic task failed; it runs again in %d ms: %s", pause_ms, task.name)

    async def stop(self) -> None:
        await cancel(*self._running)
