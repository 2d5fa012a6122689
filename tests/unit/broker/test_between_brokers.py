"""What brokers ask each other is answered where they meet, and nowhere else."""

import asyncio
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from moldau.base.errors import WireError
from moldau.net.peer import Address, Peer
from moldau.testing import ZooKeeper
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.wire.messages.alter_partition import AlterPartitionRequest
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.wire.messages.envelope import EnvelopeRequest
from support.brokers.nodes import a_node
from support.net import loops

REFUSED = WireError.CLUSTER_AUTHORIZATION_FAILED
STALE, INVALID = WireError.STALE_BROKER_EPOCH, WireError.INVALID_REQUEST
# Each with an error of its own: it was looked at.
QUESTIONS: tuple[tuple[Any, int, WireError], ...] = (
    (AlterPartitionRequest(broker_id=9, broker_epoch=9, topics=()), 3, STALE),
    (BrokerHeartbeatRequest(broker_id=9, broker_epoch=9, current_metadata_offset=0, want_shut_down=True), 1, STALE),
    (AllocateProducerIdsRequest(broker_id=9, broker_epoch=9), 0, STALE),
    (EnvelopeRequest(request_data=b"\0\3\0\0\0\0\0\0\0\0", client_host_address=b""), 0, INVALID),
)
TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter_broker_listener_name": "BROKERS",
}
ONE = {"listeners": "PLAINTEXT://127.0.0.1:0"}


@pytest.mark.parametrize(
    ("settings", "listener", "clustered", "heard"),
    [
        (TWO, "BROKERS", True, True),
        (TWO, "PLAINTEXT", True, False),
        (ONE, "PLAINTEXT", True, True),
        (ONE, "PLAINTEXT", False, False),
    ],
    ids=["where brokers meet", "where clients come", "where both do", "a node of its own"],
)
def test_brokers_questions_are_answered_where_brokers_meet(
    tmp_path: Path, zookeeper: ZooKeeper, settings: dict[str, str], listener: str, clustered: bool, heard: bool
) -> None:
    async def scenario() -> None:
        connect = f"{zookeeper.connect}/{uuid4().hex}" if clustered else ""
        node = a_node(tmp_path, connect, asyncio.Event(), **settings)
        await node.start(time.monotonic())
        endpoint = node._broker.endpoints[listener]
        peer = Peer(lambda: Address(endpoint.host, endpoint.port))
        for question, version, error in QUESTIONS:
            answer = await peer.ask(question, version)
            assert WireError(answer.error_code) is (error if heard else REFUSED), question
        await peer.stop()
        await node.stop()

    loops.run("uvloop", scenario())


def test_brokers_connect_to_two_listeners_while_the_setting_changes(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    """A rolling restart: the first broker has another inter.broker.listener.name than the second one."""

    async def scenario() -> None:
        connect = f"{zookeeper.connect}/{uuid4().hex}"
        changed = a_node(tmp_path / "1", connect, asyncio.Event(), **TWO)
        await changed.start(time.monotonic())
        other = TWO | {"node_id": "2", "inter_broker_listener_name": "PLAINTEXT"}
        unchanged = a_node(tmp_path / "2", connect, asyncio.Event(), **other)
        await unchanged.start(time.monotonic())
        question, version, heard = QUESTIONS[0]
        for listener in TWO["listeners"].split(","):
            endpoint = changed._broker.endpoints[listener.partition(":")[0]]
            peer = Peer(lambda endpoint=endpoint: Address(endpoint.host, endpoint.port))
            assert WireError((await peer.ask(question, version)).error_code) is heard, listener
            await peer.stop()
        await unchanged.stop()
        await changed.stop()

    loops.run("uvloop", scenario())
