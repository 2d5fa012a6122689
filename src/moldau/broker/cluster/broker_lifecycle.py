"""BrokerLifecycle: the check of the broker id at start, requests under the broker epoch, controlled shutdown."""

import asyncio
import logging
from collections.abc import Sequence

from moldau.base.errors import Refusal, WireError
from moldau.broker.cluster.broker_registration import BrokerRegistration
from moldau.broker.cluster.controller_client import ControllerClient
from moldau.broker.controller import Controller
from moldau.metadata.image import Broker, Endpoint
from moldau.net.peer import Address, Connect, Peer, PeerLost
from moldau.store.port import StoreError
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, AlterPartitionTopic
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

logger = logging.getLogger("moldau.broker")

ALTER_VERSION, HEARTBEAT_VERSION, ALLOCATE_VERSION = 3, 1, 0
CONTROLLED_SHUTDOWN_TIMEOUT_S = 10.0  # for the controller to move leadership to other brokers
ID_CHECK_PAUSE_S = 0.25  # between two checks for another broker with the same id


class BrokerLifecycle:
    def __init__(
        self,
        controller: Controller,
        registration: BrokerRegistration,
        client: ControllerClient,
        node_id: int,
        connect: Connect,
    ) -> None:
        self.registration = registration
        self._client = client
        self._controller = controller
        self._node_id = node_id
        self._connect = connect

    async def alter_partitions(
        self, topics: Sequence[AlterPartitionTopic], patience_s: float
    ) -> AlterPartitionResponse | None:
        """Propose ISRs of partitions that this broker leads. Errors are in the response and its rows.

        One attempt. None: no response, so the request may or may not have been carried out.
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
            return Refusal(WireError(response.error_code), "The controller did not allocate producer ids.")
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def check_id_unused(self, broker: Broker, listener_name: str, wait_s: float) -> None:
        """Raise StoreError if another broker with this id listens, or is still registered after `wait_s`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while (other := self._controller.image.brokers.get(broker.id)) is not None:
            endpoint = other.endpoints.get(listener_name) or next(iter(other.endpoints.values()), None)
            if endpoint is None or endpoint in broker.endpoints.values():
                return  # an earlier incarnation: this broker has its port
            answers = await _is_listening(endpoint, self._connect)
            if answers is False:
                return  # it was killed, and its session has not expired yet
            if answers or loop.time() > deadline:
                address = f"{endpoint.host}:{endpoint.port}"
                raise StoreError(f"broker id {broker.id} is in use by {address}; set another node.id")
            await asyncio.sleep(ID_CHECK_PAUSE_S)
            await self._controller.feed.reload()

    async def controlled_shutdown(self) -> None:
        """Have other brokers take over this broker's partitions, within CONTROLLED_SHUTDOWN_TIMEOUT_S."""
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
        if isinstance(response, Refusal):
            logger.warning(
                "Controlled shutdown was not acknowledged by the controller within %.0f s; stopping anyway.",
                CONTROLLED_SHUTDOWN_TIMEOUT_S,
            )
            return
        if response.error_code:
            error = WireError(response.error_code).name
            logger.warning("Controlled shutdown was refused by the controller (%s); stopping anyway.", error)
            return
        await self._client.catch_up()


async def _is_listening(endpoint: Endpoint, connect: Connect) -> bool | None:
    """Whether a process listens there; None if the connection is neither accepted nor refused."""
    peer = Peer(lambda: Address(endpoint.host, endpoint.port), connect=connect, connect_timeout_ms=1000)
    try:
        await peer.connect()
        return True
    except PeerLost as lost:
        return False if lost.refused else None
    finally:
        await peer.stop()
