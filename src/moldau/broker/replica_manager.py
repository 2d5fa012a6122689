"""Replica manager of a broker in a cluster: fetchers, ISR changes and repairs. A single node has none.

Leaders and followers themselves are in `moldau.replication`; here they get connections, settings and the controller.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from moldau.base.errors import WireError
from moldau.base.ids import Epoch, Offset
from moldau.broker.cluster.broker_lifecycle import BrokerLifecycle
from moldau.broker.peers import Peers
from moldau.broker.settings import BrokerConfig
from moldau.log.repair import corruption_check, valid_to
from moldau.metadata.image import ClusterImage
from moldau.net.peer import PeerLost
from moldau.net.tasks import cancel
from moldau.replication.cluster_view import ClusterView
from moldau.replication.fetcher import Bounds, FetchSettings, LeaderConnection
from moldau.replication.fetchers import Fetchers, ask_bounds
from moldau.replication.follower import Follower
from moldau.replication.isr_changes import Granted, IsrChanges, Proposal
from moldau.replication.leader import Leader
from moldau.replication.offline_replicas import OfflineReplicaReporter
from moldau.replication.owners import NO_OWNER
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from moldau.replication.throttle import ReplicationThrottle
from moldau.wire.fetching import FetchLimits
from moldau.wire.messages.alter_partition import (
    AlterPartitionData,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)

logger = logging.getLogger("moldau.broker")

ALTER_PARTITION_TIMEOUT_S = 5.0  # of one attempt
AT_A_TIME = 200  # partitions that are checked before the event loop serves others
REPAIR_RETRY_S = 1.0  # after a corrupt log could not be opened: too many open files
PAUSED = 3  # intervals; a check of the ISR that is so late shows that the process itself was paused


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
        self.throttle = ReplicationThrottle()  # of replication to this broker
        self._changes = IsrChanges(self._alter, self._epoch_of, node_id)
        self._offline_replicas = OfflineReplicaReporter(self._alter, replicas, image, node_id)
        lag_ms = config().replica_lag_time_max_ms
        # Lag is measured with a monotonic clock: setting the machine's clock must not shrink the ISR.
        steady = asyncio.get_running_loop().time
        replicas.cluster = ClusterView(
            node_id, lambda: int(steady() * 1000), self._epoch_of, self._changes.propose, lag_ms
        )
        self._fetchers = Fetchers(peers.to, self, config().num_replica_fetchers)

    def start(self) -> None:
        """Start fetchers for the partitions that other brokers lead; the logs are open."""
        self._replicas.owner = self
        self._changes.start()
        self._offline_replicas.start()
        for partition in self._replicas:
            self._assign(partition)

    async def stop(self) -> None:
        self._replicas.owner = NO_OWNER
        await cancel(*self._repairs.values())
        await self._changes.stop()
        await self._offline_replicas.stop()
        await self._fetchers.stop()

    def _assign(self, partition: Partition) -> None:
        """Fetch a partition from its leader, or stop. A corrupt log is repaired before its follower fetches again."""
        if not self._has(partition):
            return
        if partition.standing.corrupt and isinstance(partition.role, Follower) and not partition.offline:
            self._fetchers.dismiss(partition)
            self._begin(partition, self._repair(partition))
        else:
            self._fetchers.assign(partition)

    def _begin(self, partition: Partition, work: Coroutine[Any, Any, None]) -> None:
        """Run a check or repair of a partition's files, one at a time."""
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
            logger.error(
                "Checking or repairing the log of %s-%d failed; the next change of its role retries it",
                partition.topic,
                partition.index,
                exc_info=problem,
            )
        elif partition.standing.corrupt and self._replicas.owner is self:  # found by the check, or meanwhile
            self._assign(partition)

    # ── reported by replicas ──

    def role_changed(self, partition: Partition) -> None:
        self._assign(partition)

    def log_corrupt(self, partition: Partition) -> None:
        self._assign(partition)

    def removed(self, partition: Partition) -> None:
        self._fetchers.dismiss(partition)

    def went_offline(self) -> None:
        self._offline_replicas.look()

    def all_directories_failed(self, reason: str) -> None:
        self._give_up(reason)

    def records_suspect(self, partition: Partition, offset: Offset) -> None:
        """Check the records at this offset: followers fetch them repeatedly without success."""
        self._begin(partition, self._look(partition, offset))

    async def _look(self, partition: Partition, offset: Offset) -> None:
        name = f"{partition.topic}-{partition.index}"
        if await asyncio.to_thread(corruption_check(partition.log, offset)):
            logger.error(
                "%s is corrupt after offset %d; it resigns as leader if another replica can lead",
                name,
                offset,
            )
            partition.cannot_read()

    async def _repair(self, partition: Partition) -> None:
        """Truncate a follower's log before its corrupt batch; the leader has the records."""
        while True:
            try:
                end = await asyncio.to_thread(valid_to, partition.log)
                break
            except OSError as problem:
                logger.warning(
                    "%s-%d cannot be checked for corruption now, retrying: %s",
                    partition.topic,
                    partition.index,
                    problem,
                )
                await asyncio.sleep(REPAIR_RETRY_S)
        await partition.quiesce()
        partition.stand(replace(partition.standing, corrupt=False))
        if self._has(partition) and isinstance(partition.role, Follower) and not partition.offline:
            try:
                removed = partition.role.discard(end, self._now())
                self._replicas.deletes.schedule(removed, partition.log.config.file_delete_delay_ms)
                await self._replicas.checkpoint()  # after a crash, the refetched records must not pass for flushed ones
            except OSError as problem:
                partition.fail(problem)
        self._assign(partition)

    def _has(self, partition: Partition) -> bool:
        """Whether the partition is still on this broker: it may have been removed during a repair."""
        return self._replicas.get(partition.topic, partition.index) is partition

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._offline_replicas.look()
        if old.brokers != new.brokers:
            for _, leader in self._led():
                leader.reconsider()
                leader.expand_isr()

    # ── periodic ──

    async def shrink(self) -> None:
        """Remove lagging followers from the ISR. Skipped if this process itself was paused."""
        every = self._config().replica_lag_time_max_ms / 2000
        now = asyncio.get_running_loop().time()
        before, self._shrunk_at = self._shrunk_at, now
        if before is not None and now - before > PAUSED * every:
            return
        for place, (_, leader) in enumerate(self._led()):
            leader.shrink_isr()
            leader.expand_isr()
            if place % AT_A_TIME == AT_A_TIME - 1:
                await asyncio.sleep(0)

    def adapt(self) -> None:
        """Apply changed settings."""
        values = self._config().values
        self.throttle.rate = int(str(values["follower.replication.throttled.rate"]))
        self._replicas.sending.rate = int(str(values["leader.replication.throttled.rate"]))
        self._replicas.cluster.lag_ms = self._config().replica_lag_time_max_ms

    def _led(self) -> Iterator[tuple[Partition, Leader]]:
        for partition in self._replicas:
            if isinstance(partition.role, Leader) and partition.leads:
                yield partition, partition.role

    # ── used by partitions ──

    def _epoch_of(self, broker_id: int) -> Epoch | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None or broker.leaving else broker.epoch

    # ── for fetchers ──

    def replica(self) -> tuple[int, int]:
        return self._node_id, self._lifecycle.registration.epoch

    def now(self) -> int:
        return self._now()

    def delete_later(self, paths: list[Path], delay_ms: int) -> None:
        self._replicas.deletes.schedule(paths, delay_ms)

    async def bounds(self, leader: LeaderConnection, partitions: list[Partition]) -> dict[Partition, Bounds]:
        return await ask_bounds(leader, partitions, self._node_id)

    async def checkpoint(self) -> bool:
        return await self._replicas.checkpoint()

    def fetch_settings(self) -> FetchSettings:
        config = self._config()
        limits = FetchLimits(
            config.replica_fetch_wait_max_ms, config.replica_fetch_min_bytes, config.replica_fetch_response_max_bytes
        )
        return FetchSettings(
            limits, config.replica_fetch_max_bytes, config.replica_fetch_backoff_ms, config.replica_socket_timeout_ms
        )

    async def _alter(self, proposals: Sequence[Proposal]) -> Sequence[Granted | WireError]:
        response = await self._lifecycle.alter_partitions(_topics(proposals), ALTER_PARTITION_TIMEOUT_S)
        if response is None:
            raise PeerLost("no response from a controller")
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
