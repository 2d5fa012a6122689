"""Await a result that may come later: the adapter between `Later` and coroutines."""

import asyncio
from typing import TypeVar

from moldau.base.later import Later, NowOrLater

T = TypeVar("T")


async def awaited(part: NowOrLater[T]) -> T:
    """The result, at once if it is there."""
    if not isinstance(part, Later):
        return part
    if not part.done:
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        part.then(lambda _: None if arrived.done() else arrived.set_result(None))
        await arrived
    return part.result
