"""Items for other brokers, sent in batches: one request per broker at a time, the next batch gathers meanwhile.

Nothing is retried here. The sender of an item gets its outcome and decides by the newest metadata.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from moldau.base.errors import WireError
from moldau.broker.peers import Peers
from moldau.metadata.image import ClusterImage
from moldau.net.peer import Peer, PeerLost
from moldau.net.tasks import cancel

logger = logging.getLogger("moldau.broker")

MAX_BATCH_ITEMS = 1_000  # of one request
MAX_QUEUED_ITEMS = 100_000  # for one broker
REQUEST_TIMEOUT_MS = 10_000

Item = TypeVar("Item")
Errors = Mapping[
    tuple[object, str, int], WireError
]  # by item (marker, or reply of a verification), topic and partition


class BatchSender(Generic[Item]):
    """`send_batch` sends one request; `complete` gives an item its outcome, unknown if the errors do not have it.

    Each purpose has its own connection: responses on a connection come in order, and one may take long.
    """

    def __init__(
        self,
        peers: Peers,
        purpose: str,
        send_batch: Callable[[Peer, list[Item]], Awaitable[Errors]],
        complete: Callable[[Item, Errors], None],
    ) -> None:
        self._peers = peers
        self._purpose = purpose
        self._send_batch = send_batch
        self._complete = complete
        self._queues: dict[int, deque[Item]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def send(self, broker_id: int, item: Item) -> None:
        queue = self._queues.setdefault(broker_id, deque())
        if len(queue) >= MAX_QUEUED_ITEMS:
            self._complete(item, {})
            return
        queue.append(item)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = asyncio.get_running_loop().create_task(self._drain(broker_id, queue))

    async def _drain(self, broker_id: int, queue: deque[Item]) -> None:
        try:
            while queue:
                items = [queue.popleft() for _ in range(min(len(queue), MAX_BATCH_ITEMS))]
                errors = await self._send_one(broker_id, items)
                for item in items:
                    self._complete_safely(item, errors)
        finally:
            del self._tasks[broker_id]

    async def _send_one(self, broker_id: int, items: list[Item]) -> Errors:
        try:
            return await self._send_batch(self._peers.to(broker_id, self._purpose), items)
        except PeerLost as lost:
            logger.info("Request to broker %d failed (%s): %s", broker_id, self._purpose, lost.reason)
        except Exception:
            logger.exception("Request to broker %d failed (%s)", broker_id, self._purpose)
        return {}

    def _complete_safely(self, item: Item, errors: Errors) -> None:
        try:
            self._complete(item, errors)
        except Exception:  # a bug; the other items of the batch must still get their outcomes
            logger.exception("Handling a response of another broker failed (%s)", self._purpose)

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Fail the requests to brokers that have left the cluster."""
        if old.brokers is not new.brokers:
            for broker_id in old.brokers.keys() - new.brokers.keys():
                if broker_id in self._tasks:
                    self._peers.to(broker_id, self._purpose).disconnect("the broker has left the cluster")

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for queue in self._queues.values():
            queue.clear()
        await cancel(*tasks)
