"""The broker's clock: waiting, and time that is made to pass."""

import asyncio

from moldau.broker.clock import Clock
from moldau.broker.scheduler import PeriodicTask, Scheduler
from support.net.loops import on_both_loops, run

HOUR = 3_600_000


@on_both_loops
def test_time_that_passes_wakes_who_slept_until_then(loop_kind: str) -> None:
    async def test() -> None:
        clock = Clock()
        before = clock.now()
        done: list[str] = []

        async def slowly() -> None:
            await asyncio.sleep(0.02)
            done.append("hourly")

        chores = Scheduler(
            (PeriodicTask("hourly", HOUR, slowly), PeriodicTask("daily", 24 * HOUR, lambda: done.append("daily"))),
            clock,
        )
        await asyncio.sleep(0)
        await clock.pass_time(HOUR - 1000)
        assert not done
        await clock.pass_time(2000)
        assert done == ["hourly"]  # and not before it was done
        await clock.pass_time(23 * HOUR)
        assert sorted(done) == ["daily", "hourly", "hourly"]
        assert clock.now() - before >= 24 * HOUR
        await chores.stop()

    run(loop_kind, test())


@on_both_loops
def test_without_help_time_passes_by_itself(loop_kind: str) -> None:
    async def test() -> None:
        clock = Clock(ahead_ms=HOUR)
        await clock.sleep(5)

    run(loop_kind, test())
