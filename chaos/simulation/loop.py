"""VirtualLoop: an event loop with a virtual clock, which advances only when nothing is ready to run.

Work for threads runs on the loop too, a moment later. So all events and their order depend only on the seed.
"""

import asyncio
import random
import selectors
from collections.abc import Callable
from typing import Any

MOST_DISK_S = 0.005  # the longest delay of work for threads


class Stuck(Exception):
    """No timer is set, so nothing will ever happen."""


class _Timeless(selectors.SelectSelector):
    """A selector without events. Waiting advances the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, dice: random.Random) -> None:
        self._timeless = _Timeless()
        self._dice = dice
        super().__init__(self._timeless)

    def time(self) -> float:
        return self._timeless.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as problem:  # noqa: BLE001 - passed on to the future
                future.set_exception(problem)

        self.call_later(self._dice.uniform(0, MOST_DISK_S), work)
        return future
