"""Failover time of many partitions when the broker that leads all of them is killed.

Measured from the kill, so the time until it is noticed is in it: until every broker that is left names a new leader for
every partition, and until each of them has taken a record with acks=all.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from uuid import UUID

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.clusters import BROKERS, LIMIT_S, RunningCluster
from benchmarks.frames import batch
from benchmarks.measures import Figures
from benchmarks.peers import Peer
from moldau.client.direct.connection import Connection
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TOPIC = "led-by-one"
LOOK_S = 0.05  # between two metadata requests
ACKS_ALL = -1
NO_LEADER = 0
RECORD = batch(1, 100)

Leaders = dict[int, int]  # partition → broker, for those that have one


def measure(cluster: RunningCluster, partitions: int, *, controller: bool) -> Figures:
    """kill -9 the leader of all partitions, with or without the controller; restart it afterwards."""
    victim = _victim(cluster, controller=controller)
    with _led_by(cluster, victim, partitions):
        _warm(cluster, victim, partitions)
        peers = [peer for number, peer in enumerate(cluster.nodes.peers, start=1) if number != victim]
        watches = [_Watch(peer, victim, partitions) for peer in peers]
        producer = _Producer(cluster, watches, partitions)
        cluster.nodes.peers[victim - 1].kill()
        begun = time.perf_counter()
        try:
            for each in (*watches, producer):
                each.start()
            for each in (*watches, producer):
                each.join()
        finally:
            cluster.nodes.peers[victim - 1].start()
            cluster.await_in_sync(TOPIC, partitions)
    known = [each.done_at - begun for each in watches]
    return {"leaders_ms": max(known) * 1000, "produce_ms": (producer.done_at - begun) * 1000}


def _victim(cluster: RunningCluster, *, controller: bool) -> int:
    connection = _connect(cluster.nodes.peers[0])
    try:
        current = connection.ask(MetadataRequest(topics=()), MetadataResponse).controller_id
    finally:
        connection.close()
    return current if controller else current % BROKERS + 1


@contextlib.contextmanager
def _led_by(cluster: RunningCluster, leader: int, partitions: int) -> Iterator[None]:
    """A topic with one preferred leader for all partitions, in sync on all brokers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    order = [leader, *(each for each in range(1, BROKERS + 1) if each != leader)]
    wanted = NewTopic(TOPIC, num_partitions=partitions, replica_assignment=[order] * partitions)
    admin.create_topics([wanted], operation_timeout=LIMIT_S)[TOPIC].result(LIMIT_S)
    cluster.await_in_sync(TOPIC, partitions)
    try:
        yield
    finally:
        admin.delete_topics([TOPIC], operation_timeout=LIMIT_S)[TOPIC].result(LIMIT_S)
        cluster.await_gone(TOPIC)


def _warm(cluster: RunningCluster, leader: int, partitions: int) -> None:
    """A record with acks=all in each partition: every replica of it is open, and is copied."""
    watch = _Watch(cluster.nodes.peers[leader - 1], NO_LEADER, partitions)
    producer = _Producer(cluster, [watch], partitions)
    for each in (watch, producer):
        each.start()
    for each in (watch, producer):
        each.join()


class _Watch(threading.Thread):
    """Asks one broker for the leaders until it knows new ones of all partitions."""

    def __init__(self, peer: Peer, victim: int, partitions: int) -> None:
        super().__init__(daemon=True)
        self.done_at = float("inf")
        self.leaders: Leaders = {}
        self.topic_id = UUID(int=0)
        self._victim, self._partitions = victim, partitions
        self._connection = _connect(peer)
        self._request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),), allow_auto_topic_creation=False)

    def run(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            (topic,) = self._connection.ask(self._request, MetadataResponse).topics
            self.topic_id = topic.topic_id
            self.leaders = {
                row.partition_index: row.leader_id
                for row in topic.partitions
                if row.leader_id not in (-1, self._victim) and not row.error_code
            }
            if len(self.leaders) == self._partitions:
                self.done_at = time.perf_counter()
                break
            time.sleep(LOOK_S)
        self._connection.close()


class _Producer(threading.Thread):
    """Writes a record to every partition that has a new leader, until each has taken one."""

    def __init__(self, cluster: RunningCluster, watches: list[_Watch], partitions: int) -> None:
        super().__init__(daemon=True)
        self.done_at = float("inf")
        self._watches = watches
        self._left = set(range(partitions))
        self._connections = {number: _connect(peer) for number, peer in enumerate(cluster.nodes.peers, start=1)}

    def run(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self._left and time.monotonic() < deadline:
            leaders: Leaders = {}
            for watch in self._watches:
                leaders |= watch.leaders
            by_leader: dict[int, list[int]] = {}
            for index in sorted(self._left & leaders.keys()):
                by_leader.setdefault(leaders[index], []).append(index)
            for leader, indexes in by_leader.items():
                self._write(self._connections[leader], self._watches[0].topic_id, indexes)
            time.sleep(LOOK_S / 5)
        if not self._left:
            self.done_at = time.perf_counter()
        for connection in self._connections.values():
            connection.close()

    def _write(self, connection: Connection, topic_id: UUID, indexes: list[int]) -> None:
        rows = tuple(PartitionProduceData(index=index, records=RECORD) for index in indexes)
        topic = TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=rows)
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=10_000, topic_data=(topic,))
        response = connection.ask(request, ProduceResponse)
        self._left -= {
            row.index for topic in response.responses for row in topic.partition_responses if not row.error_code
        }


def _connect(peer: Peer) -> Connection:
    host, port = peer.address
    return Connection(host, port, client_id="benchmark", timeout_s=LIMIT_S)
