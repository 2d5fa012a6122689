"""Waits of a broker that starts: for a store that is out of reach as long as it takes, and not once it is told to stop.

What a broker does when it runs and the store is away is another matter: it goes on (`feed`, `registration`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from moldau.store.port import StoreUnavailable

logger = logging.getLogger("moldau.broker")

T = TypeVar("T")

PAUSE_S = 0.2  # before the next attempt


class StopRequested(Exception):
    """The node was told to stop before it was ready."""


class StartupRetry:
    """`stop` is set when nobody wants the broker any more."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """What comes of it. StopRequested, as soon as the broker is to stop; what it was doing is cancelled then."""
        doing = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            raise StopRequested
        finally:
            stopped.cancel()
            doing.cancel()
            await asyncio.gather(doing, stopped, return_exceptions=True)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The same for a step that needs the store, tried again whenever that is not available."""
        told = False
        while True:
            try:
                return await self.unless_stopped(attempt())
            except StoreUnavailable as problem:
                if not told:
                    logger.warning("the start waits for the metadata store: %s", problem)
                told = True
            await self.unless_stopped(asyncio.sleep(PAUSE_S))
