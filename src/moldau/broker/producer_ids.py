"""Producer ids, one at a time, out of blocks that the controller persists. An id is never given twice."""

import asyncio
from collections.abc import Iterator

from moldau.base.errors import Refusal
from moldau.broker.controller import Controller


class ProducerIds:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._block: Iterator[int] = iter(())
        self._turn = asyncio.Lock()  # many producers start at once: one of them fetches the next block

    async def next(self) -> int | Refusal:
        async with self._turn:
            for producer_id in self._block:
                return producer_id
            block = await self._controller.allocate_producer_ids()
            if isinstance(block, Refusal):
                return block
            self._block = iter(block)
            return next(self._block)
