"""Connections of this broker to other brokers, by broker id and purpose.

Requests of one connection are answered in order, so work that may wait long (a follower's fetch) has a connection of
its own, named by its `purpose`.
"""

import asyncio
from collections.abc import Callable

from moldau.base.ids import Epoch
from moldau.metadata.image import ClusterImage
from moldau.net.peer import REQUEST_TIMEOUT_MS, Address, Connect, Peer, connect_plain

CONTROL = "control"  # short requests
SUSPECT_S = 1.0  # how long a broker that closed its connections is suspected to be dead
NO_BROKERS: frozenset[int] = frozenset()

Incarnation = tuple[int, Epoch]  # broker id and broker epoch


class Peers:
    """`listener_name` is inter.broker.listener.name, and `connect` opens every connection of this broker to others."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        listener_name: str,
        *,
        node_id: int = -1,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        connect: Connect = connect_plain,
    ) -> None:
        self.listener_name = listener_name
        self.connect = connect
        self._image = image
        self._node_id = node_id
        self._request_timeout_ms = request_timeout_ms
        self._peers: dict[tuple[int, str], Peer] = {}
        self._closed: dict[Incarnation, float] = {}  # when its last connection was closed, by the loop's clock

    def to(self, broker_id: int, purpose: str = CONTROL, *, client_id: str | None = None) -> Peer:
        """The connection to a broker for a purpose. It connects to the address that the image has then."""
        known = self._peers.get((broker_id, purpose))
        if known is None:
            known = self._peers[broker_id, purpose] = Peer(
                lambda: self._address(broker_id),
                name=f"broker {broker_id}",
                client_id=client_id or f"broker-{self._node_id}-{purpose}",
                connect=self.connect,
                request_timeout_ms=self._request_timeout_ms,
            )
            known.on_closed = lambda _: self._note_closed(broker_id)
        return known

    @property
    def suspected(self) -> frozenset[int]:
        """Brokers that have just closed their connections and have no new one: their process may have died.

        A client that refreshes its metadata in that moment, because its own connection was closed, gets
        LEADER_NOT_AVAILABLE and retries soon. Sent back to the dead broker, librdkafka would wait a second or two.
        """
        if not self._closed:
            return NO_BROKERS
        alive = {broker_id for (broker_id, _), peer in self._peers.items() if peer.connected}
        latest = asyncio.get_running_loop().time() - SUSPECT_S
        self._closed = {
            (broker_id, epoch): at
            for (broker_id, epoch), at in self._closed.items()
            if at > latest and broker_id not in alive and self._epoch(broker_id) == epoch
        }
        return frozenset(broker_id for broker_id, _ in self._closed)

    def _note_closed(self, broker_id: int) -> None:
        epoch = self._epoch(broker_id)
        if epoch is not None:
            self._closed[broker_id, epoch] = asyncio.get_running_loop().time()

    def _epoch(self, broker_id: int) -> Epoch | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def _address(self, broker_id: int) -> Address | None:
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            return None
        endpoint = broker.endpoints.get(self.listener_name)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    async def drop(self, broker_id: int, purpose: str) -> None:
        """Close a connection that is no longer needed."""
        peer = self._peers.pop((broker_id, purpose), None)
        if peer is not None:
            await peer.stop()

    async def stop(self) -> None:
        peers, self._peers = list(self._peers.values()), {}
        await asyncio.gather(*(peer.stop() for peer in peers))
