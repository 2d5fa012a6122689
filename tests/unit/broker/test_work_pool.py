"""WorkPool: few threads at a time, in order, and nothing for connections that are gone."""

import asyncio
import threading

import pytest

from moldau.broker.security.work_pool import WorkPool
from support.net.loops import until


def test_no_more_threads_than_it_has_and_all_work_is_done() -> None:
    async def main() -> None:
        pool = WorkPool(2)
        running, most = 0, 0
        lock = threading.Lock()
        go = threading.Event()

        def work() -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            go.wait(10)
            with lock:
                running -= 1
            return 7

        results: list[int | None] = []
        for _ in range(20):
            pool.submit(work, results.append, lambda: True)
        assert pool.waiting == 18
        go.set()
        await until(lambda: len(results) == 20)
        assert most <= 2
        assert results == [7] * 20
        pool.stop()

    asyncio.run(main())


def test_work_of_a_closed_connection_is_dropped() -> None:
    async def main() -> None:
        pool = WorkPool(1)
        go, ran = threading.Event(), list[str]()
        results: list[object] = []
        pool.submit(lambda: go.wait(10), results.append, lambda: True)
        closed = False
        pool.submit(lambda: ran.append("closed"), results.append, lambda: not closed)
        pool.submit(lambda: ran.append("open"), results.append, lambda: True)
        closed = True
        go.set()
        await until(lambda: len(results) == 2)
        assert ran == ["open"]
        pool.stop()

    asyncio.run(main())


def test_work_that_raises_is_logged_and_answered_with_none(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        pool = WorkPool(1)
        results: list[object] = []
        pool.submit(lambda: 1 // 0, results.append, lambda: True)
        pool.submit(lambda: 2, results.append, lambda: True)
        await until(lambda: len(results) == 2)
        assert results == [None, 2]
        pool.stop()

    asyncio.run(main())
    assert "internal error" in caplog.text


def test_nothing_starts_after_the_stop() -> None:
    async def main() -> None:
        pool = WorkPool(1)
        go, results = threading.Event(), list[object]()
        pool.submit(lambda: go.wait(10), results.append, lambda: True)
        pool.submit(lambda: 1, results.append, lambda: True)
        pool.stop()
        go.set()
        await asyncio.sleep(0.05)
        assert results == []
        assert pool.waiting == 0

    asyncio.run(main())
