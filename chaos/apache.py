"""Three Apache Kafka nodes with the methods of `moldau.testing.Cluster` that a check of the checker needs.

An anomaly on Apache Kafka is more likely an error of the checker or of a client than of the cluster.
"""

import os
import shutil
import signal
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata

from benchmarks.clusters import ApacheKafkaCluster
from benchmarks.jars import Jars
from benchmarks.peers import Peer
from moldau.client.direct.connection import Connection
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "unclean.leader.election.enable": "false",
}
ASK_S = 10.0


class ApacheCluster:
    def __init__(self, jars: Jars, directory: Path) -> None:
        self._directory = directory
        self._kind = ApacheKafkaCluster(jars, SETTINGS)
        self._peers: dict[int, Peer] = {}
        self._paused: set[int] = set()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(peer.bootstrap for peer in self._peers.values())

    @property
    def broker_ids(self) -> list[int]:
        return sorted(self._peers)

    @property
    def controller(self) -> int:
        return int(self._admin().list_topics(timeout=ASK_S).controller_id)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        return int(self._topic(topic).partitions[partition].leader)

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return set(self._topic(topic).partitions[partition].isrs)

    def metadata(self) -> MetadataResponse:
        problem: OSError = ConnectionError("no broker answers")
        for broker_id, peer in self._peers.items():
            host, _, port = peer.bootstrap.rpartition(":")
            try:
                if broker_id not in self._paused:
                    return _metadata(host, int(port))
            except OSError as failure:
                problem = failure
        raise problem

    def start(self, broker_id: int) -> None:
        self._peers[broker_id].start()

    def stop(self, broker_id: int) -> None:
        self._peers[broker_id].stop()

    def kill(self, broker_id: int) -> None:
        self._peers[broker_id].kill()
        self._paused.discard(broker_id)

    def pause(self, broker_id: int) -> None:
        os.kill(self._peers[broker_id].pid, signal.SIGSTOP)
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        if broker_id in self._paused:
            os.kill(self._peers[broker_id].pid, signal.SIGCONT)
            self._paused.discard(broker_id)

    def __enter__(self) -> "ApacheCluster":
        nodes = self._kind.prepared(self._directory)
        self._peers = dict(enumerate(nodes, start=1))
        for peer in nodes:
            peer.launch()
        for peer in nodes:
            peer.await_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker_id, peer in self._peers.items():
            self.resume(broker_id)
            peer.kill()
        if kind is None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _topic(self, topic: str) -> TopicMetadata:
        found = self._admin().list_topics(topic, timeout=ASK_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return found


def _metadata(host: str, port: int) -> MetadataResponse:
    connection = Connection(host, port, client_id="chaos", timeout_s=ASK_S)
    try:
        return connection.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
    finally:
        connection.close()
