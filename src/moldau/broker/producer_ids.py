"""Producer ids, one at a time, out of blocks that the controller persists. An id is never given twice."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from moldau.base.errors import Refusal, WireError

Allocate = Callable[[], Awaitable[range | Refusal]]  # a block that nobody else gets


class ProducerIds:
    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._block: Iterator[int] = iter(())
        self._turn = asyncio.Lock()  # many producers start at once: one of them fetches the next block

    async def next(self) -> int | Refusal:
        """Where the controller cannot be asked now, an error after which every client tries again."""
        async with self._turn:
            for producer_id in self._block:
                return producer_id
            block = await self._allocate()
            if isinstance(block, Refusal):
                return Refusal(WireError.COORDINATOR_LOAD_IN_PROGRESS, f"No producer id is to be had: {block.message}")
            self._block = iter(block)
            return next(self._block)
