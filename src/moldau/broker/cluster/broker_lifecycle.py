"""This broker as a member of a cluster, for everyone else in it: what it asks the controller under its own epoch."""

import asyncio
import logging
from collections.abc import Sequence

from moldau.base.errors import Refusal, WireError
from moldau.broker.cluster.broker_registration import BrokerRegistration
from moldau.broker.cluster.controller_client import ControllerClient
from moldau.broker.controller import Controller
from moldau.metadata.image import Broker, Endpoint
from moldau.net.peer import Address, Peer, PeerLost
from moldau.store.port import StoreError
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, AlterPartitionTopic
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

logger = logging.getLogger("moldau.broker")

ALTER_VERSION, HEARTBEAT_VERSION, ALLOCATE_VERSION = 3, 1, 0
CONTROLLED_SHUTDOWN_TIMEOUT_S = 10.0  # how long a stop waits for the controller to find others for what is led here
ID_CHECK_PAUSE_S = 0.25  # between two looks whether a broker of the same id has gone


class BrokerLifecycle:
    def __init__(
        self, controller: Controller, registration: BrokerRegistration, client: ControllerClient, node_id: int
    ) -> None:
        self.registration = registration
        self._client = client
        self._controller = controller
        self._node_id = node_id

    async def alter_partitions(
        self, topics: Sequence[AlterPartitionTopic], patience_s: float
    ) -> AlterPartitionResponse | None:
        """Who is in sync with the partitions that this broker leads. Errors are in the response, and its rows.

        One attempt alone. None: there was no answer, and nobody knows whether the request was carried out.
        """
        request = AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self.registration.epoch, topics=tuple(topics)
        )
        return await self._client.ask_once(request, ALTER_VERSION, AlterPartitionResponse, patience_s)

    async def allocate_producer_ids(self) -> range | Refusal:
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self.registration.epoch)
        response = await self._client.ask(request, ALLOCATE_VERSION, AllocateProducerIdsResponse)
        if isinstance(response, Refusal):
            return response
        if response.error_code:
            return Refusal(WireError(response.error_code), "The controller has no producer ids for this broker.")
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def check_id_unused(self, broker: Broker, listener_name: str, wait_s: float) -> None:
        """StoreError if another broker of this id is alive. One that does not answer has this long to be given up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while (other := self._controller.image.brokers.get(broker.id)) is not None:
            endpoint = other.endpoints.get(listener_name)
            if endpoint is None or endpoint == broker.endpoints.get(listener_name):
                return  # an earlier life of this broker: its port is ours now
            answers = await _is_listening(endpoint)
            if answers is False:
                return  # it was killed, and its session lives on for a while
            if answers or loop.time() > deadline:
                address = f"{endpoint.host}:{endpoint.port}"
                raise StoreError(f"broker id {broker.id} is in use by {address}; give this one another node.id")
            await asyncio.sleep(ID_CHECK_PAUSE_S)
            await self._controller.feed.reload()

    async def controlled_shutdown(self) -> None:
        """Controlled shutdown: others lead what this broker led, before it goes. Not for ever."""
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.registration.epoch,
            current_metadata_offset=self._controller.image.version,
            want_shut_down=True,
        )
        if self.registration.epoch < 0 or not self._controller.feed.store.connected:
            return
        if len(self._controller.image.brokers) < 2:
            return
        response = await self._client.ask(
            request, HEARTBEAT_VERSION, BrokerHeartbeatResponse, CONTROLLED_SHUTDOWN_TIMEOUT_S
        )
        if isinstance(response, Refusal) or response.error_code:
            logger.warning(
                "controlled shutdown was not acknowledged by the controller within %.0f s; stopping anyway",
                CONTROLLED_SHUTDOWN_TIMEOUT_S,
            )
            return
        await self._client.catch_up()


async def _is_listening(endpoint: Endpoint) -> bool | None:
    """Whether somebody listens there. A refusal says that nobody does; no answer says nothing."""
    peer = Peer(lambda: Address(endpoint.host, endpoint.port), connect_timeout_ms=1000)
    try:
        await peer.connect()
        return True
    except PeerLost as lost:
        return False if lost.refused else None
    finally:
        await peer.stop()
