"""WorkPool: few threads that hash passwords and verify tokens, so that a storm of logins leaves the event loop alone.

Each connection has one piece of work at most, so what waits is bounded by max.connections. Work of a connection that
was closed meanwhile is dropped.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

logger = logging.getLogger("moldau.broker")

MAX_THREADS = 4


class _Work(NamedTuple, Generic[T]):
    run: Callable[[], T]
    done: Callable[[T | None], None]
    wanted: Callable[[], bool]


class WorkPool:
    def __init__(self, threads: int = 0) -> None:
        """Half of the cores at most: the rest is for the event loop."""
        self._free = threads or min(max((os.cpu_count() or 2) // 2, 1), MAX_THREADS)
        self._executor = ThreadPoolExecutor(self._free, "moldau-login")  # starts no thread before the first login
        self._waiting: deque[_Work[object]] = deque()
        self._stopped = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, run: Callable[[], T], done: Callable[[T | None], None], wanted: Callable[[], bool]) -> None:
        """Run in a thread, then call `done` on the loop: with None if `run` raised. Skip it if it is not `wanted`."""
        self._waiting.append(_Work(run, done, wanted))  # type: ignore[arg-type]  # run and done are of one type
        self._start()

    def _start(self) -> None:
        while self._free and self._waiting and not self._stopped:
            work = self._waiting.popleft()
            if not work.wanted():
                continue
            self._free -= 1
            running = asyncio.get_running_loop().run_in_executor(self._executor, work.run)
            running.add_done_callback(lambda future, work=work: self._ended(work, future))  # type: ignore[misc]

    def _ended(self, work: _Work[object], future: asyncio.Future[object]) -> None:
        self._free += 1
        if self._stopped or future.cancelled():
            return
        problem = future.exception()
        if problem is not None:
            logger.error("A login failed because of an internal error", exc_info=problem)
        if work.wanted():
            work.done(None if problem is not None else future.result())
        self._start()

    def stop(self) -> None:
        self._stopped = True
        self._waiting.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)
