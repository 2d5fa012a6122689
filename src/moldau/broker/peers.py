"""Connections of this broker to the others, by broker id. What goes over them is their users' business.

Requests of one connection are answered in order, so work that may wait long (a follower's fetch) has a connection of
its own: that is what `purpose` keeps apart.
"""

import asyncio
from collections.abc import Callable

from moldau.metadata.image import ClusterImage
from moldau.net.peer import REQUEST_TIMEOUT_MS, Address, Peer

CONTROL = "control"  # short questions
DOUBT_S = 1.0  # how long a broker that ended its connections may be dead, as far as clients are told
NOBODY: frozenset[int] = frozenset()

Life = tuple[int, int]  # a broker's id, and the epoch that it has from its start to its end


class Peers:
    """`listener_name` is the listener that brokers meet on (inter.broker.listener.name)."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        listener_name: str,
        *,
        node_id: int = -1,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        self.listener_name = listener_name
        self._image = image
        self._node_id = node_id
        self._request_timeout_ms = request_timeout_ms
        self._peers: dict[tuple[int, str], Peer] = {}
        self._ended: dict[Life, float] = {}  # when one of its connections ended last, by the loop's clock

    def to(self, broker_id: int, purpose: str = CONTROL) -> Peer:
        """The same connection each time for a broker and purpose. Its address is the one that the image has then."""
        known = self._peers.get((broker_id, purpose))
        if known is None:
            known = self._peers[broker_id, purpose] = Peer(
                lambda: self._address(broker_id),
                name=f"broker {broker_id}",
                client_id=f"broker-{self._node_id}-{purpose}",
                request_timeout_ms=self._request_timeout_ms,
            )
            known.on_closed = lambda _: self._note_end(broker_id)
        return known

    @property
    def doubted(self) -> frozenset[int]:
        """Brokers that have just ended their connections, and have none again: their process may have died.

        A client that asks for a leader in that moment, because its own connection has ended, hears that there is none,
        and asks again soon. Sent back to the dead one, librdkafka would not ask again for a second or two.
        """
        if not self._ended:
            return NOBODY
        alive = {broker_id for (broker_id, _), peer in self._peers.items() if peer.connected}
        latest = asyncio.get_running_loop().time() - DOUBT_S
        self._ended = {
            (broker_id, epoch): at
            for (broker_id, epoch), at in self._ended.items()
            if at > latest and broker_id not in alive and self._epoch(broker_id) == epoch
        }
        return frozenset(broker_id for broker_id, _ in self._ended)

    def _note_end(self, broker_id: int) -> None:
        epoch = self._epoch(broker_id)
        if epoch is not None:
            self._ended[broker_id, epoch] = asyncio.get_running_loop().time()

    def _epoch(self, broker_id: int) -> int | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def _address(self, broker_id: int) -> Address | None:
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            return None
        endpoint = broker.endpoints.get(self.listener_name)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    async def drop(self, broker_id: int, purpose: str) -> None:
        """Nobody needs this connection any more."""
        peer = self._peers.pop((broker_id, purpose), None)
        if peer is not None:
            await peer.stop()

    async def stop(self) -> None:
        peers, self._peers = list(self._peers.values()), {}
        await asyncio.gather(*(peer.stop() for peer in peers))
