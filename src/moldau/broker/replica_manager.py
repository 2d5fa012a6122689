"""Replication put together, for a broker of a cluster: fetchers, changes of in-sync replicas, and their chores.

What a partition does as leader or follower is in `moldau.replication`; here it gets connections, settings and a
controller to ask. A single node has none of this.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from moldau.base.errors import WireError
from moldau.broker.cluster.broker_lifecycle import BrokerLifecycle
from moldau.broker.peers import Peers
from moldau.broker.settings import BrokerConfig
from moldau.log.repair import corruption_check, valid_to
from moldau.metadata.image import ClusterImage
from moldau.net.peer import PeerLost
from moldau.replication.altering import Granted, IsrChanges, Proposal
from moldau.replication.fetcher import FetchSettings, Hands
from moldau.replication.fetchers import Fetchers, ask_bounds
from moldau.replication.follower import Follower
from moldau.replication.leader import Leader
from moldau.replication.owners import NO_OWNER
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from moldau.replication.roles import Surroundings
from moldau.replication.throttle import Throttle
from moldau.replication.withdrawing import Withdrawals
from moldau.wire.fetching import FetchLimits
from moldau.wire.messages.alter_partition import (
    AlterPartitionData,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)

logger = logging.getLogger("moldau.broker")

ASKING_S = 5.0  # how long one attempt to reach the controller may take
AT_A_TIME = 200  # partitions that are looked at before others get their turn
LOOK_AGAIN_S = 1.0  # at a damaged log, if there were too many open files
PAUSED = 3  # a chore that comes so many times too late says that the whole process stood still


class ReplicaManager:
    def __init__(
        self,
        replicas: Replicas,
        peers: Peers,
        lifecycle: BrokerLifecycle,
        image: Callable[[], ClusterImage],
        config: Callable[[], BrokerConfig],
        now: Callable[[], int],
        give_up: Callable[[str], None],
    ) -> None:
        self._replicas = replicas
        self._lifecycle = lifecycle
        self._image = image
        self._config = config
        self._now = now
        self._give_up = give_up
        self._node_id = node_id = config().node_id
        self._shrunk_at: float | None = None
        self._repairs: dict[Partition, asyncio.Task[None]] = {}
        self.throttle = Throttle()  # of what is copied to this broker
        self._changes = IsrChanges(self._alter, self._epoch_of, node_id)
        self._withdrawals = Withdrawals(self._alter, replicas, image, node_id)
        lag_ms = config().replica_lag_time_max_ms
        # How long a follower lags is time that passed, whatever somebody sets the machine's clock to.
        steady = asyncio.get_running_loop().time
        replicas.around = Surroundings(node_id, lambda: int(steady() * 1000), self._epoch_of, self._changes.ask, lag_ms)
        hands = Hands(
            replica=lambda: (node_id, lifecycle.registration.epoch),
            settings=self._settings,
            now=now,
            remove_later=replicas.deletes.schedule,
            bounds=lambda link, partitions: ask_bounds(link, partitions, node_id),
            throttle=self.throttle,
            checkpoint=replicas.checkpoint,
        )
        self._fetchers = Fetchers(peers.to, hands, config().num_replica_fetchers)

    def start(self) -> None:
        """The logs are open: copy what others lead."""
        self._replicas.owner = self
        self._changes.start()
        self._withdrawals.start()
        for partition in self._replicas:
            self._assign(partition)

    async def stop(self) -> None:
        self._replicas.owner = NO_OWNER
        for task in self._repairs.values():
            task.cancel()
        await asyncio.gather(*self._repairs.values(), return_exceptions=True)
        await self._changes.stop()
        await self._withdrawals.stop()
        await self._fetchers.stop()

    def _assign(self, partition: Partition) -> None:
        """A partition has another role, or is damaged: a follower's log is repaired before it is copied to again."""
        if not self._has(partition):
            return
        if partition.standing.corrupt and isinstance(partition.role, Follower) and not partition.offline:
            self._fetchers.dismiss(partition)
            self._begin(partition, self._repair(partition))
        else:
            self._fetchers.assign(partition)

    def _begin(self, partition: Partition, work: Coroutine[Any, Any, None]) -> None:
        """One at a time for a partition: it takes a look at its files."""
        if partition in self._repairs:
            work.close()
            return
        task = self._repairs[partition] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._ended(partition, task))

    def _ended(self, partition: Partition, task: asyncio.Task[None]) -> None:
        self._repairs.pop(partition, None)
        if task.cancelled():
            return
        problem = task.exception()
        if problem is not None:
            logger.error("repairing %s-%d failed", partition.topic, partition.index, exc_info=problem)
        elif partition.standing.corrupt and self._replicas.owner is self:  # found by a look, or while it was looked at
            self._assign(partition)

    # ── what replicas report ──

    def role_changed(self, partition: Partition) -> None:
        self._assign(partition)

    def log_corrupt(self, partition: Partition) -> None:
        self._assign(partition)

    def removed(self, partition: Partition) -> None:
        self._fetchers.dismiss(partition)

    def went_offline(self) -> None:
        self._withdrawals.look()

    def all_directories_failed(self, reason: str) -> None:
        self._give_up(reason)

    def records_suspect(self, partition: Partition, offset: int) -> None:
        """Followers cannot use what they are sent: only a reader looks at the payload."""
        self._begin(partition, self._look(partition, offset))

    async def _look(self, partition: Partition, offset: int) -> None:
        name = f"{partition.topic}-{partition.index}"
        if await asyncio.to_thread(corruption_check(partition.log, offset)):
            logger.error("%s is damaged behind offset %d", name, offset)
            partition.cannot_read()

    async def _repair(self, partition: Partition) -> None:
        """Cut off what is damaged, and all behind it: the leader has it."""
        while True:
            try:
                end = await asyncio.to_thread(valid_to, partition.log)
                break
            except OSError as problem:
                logger.warning("%s-%d cannot be looked at just now: %s", partition.topic, partition.index, problem)
                await asyncio.sleep(LOOK_AGAIN_S)
        await partition.left_alone()
        partition.stand(replace(partition.standing, corrupt=False))
        if self._has(partition) and isinstance(partition.role, Follower) and not partition.offline:
            try:
                removed = partition.role.discard(end, self._now())
                self._replicas.deletes.schedule(removed, partition.log.config.file_delete_delay_ms)
                await self._replicas.checkpoint()  # a crash must not take for durable what comes in its place
            except OSError as problem:
                partition.fail(problem)
        self._assign(partition)

    def _has(self, partition: Partition) -> bool:
        """Not if it was taken away, while it was repaired."""
        return self._replicas.get(partition.topic, partition.index) is partition

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._withdrawals.look()
        if old.brokers != new.brokers:
            for _, leader in self._led():
                leader.reconsider()
                leader.invite()

    # ── chores ──

    async def shrink(self) -> None:
        """Followers that lag leave the in-sync replicas. Not judged by a process that has just stood still itself."""
        every = self._config().replica_lag_time_max_ms / 2000
        now = asyncio.get_running_loop().time()
        before, self._shrunk_at = self._shrunk_at, now
        if before is not None and now - before > PAUSED * every:
            return
        for place, (_, leader) in enumerate(self._led()):
            leader.shrink()
            leader.invite()
            if place % AT_A_TIME == AT_A_TIME - 1:
                await asyncio.sleep(0)

    def adapt(self) -> None:
        """Settings have changed."""
        values = self._config().values
        self.throttle.rate = int(str(values["follower.replication.throttled.rate"]))
        self._replicas.sending.rate = int(str(values["leader.replication.throttled.rate"]))
        self._replicas.around.lag_ms = self._config().replica_lag_time_max_ms

    def _led(self) -> Iterator[tuple[Partition, Leader]]:
        for partition in self._replicas:
            if isinstance(partition.role, Leader) and partition.leads:
                yield partition, partition.role

    # ── what partitions ask ──

    def _epoch_of(self, broker_id: int) -> int | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None or broker.leaving else broker.epoch

    def _settings(self) -> FetchSettings:
        config = self._config()
        limits = FetchLimits(
            config.replica_fetch_wait_max_ms, config.replica_fetch_min_bytes, config.replica_fetch_response_max_bytes
        )
        return FetchSettings(
            limits, config.replica_fetch_max_bytes, config.replica_fetch_backoff_ms, config.replica_socket_timeout_ms
        )

    async def _alter(self, proposals: Sequence[Proposal]) -> Sequence[Granted | WireError]:
        response = await self._lifecycle.alter_partitions(_topics(proposals), ASKING_S)
        if response is None:
            raise PeerLost("no controller answered")
        if response.error_code:
            return [WireError(response.error_code) for _ in proposals]
        answers = _outcomes(response)
        lost = WireError.UNKNOWN_SERVER_ERROR
        return [answers.get((each.topic_id, each.partition), lost) for each in proposals]


def _topics(proposals: Sequence[Proposal]) -> list[AlterPartitionTopic]:
    rows: dict[UUID, list[AlterPartitionData]] = {}
    for each in proposals:
        row = AlterPartitionData(
            partition_index=each.partition,
            leader_epoch=each.leader_epoch,
            partition_epoch=each.partition_epoch,
            new_isr_with_epochs=tuple(BrokerState(broker_id=id_, broker_epoch=epoch) for id_, epoch in each.isr),
        )
        rows.setdefault(each.topic_id, []).append(row)
    return [AlterPartitionTopic(topic_id=topic_id, partitions=tuple(found)) for topic_id, found in rows.items()]


def _outcomes(response: AlterPartitionResponse) -> dict[tuple[UUID, int], Granted | WireError]:
    return {
        (topic.topic_id, row.partition_index): (
            WireError(row.error_code)
            if row.error_code
            else Granted(row.isr, row.leader_id, row.leader_epoch, row.partition_epoch)
        )
        for topic in response.topics
        for row in topic.partitions
    }
