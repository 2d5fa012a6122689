"""Records that this broker itself writes to a topic, wherever the partition's leader is. Creates no topic.

A broker that leads the partition appends; another sends a Produce request to the leader. A response that is lost makes
the same records come twice.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from moldau.base.errors import Refusal, WireError
from moldau.broker.peers import Peers
from moldau.broker.waiting import awaited
from moldau.metadata.image import NO_BROKER, ClusterImage
from moldau.net.peer import PeerLost
from moldau.replication.replicas import Replicas
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

APPEND_TIMEOUT_MS: Final = 10_000
CLIENT_ID: Final = "__admin_client"  # with which brokers may write to internal topics, as in Kafka
PRODUCE_VERSION: Final = 12  # the last that names topics
ALL_REPLICAS: Final = -1


class OwnRecords:
    """`purpose` names the connections, so that the records of one purpose do not wait for those of another."""

    def __init__(
        self,
        purpose: str,
        node_id: int,
        replicas: Replicas,
        peers: Peers,
        image: Callable[[], ClusterImage],
        now: Callable[[], int],
    ) -> None:
        self.now = now
        self._purpose = purpose
        self._node_id = node_id
        self._replicas = replicas
        self._peers = peers
        self._image = image

    async def append(self, topic: str, index: int, batch: bytes) -> Refusal | None:
        """Append one batch; None when it is committed, else why not."""
        state = self._image().partition(topic, index)
        if state is None:
            return Refusal(WireError.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        if state.leader == NO_BROKER:
            return Refusal(WireError.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        if state.leader != self._node_id:
            return await self._send(state.leader, topic, index, batch)
        partition = self._replicas.get(topic, index)
        if partition is None:
            return Refusal(WireError.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not open yet")
        appended = awaited(partition.appender.append_batch(batch, self.now()))
        try:
            outcome = await asyncio.wait_for(appended, APPEND_TIMEOUT_MS / 1000)
        except TimeoutError:
            return Refusal.of(WireError.REQUEST_TIMED_OUT)
        return outcome if isinstance(outcome, Refusal) else None

    async def _send(self, leader: int, topic: str, index: int, batch: bytes) -> Refusal | None:
        data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=index, records=batch),))
        request = ProduceRequest(acks=ALL_REPLICAS, timeout_ms=APPEND_TIMEOUT_MS, topic_data=(data,))
        peer = self._peers.to(leader, self._purpose, client_id=CLIENT_ID)
        try:
            response: ProduceResponse = await peer.ask(request, PRODUCE_VERSION, 2 * APPEND_TIMEOUT_MS)
        except PeerLost as lost:
            return Refusal(WireError.NETWORK_EXCEPTION, f"broker {leader}: {lost.reason}")
        result = response.responses[0].partition_responses[0]
        if not result.error_code:
            return None
        error = WireError(result.error_code)
        return Refusal(error, f"broker {leader}: {result.error_message or error.doc}")
