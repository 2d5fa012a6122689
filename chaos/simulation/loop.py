"""An event loop whose time passes only when nothing is ready to run: hours take as long as their work.

Work for threads is done on the loop, a moment later. So what happens, and in which order, follows from the seed alone.
"""

import asyncio
import random
import selectors
from collections.abc import Callable
from typing import Any

MOST_DISK_S = 0.005  # what is left to a thread takes up to this long


class Stuck(Exception):
    """Nobody waits for a moment in time, so nothing will ever happen."""


class _Timeless(selectors.SelectSelector):
    """Nothing ever comes from outside; waiting is what moves the clock."""

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
