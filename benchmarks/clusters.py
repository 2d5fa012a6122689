"""Clusters of three brokers: Moldau on ZooKeeper, and Apache Kafka with combined brokers and controllers.

Built from `peers` and measured from the outside, like them. Generates no load.
"""

import contextlib
import itertools
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import moldau
from benchmarks.jars import KAFKA_VERSION, Jars
from benchmarks.peers import KAFKA_JVM, SETTINGS, Peer, format_storage, free_port
from benchmarks.topics import Topic
from moldau.ensemble.ports import HOST
from moldau.testing.zookeeper import ZooKeeper

BROKERS = 3
LIMIT_S = 120.0
_numbers = itertools.count()
REPLICATED = {  # of both
    **SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class ClusterKind(Protocol):
    """How to build one kind of cluster: its brokers, and the processes that they need."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def nodes(self, stack: contextlib.ExitStack, home: Path) -> "Nodes":
        """The nodes, prepared but not started; the stack ends other processes."""


@dataclass(slots=True)
class Nodes:
    peers: list[Peer]
    beside: list[int] = field(default_factory=list)  # ZooKeeper processes


@dataclass(frozen=True, slots=True)
class MoldauNode:
    number: int
    zookeeper: str
    settings: Mapping[str, str]
    name: str = "Moldau"
    version: str = moldau.__version__

    def prepare(self, home: Path, port: int) -> None:
        (home / "data").mkdir()

    def command(self, home: Path, port: int) -> list[str]:
        settings = {**self.settings, "broker.id": str(self.number), "zookeeper.connect": self.zookeeper}
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        where = ["--dir", str(home / "data"), "--listen", f"{HOST}:{port}"]
        return [sys.executable, "-m", "moldau", "broker", *where, *given]


@dataclass(frozen=True, slots=True)
class ApacheKafkaNode:
    jars: Jars
    number: int
    controllers: Mapping[int, int]  # node → port of its controller; other nodes are brokers alone
    settings: Mapping[str, str]
    name: str = "Apache Kafka"
    version: str = KAFKA_VERSION

    def prepare(self, home: Path, port: int) -> None:
        voters = ",".join(f"{number}@{HOST}:{each}" for number, each in self.controllers.items())
        controller = self.controllers.get(self.number)
        listener = f",CONTROLLER://{HOST}:{controller}" if controller else ""
        settings = {
            "process.roles": "broker,controller" if controller else "broker",
            "node.id": str(self.number),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{port}{listener}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(home / "data"),
            **self.settings,
        }
        properties = home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        format_storage(self.jars, properties)

    def command(self, home: Path, port: int) -> list[str]:
        return self.jars.command("kafka.Kafka", str(home / "server.properties"), options=KAFKA_JVM)


@dataclass(frozen=True, slots=True)
class MoldauCluster:
    settings: Mapping[str, str] = field(default_factory=dict)
    name: str = "Moldau"
    version: str = moldau.__version__

    def nodes(self, stack: contextlib.ExitStack, home: Path) -> Nodes:
        zookeeper = stack.enter_context(ZooKeeper(1, home / "zookeeper"))
        settings = {**REPLICATED, **self.settings}
        peers = [
            _prepared(home, number, MoldauNode(number, zookeeper.connect, settings)) for number in range(1, BROKERS + 1)
        ]
        return Nodes(peers, _listening_on(zookeeper.connect))


@dataclass(frozen=True, slots=True)
class ApacheKafkaCluster:
    jars: Jars
    settings: Mapping[str, str] = field(default_factory=dict)
    name: str = "Apache Kafka"
    version: str = KAFKA_VERSION

    def nodes(self, stack: contextlib.ExitStack, home: Path) -> Nodes:
        return Nodes(self.prepared(home))

    def prepared(self, home: Path) -> list[Peer]:
        controllers = {number: free_port() for number in range(1, BROKERS + 1)}
        settings = {**REPLICATED, **self.settings}
        return [
            _prepared(home, number, ApacheKafkaNode(self.jars, number, controllers, settings)) for number in controllers
        ]


def _prepared(home: Path, number: int, kind: MoldauNode | ApacheKafkaNode) -> Peer:
    peer = Peer(f"broker {number}", kind, home / str(number), free_port())
    peer.home.mkdir(parents=True)
    kind.prepare(peer.home, peer.port)
    return peer


def _listening_on(addresses: str) -> list[int]:
    ports = {int(address.rpartition(":")[2]) for address in addresses.split(",")}
    return [
        int(each.pid)
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port in ports and each.pid
    ]


@dataclass(slots=True)
class RunningCluster:
    """A running cluster; figures are sums over its brokers, without ZooKeeper."""

    label: str
    kind: ClusterKind
    nodes: Nodes

    @property
    def bootstrap(self) -> str:
        return ",".join(peer.bootstrap for peer in self.nodes.peers)

    def leader_of(self, topic: str) -> int:
        """The leader of its first partition. A broker that has just come back may not know the topic yet."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = self._admin().list_topics(topic, timeout=LIMIT_S).topics[topic].partitions.get(0)
            if found is not None and found.leader >= 0:
                return int(found.leader)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has no leader")
            time.sleep(0.05)

    @contextlib.contextmanager
    def topic(self, partitions: int) -> Iterator[Topic]:
        """A new topic, in sync on all brokers; deleted with its files at the end."""
        name, admin = f"bench-{next(_numbers)}", self._admin()
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=BROKERS)
        admin.create_topics([wanted], operation_timeout=LIMIT_S)[name].result(LIMIT_S)
        self.await_in_sync(name, partitions)
        try:
            yield Topic(name, uuid.UUID(int=0), partitions)
        finally:
            admin.delete_topics([name], operation_timeout=LIMIT_S)[name].result(LIMIT_S)
            self.await_gone(name)
            os.sync()

    def await_known(self) -> None:
        """Wait until every broker knows all others."""
        deadline = time.monotonic() + LIMIT_S
        for peer in self.nodes.peers:
            admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
            while len(admin.list_topics(timeout=LIMIT_S).brokers) < BROKERS:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{peer.label} does not know of all others")
                time.sleep(0.05)

    def await_in_sync(self, name: str, partitions: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = self._admin().list_topics(name, timeout=LIMIT_S).topics[name].partitions.values()
            if len(found) == partitions and all(len(each.isrs) == BROKERS for each in found):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} is not in sync: {[each.isrs for each in found]}")
            time.sleep(0.05)

    def await_gone(self, name: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while any(any(peer.data.glob(f"{name}-*")) for peer in self.nodes.peers) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def cpu_seconds(self) -> float:
        return sum(peer.cpu_seconds() for peer in self.nodes.peers)

    def rss_bytes(self) -> int:
        return sum(peer.rss_bytes() for peer in self.nodes.peers)

    def beside_rss_bytes(self) -> int:
        return sum(int(psutil.Process(pid).memory_info().rss) for pid in self.nodes.beside)


@contextlib.contextmanager
def running_cluster(kind: ClusterKind, workdir: Path, label: str) -> Iterator[RunningCluster]:
    """Run a cluster in new directories under `workdir`; processes and directories are always removed."""
    home = workdir / f"{label}-{free_port()}"
    home.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        nodes = kind.nodes(stack, home)
        for peer in nodes.peers:
            stack.callback(peer.kill)
            peer.launch()
        for peer in nodes.peers:
            peer.await_ready()
        cluster = RunningCluster(label, kind, nodes)
        cluster.await_known()
        yield cluster
