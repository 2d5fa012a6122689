"""StartupRetry: steps of a starting broker, retried while the metadata store is unavailable, until a stop is requested.

A running broker keeps serving without the store: see `metadata_feed` and `broker_registration`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from moldau.store.port import StoreUnavailable

logger = logging.getLogger("moldau.broker")

T = TypeVar("T")

PAUSE_S = 0.2  # before a retry


class StopRequested(Exception):
    """The broker was asked to stop before it was ready."""


class StartupRetry:
    """`stop` is set when the broker shall stop."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """The result of the work; cancels it and raises StopRequested when a stop is requested."""
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
        """The result of a step that needs the store; retried while the store is unavailable."""
        logged = False
        while True:
            try:
                return await self.unless_stopped(attempt())
            except StoreUnavailable as problem:
                if not logged:
                    logger.warning("Metadata store unavailable; the start waits for it: %s", problem)
                logged = True
            await self.unless_stopped(asyncio.sleep(PAUSE_S))
