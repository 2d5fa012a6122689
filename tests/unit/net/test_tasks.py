"""`cancel` returns when every task has ended, and does not fail with them."""

import asyncio

from moldau.net.tasks import cancel
from support.net.loops import run, turns


def test_all_have_ended_when_it_returns() -> None:
    ended: list[str] = []

    async def long(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await turns()
            ended.append(name)

    async def fails() -> None:
        raise OSError

    async def main() -> None:
        tasks = [asyncio.create_task(work) for work in (long("one"), fails(), long("two"))]
        await turns()
        await cancel(None, *tasks)
        assert ended == ["one", "two"]
        assert all(task.done() for task in tasks)

    run("asyncio", main())
