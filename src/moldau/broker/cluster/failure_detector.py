"""FailureDetector: notices that a broker's process has ended, without waiting for its session to expire.

It keeps an idle connection to each watched broker and reconnects when it ends. Two refused connections mean that the
process is gone. Anything else (no answer, no route) proves nothing and is left to the session with the store. The dead
broker is fenced by its epoch, so a false alarm costs an election and loses nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from moldau.base.ids import Epoch
from moldau.net.peer import Address, Connect, Peer, PeerLost
from moldau.net.tasks import cancel
from moldau.wire.messages.api_versions import ApiVersionsRequest

logger = logging.getLogger("moldau.broker")

REFUSALS_BEFORE_DEAD = 2  # in a row
PAUSE_S = 0.1  # after a refused or broken connection
NO_ANSWER_PAUSE_S = 1.0  # after a connection attempt without an answer
PROBE, PROBE_VERSION = ApiVersionsRequest(), 0


class WatchedBroker(NamedTuple):
    """An incarnation of a broker."""

    broker_id: int
    epoch: Epoch
    address: Address


Died = Callable[[WatchedBroker], None]


class FailureDetector:
    def __init__(self, node_id: int, connect: Connect, died: Died) -> None:
        self._node_id = node_id
        self._connect = connect
        self._died = died
        self._tasks: dict[WatchedBroker, asyncio.Task[None]] = {}

    def watch(self, brokers: Mapping[int, WatchedBroker]) -> None:
        """Watch exactly these brokers from now on."""
        wanted = set(brokers.values())
        for gone in self._tasks.keys() - wanted:
            self._tasks.pop(gone).cancel()
        for new in wanted - self._tasks.keys():
            self._tasks[new] = asyncio.get_running_loop().create_task(self._watch(new), name=f"watch {new.broker_id}")

    async def stop(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        await cancel(*tasks)

    async def _watch(self, broker: WatchedBroker) -> None:
        name = f"broker {broker.broker_id}"
        client_id = f"broker-{self._node_id}-watch"
        peer = Peer(lambda: broker.address, name=name, client_id=client_id, connect=self._connect)
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
                            logger.warning("Broker %d is down: %s", broker.broker_id, lost.reason)
                        self._died(broker)
                    await asyncio.sleep(PAUSE_S if lost.refused or lost.sent else NO_ANSWER_PAUSE_S)
        finally:
            await peer.stop()

    async def _until_it_ends(self, peer: Peer) -> None:
        """Connect, and wait for the connection to end. PeerLost: there was no connection, or no response on it."""
        ended = asyncio.Event()
        peer.on_closed = lambda _: ended.set()
        await peer.connect()
        await peer.ask(PROBE, PROBE_VERSION)
        await ended.wait()
