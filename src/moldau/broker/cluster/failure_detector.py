"""Notices that a broker's process has died: its connections end, and nobody listens where it did.

A connection is kept to each broker that is watched; little is said on it. When it ends, another one is tried at once.
A machine that refuses the connection twice has no such process any more. Whatever else goes wrong (no answer, no
route) proves nothing: that is left to the session with the store. Who is told of a death fences the dead by epoch, so
a mistake costs an election and loses nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from moldau.net.peer import Address, Peer, PeerLost
from moldau.wire.messages.api_versions import ApiVersionsRequest

logger = logging.getLogger("moldau.broker")

REFUSALS_BEFORE_DEAD = 2  # in a row
PAUSE_S = 0.1  # after a refusal, or a connection that ended at once
NO_ANSWER_PAUSE_S = 1.0  # where nobody answered at all
HELLO, HELLO_VERSION = ApiVersionsRequest(), 0


class WatchedBroker(NamedTuple):
    """A broker in one of its lives."""

    broker_id: int
    epoch: int
    address: Address


Died = Callable[[WatchedBroker], None]


class FailureDetector:
    def __init__(self, node_id: int, died: Died) -> None:
        self._node_id = node_id
        self._died = died
        self._tasks: dict[WatchedBroker, asyncio.Task[None]] = {}

    def watch(self, brokers: Mapping[int, WatchedBroker]) -> None:
        """These, and no others, are watched from now on."""
        wanted = set(brokers.values())
        for gone in self._tasks.keys() - wanted:
            self._tasks.pop(gone).cancel()
        for new in wanted - self._tasks.keys():
            self._tasks[new] = asyncio.get_running_loop().create_task(self._hold(new), name=f"watch {new.broker_id}")

    async def stop(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _hold(self, broker: WatchedBroker) -> None:
        name = f"broker {broker.broker_id}"
        peer = Peer(lambda: broker.address, name=name, client_id=f"broker-{self._node_id}-watch")
        refusals = 0
        try:
            while True:
                try:
                    await self._until_it_ends(peer)
                    refusals = 0
                except PeerLost as lost:
                    refusals = refusals + 1 if lost.refused else 0
                    if refusals >= REFUSALS_BEFORE_DEAD:
                        if refusals == REFUSALS_BEFORE_DEAD:
                            logger.warning("broker %d is dead: %s", broker.broker_id, lost.reason)
                        self._died(broker)
                    await asyncio.sleep(PAUSE_S if lost.refused or lost.sent else NO_ANSWER_PAUSE_S)
        finally:
            await peer.stop()

    async def _until_it_ends(self, peer: Peer) -> None:
        """Connected, and answered once, it lasts as long as the process. PeerLost: it was not even that."""
        ended = asyncio.Event()
        peer.on_closed = lambda _: ended.set()
        await peer.connect()
        await peer.ask(HELLO, HELLO_VERSION)
        await ended.wait()
