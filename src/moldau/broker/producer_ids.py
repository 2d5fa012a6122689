"""Producer ids, one at a time, out of blocks that the controller allocates. No id is used twice."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from moldau.base.errors import Refusal, WireError

Allocate = Callable[[], Awaitable[range | Refusal]]  # a block of ids


class ProducerIds:
    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._block: Iterator[int] = iter(())
        self._turn = asyncio.Lock()  # many producers may start at once: one request fetches the next block

    async def next(self) -> int | Refusal:
        """The next id; while no controller is reachable, an error that every client retries."""
        async with self._turn:
            for producer_id in self._block:
                return producer_id
            block = await self._allocate()
            if isinstance(block, Refusal):
                return Refusal(
                    WireError.COORDINATOR_LOAD_IN_PROGRESS, f"No producer id can be allocated now: {block.message}"
                )
            self._block = iter(block)
            return next(self._block)
