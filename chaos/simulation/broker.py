"""A simulated broker: real logs, roles, fetchers, fetch sessions and Fetch handler; simulated cluster, clock and disk.

It has no listeners and no wire format (handlers are called directly), no coordinators and no controller.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from chaos.simulation.disk import lose_power
from chaos.simulation.network import Connection, Network
from moldau.broker.clock import Clock
from moldau.broker.fetch_sessions import FetchSessionCache
from moldau.broker.replica_manager import ReplicaManager
from moldau.broker.scheduler import PeriodicTask, Scheduler
from moldau.broker.settings import load
from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from moldau.wire.messages.alter_partition import AlterPartitionResponse, AlterPartitionTopic

BEGINNING_MS = 1_800_000_000_000  # when simulated time starts
LAG_MS = 6_000  # replica.lag.time.max.ms
CHECKPOINT_MS = 5_000
RETENTION_MS = 7_000  # interval of retention checks
SLOTS = 100  # fetch sessions


class Cluster(Protocol):
    """The cluster as a broker sees it."""

    network: Network
    config: LogConfig

    def broker(self, broker_id: int) -> "SimulatedBroker | None":
        """The broker with this id, if it is running."""

    async def alter(
        self, asker: int, epoch: int, topics: Sequence[AlterPartitionTopic]
    ) -> AlterPartitionResponse | None:
        """Send AlterPartition to the controller."""


class SkewedClock(Clock):
    """Simulated time, with the error of this machine's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def now(self) -> int:
        return BEGINNING_MS + self.ahead_ms + int(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, span_ms: float) -> None:
        await asyncio.sleep(span_ms / 1000)


class SimulatedBroker:
    """One process of a broker, from `start` to `kill` or `stop`. `image` is its copy of the metadata."""

    def __init__(self, cluster: Cluster, broker_id: int, home: Path, image: ClusterImage) -> None:
        self.id, self.image = broker_id, image
        self.alive = True
        self.epoch = -1  # of its registration
        self.clock = SkewedClock()
        self._cluster = cluster
        self._tasks: set[asyncio.Task[None]] = set()
        settings = {"broker.id": str(broker_id), "replica.lag.time.max.ms": str(LAG_MS)}
        self._settings, _ = load({"zookeeper.connect": "simulated", **settings})
        self._directory = LogDirectory.open(home)
        self.replicas = Replicas(broker_id, [self._directory], lambda _: cluster.config, self.clock.now, 86_400_000)
        lifecycle: Any = SimpleNamespace(registration=self, alter_partitions=self._alter)
        peers: Any = SimpleNamespace(to=self._link)
        self._replication = ReplicaManager(
            self.replicas, peers, lifecycle, lambda: self.image, lambda: self._settings, self.clock.now, self._give_up
        )
        self.context: Any = SimpleNamespace(
            authorizer=None,
            replicas=self.replicas,
            config=self._settings,
            image=image,
            fetch_sessions=FetchSessionCache(SLOTS),
            now=self.clock.now,
        )

    def start(self, *, trusted: bool) -> None:
        self.replicas.load(self.image, 1, lambda: False, trusted=trusted)
        self._replication.start()
        self._scheduler = Scheduler(
            (
                PeriodicTask("lagging followers", LAG_MS // 2, self._replication.shrink),
                PeriodicTask("checkpoints", CHECKPOINT_MS, self._checkpoint),
                PeriodicTask("retention", RETENTION_MS, self.replicas.retire),
            ),
            self.clock,
        )

    async def _checkpoint(self) -> None:
        await self.replicas.checkpoint()

    def learn(self, image: ClusterImage) -> None:
        """Apply the next entry of the change feed."""
        old, self.image, self.context.image = self.image, image, image
        self.replicas.follow(old, image)
        self._replication.follow(old, image)

    def partitions(self) -> Iterator[Partition]:
        return iter(self.replicas)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _link(self, leader: int, purpose: str) -> Connection:
        network = self._cluster.network
        return network.connection(self.id, lambda: self._cluster.broker(leader), leader)

    async def _alter(self, topics: Sequence[AlterPartitionTopic], patience_s: float) -> AlterPartitionResponse | None:
        try:
            return await asyncio.wait_for(self._cluster.alter(self.id, self.epoch, topics), patience_s)
        except TimeoutError:
            return None

    def _give_up(self, reason: str) -> None:
        raise AssertionError(reason)

    # ── shutdown ──

    async def stop(self) -> None:
        """Shut down cleanly, as after SIGTERM."""
        await self._end_tasks()
        await self.replicas.stop()

    async def kill(self, *, power: random.Random | None = None) -> None:
        """Stop without further writes. With `power` the machine loses power too, and unsynced data is lost."""
        logs = [partition.log for partition in self.replicas]
        durable = {log.directory: log.recovery_point for log in logs}
        await self._end_tasks()
        for log in logs:
            log.close(clean=False)
        self._directory.close(clean=False)
        if power is not None:
            for directory, offset in durable.items():
                lose_power(Path(directory), offset, power)

    async def _end_tasks(self) -> None:
        self.alive = False
        self._cluster.network.forget(self.id)
        self.replicas.deletes.cancel()
        for task in list(self._tasks):
            task.cancel()
        for partition in self.replicas:
            flushing = partition.flusher._task
            if flushing is not None:
                flushing.cancel()
        await self._scheduler.stop()
        await self._replication.stop()


def one_after_another(
    jobs: Sequence[Any], directory_of: Callable[[Any], Path], work: Callable[[Any], Any], threads: int
) -> Iterator[tuple[Any, Any]]:
    """Open logs without threads, so that their order depends only on the seed."""
    return ((job, work(job)) for job in jobs)
