"""A real cluster inside a test: brokers and a ZooKeeper as processes, on free ports, with a network that can fail.

    with Cluster(brokers=3, min_insync_replicas=2) as cluster:
        cluster.kill(cluster.leader_of("orders", 0))

Clients talk to the brokers directly. Brokers talk to each other and to ZooKeeper through proxies (see proxies.py),
which `isolate` holds up; so an isolated broker still answers its clients.
"""

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar, get_args

from moldau.client.direct.connection import Connection
from moldau.client.direct.security import PLAINTEXT, Security
from moldau.ensemble.ports import HOST, free_ports
from moldau.testing.broker import Broker, BrokerFailed, dotted
from moldau.testing.proxies import Network, Proxy
from moldau.testing.zookeeper import ZooKeeper
from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

Direction = Literal["both", "in", "out"]
Found = TypeVar("Found")
Response = TypeVar("Response")

ZOOKEEPER = "zookeeper-"  # and the number of a server: other parties of the proxied network
NO_LEADER = -1
# Short timeouts, and internal topics that are small enough to be created quickly.
SHORT_WAITS = {
    "zookeeper.session.timeout.ms": 2000,
    "zookeeper.connection.timeout.ms": 30_000,
    "replica.lag.time.max.ms": 5000,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
}
PATIENCE_S = 60.0  # for `wait_for`: long enough that a timeout means a failure, not a slow machine
ASK_AGAIN_S = 0.05
ASK_S = 10.0


class Cluster:
    """Brokers 1 to `brokers`. Settings are Kafka's, with underscores for dots, and apply to all brokers.

    `security` is the login of this object itself, which asks brokers for metadata, on the listener CLIENTS.
    `racks` names the rack of each broker. Without `proxies` brokers talk directly, and cannot be isolated. With
    `directory` the data stays, and brokers are stopped in order; without, they are killed in the end and all is gone.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Sequence[str | None] = (),
        zookeeper_nodes: int = 1,
        proxies: bool = True,
        security: Security = PLAINTEXT,
        directory: str | Path | None = None,
        **settings: object,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has one broker or more, not {brokers}")
        self._own = Path(tempfile.mkdtemp(prefix="moldau-cluster-")) if directory is None else None
        self.directory = Path(directory) if directory is not None else self._own or Path()
        self.zookeeper = ZooKeeper(zookeeper_nodes, self.directory / "zookeeper")
        self._servers = [f"{ZOOKEEPER}{node}" for node in range(zookeeper_nodes)]
        copies = min(brokers, 3)
        defaults = {
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
        }
        given = {dotted(name): value for name, value in settings.items()}
        self._settings: dict[str, object] = {**SHORT_WAITS, **defaults, **given}
        self._wanted = [
            (number, racks[number - 1] if number <= len(racks) else None) for number in range(1, brokers + 1)
        ]
        self._security = security
        self._network = Network(self._pids) if proxies else None
        self._brokers: dict[int, Broker] = {}
        self._doors: dict[int, Proxy] = {}  # through which other brokers reach each one
        self._running: set[int] = set()
        self._paused: set[int] = set()
        self._isolated: set[int] = set()
        self._uninformed: set[int] = set()  # brokers without ZooKeeper

    # State.

    @property
    def broker_ids(self) -> list[int]:
        """Ids of all brokers, running or not."""
        return sorted(self._brokers)

    @property
    def running(self) -> list[int]:
        return sorted(self._running)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._brokers[each].bootstrap_servers for each in self.broker_ids)

    @property
    def controller(self) -> int:
        """Id of the controller."""
        return self.metadata().controller_id

    def broker(self, broker_id: int) -> Broker:
        """The broker with this id; raises LookupError."""
        if broker_id not in self._brokers:
            raise LookupError(f"there is no broker {broker_id}, only {', '.join(map(str, self.broker_ids)) or 'none'}")
        return self._brokers[broker_id]

    def log_text(self, broker_id: int) -> str:
        """The log of this broker, over all restarts."""
        return self.broker(broker_id).log_text()

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Id of the partition's leader, -1 without one; raises LookupError for an unknown partition."""
        found = self._latest(topic, partition)
        if found is None:
            raise LookupError(f"there is no partition {topic}-{partition}")
        return found.leader_id

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """Ids of the partition's in-sync replicas."""
        found = self._latest(topic, partition)
        return set(found.isr_nodes) if found is not None else set()

    def _latest(self, topic: str, partition: int) -> MetadataResponsePartition | None:
        """Metadata with the highest leader epoch: a broker that was just healed may have stale metadata."""
        seen: list[tuple[int, bool, MetadataResponsePartition]] = []
        problem: Exception = BrokerFailed("no broker is running")
        answered = False
        for each in self._reachable():
            if answered and each in self._isolated:
                break
            try:
                rows = [row for found in self.metadata(topic, of=each).topics for row in found.partitions]
            except OSError as error:
                problem = error
                continue
            answered = True
            seen += [(row.leader_epoch, row.leader_id == each, row) for row in rows if row.partition_index == partition]
        if not answered:
            raise problem
        return max(seen, key=lambda each: each[:2])[2] if seen else None

    def _reachable(self) -> list[int]:
        """Reachable brokers; those that may have stale metadata come last."""
        cut_off = self._isolated | self._uninformed
        return sorted((each for each in self.running if each not in self._paused), key=lambda each: each in cut_off)

    def metadata(self, topic: str | None = None, *, of: int | None = None) -> MetadataResponse:
        """Metadata from this broker, or from one that is neither paused nor isolated."""
        asked = [of] if of is not None else self._reachable()
        topics = None if topic is None else (MetadataRequestTopic(name=topic),)
        problem: Exception = BrokerFailed("no broker is running")
        for each in asked:
            try:
                return self._ask(
                    each, MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse
                )
            except OSError as error:
                problem = error
        raise problem

    def registered(self, of: int) -> set[int]:
        """Live brokers as a broker sees them. Metadata still lists one that has just died."""
        answer = self._ask(
            of, DescribeClusterRequest(include_cluster_authorized_operations=False), DescribeClusterResponse
        )
        return {row.broker_id for row in answer.brokers}

    def wait_for(self, condition: Callable[[], Found], what: str = "the condition") -> Found:
        """Wait until the condition is true, and return its value. Unreachable brokers count as false."""
        until = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError, LookupError):
                found = condition()
                if found:
                    return found
            if time.monotonic() > until:
                raise TimeoutError(f"{what} did not come true within {PATIENCE_S:.0f} s")
            time.sleep(ASK_AGAIN_S)

    # Faults.

    def start(self, broker_id: int) -> None:
        """Start a stopped broker, and wait until it is ready."""
        if broker_id in self._running:
            return
        broker, door = self.broker(broker_id), self._doors.get(broker_id)
        if door is not None:
            door.listen()
        broker.start()
        self._running.add(broker_id)
        if door is not None:
            door.target_runs = True

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly, as SIGTERM does, with controlled shutdown."""
        self.resume(broker_id)
        self._running.discard(broker_id)
        self.broker(broker_id).stop()
        self._close_door(broker_id)

    def kill(self, broker_id: int) -> None:
        """Kill a broker, as `kill -9` does."""
        broker = self.broker(broker_id)
        self._close_door(broker_id)
        self._running.discard(broker_id)
        self._paused.discard(broker_id)
        broker.kill()

    def restart(self, broker_id: int) -> None:
        """Stop a broker cleanly, if it runs, and start it again."""
        if broker_id in self._running:
            self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Pause a broker (SIGSTOP): its connections stay open and are silent."""
        self._signal(broker_id, signal.SIGSTOP)
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker (SIGCONT)."""
        if broker_id in self._paused:
            self._signal(broker_id, signal.SIGCONT)
            self._paused.discard(broker_id)

    def isolate(self, broker_id: int, direction: Direction = "both", *, zookeeper: bool = True) -> None:
        """Isolate a broker from the others and, by default, from ZooKeeper. Clients still reach it.

        "out": nothing that it sends arrives, neither requests nor responses; "in": nothing arrives at it.
        """
        self.broker(broker_id)
        if direction not in get_args(Direction):
            raise ValueError(f"{direction!r} is none of {', '.join(get_args(Direction))}")
        others = [each for each in self.broker_ids if each != broker_id]
        self._cut_off(broker_id, [*others, *(self._servers if zookeeper else ())], direction)
        self._isolated.add(broker_id)

    def cut(self, sender: int, receiver: int) -> None:
        """Drop everything that one broker sends to the other, on connections in both directions."""
        self.broker(sender), self.broker(receiver)
        self._proxied().hold(sender, receiver)

    def isolate_from_zookeeper(self, broker_id: int) -> None:
        """Isolate a broker from ZooKeeper only."""
        self.broker(broker_id)
        self._cut_off(broker_id, self._servers, "both")
        self._uninformed.add(broker_id)

    def isolate_zookeeper(self, node: int, direction: Direction = "both") -> None:
        """Isolate a ZooKeeper server, numbered from 0, from all brokers; the servers still reach each other."""
        self._cut_off(self._servers[node], self.broker_ids, direction)

    def heal(self) -> None:
        """Restore the network; held-up bytes arrive."""
        self._proxied().heal()
        self._isolated.clear()
        self._uninformed.clear()
        for broker_id in set(self._doors) - self._running:
            self._doors[broker_id].refuse()

    def add_broker(self, rack: str | None = None) -> int:
        """Add a broker; returns its id."""
        broker_id = max(self._brokers, default=0) + 1
        self._prepare(broker_id, rack)
        self.start(broker_id)
        self._await_all_known()
        return broker_id

    # Construction.

    def __enter__(self) -> "Cluster":
        try:
            self.zookeeper.start()
            for broker_id, rack in self._wanted:
                self._prepare(broker_id, rack)
            with ThreadPoolExecutor(len(self._wanted)) as threads:
                list(threads.map(self.start, self.broker_ids))
            self._await_all_known()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._own is None and kind is None:
                for broker_id in self.running:
                    self.stop(broker_id)
        finally:
            self._end()

    def _prepare(self, broker_id: int, rack: str | None) -> None:
        """Ports, proxies and settings of a broker."""
        client_port, inner_port = free_ports(2)
        advertised, ensemble = f"{HOST}:{inner_port}", self.zookeeper.connect
        if self._network is not None:
            door = self._network.proxy(broker_id, inner_port)
            self._doors[broker_id] = door
            servers = [int(address.rpartition(":")[2]) for address in ensemble.split(",")]
            ways = [
                self._network.proxy(name, port, source=broker_id)
                for name, port in zip(self._servers, servers, strict=True)
            ]
            advertised, ensemble = door.address, ",".join(way.address for way in ways)
        settings: dict[str, object] = {
            "broker.id": broker_id,
            "zookeeper.connect": ensemble,
            "listeners": f"CLIENTS://{HOST}:{client_port},BROKERS://{HOST}:{inner_port}",
            "advertised.listeners": f"CLIENTS://{HOST}:{client_port},BROKERS://{advertised}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            **({} if rack is None else {"broker.rack": rack}),
            **self._settings,
        }
        self._brokers[broker_id] = Broker(self.directory / f"broker-{broker_id}", **settings)

    def _await_all_known(self) -> None:
        """Paused and isolated brokers have no news, and are not waited for."""
        waited = self._running - self._paused - self._isolated

        def known() -> bool:
            return all(waited <= self.registered(each) for each in waited)

        self.wait_for(known, "that every broker knows every other")

    def _ask(self, broker_id: int, request: object, response: type[Response]) -> Response:
        host, _, port = self._brokers[broker_id].bootstrap_servers.rpartition(":")
        connection = Connection(host, int(port), self._security, client_id="moldau-testing", timeout_s=ASK_S)
        try:
            return connection.ask(request, response)
        finally:
            connection.close()

    def _signal(self, broker_id: int, number: signal.Signals) -> None:
        self.broker(broker_id).signal(number)

    def _pids(self) -> dict[Hashable, int]:
        return {broker_id: broker.pid for broker_id, broker in list(self._brokers.items()) if broker.alive}

    def _close_door(self, broker_id: int) -> None:
        door = self._doors.get(broker_id)
        if door is not None and broker_id not in self._isolated:
            door.refuse()

    def _cut_off(self, party: Hashable, others: Sequence[Hashable], direction: Direction) -> None:
        for other in others:
            if direction in ("both", "out"):
                self._proxied().hold(party, other)
            if direction in ("both", "in"):
                self._proxied().hold(other, party)

    def _proxied(self) -> Network:
        if self._network is None:
            raise BrokerFailed("this cluster was made without proxies")
        return self._network

    def _end(self) -> None:
        """Kill running processes, and remove our own data."""
        with contextlib.ExitStack() as ending:
            if self._own is not None:
                ending.callback(shutil.rmtree, self._own, ignore_errors=True)
            if self._network is not None:
                ending.callback(self._network.close)
            ending.callback(self.zookeeper.stop)
            for broker in self._brokers.values():
                ending.callback(broker.kill)
        self._running.clear()
