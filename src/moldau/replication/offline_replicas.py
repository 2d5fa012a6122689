"""Asks the controller to remove this broker from the ISR of partitions whose logs are offline here.

Otherwise a leader without a log would stay leader, and others would wait for such a follower until it lags. Requests
follow from the image and from what is offline, until the two agree, so nothing depends on a response. A leader whose
log was open before resigns by itself, as part of its role.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from uuid import UUID

from moldau.metadata.image import ClusterImage, PartitionState
from moldau.net.peer import PeerLost
from moldau.net.tasks import cancel
from moldau.replication.isr import UNKNOWN
from moldau.replication.isr_changes import AT_ONCE, AlterIsr, Granted, Proposal, backoff_s
from moldau.replication.leader import Leader
from moldau.replication.replicas import Replicas

logger = logging.getLogger("moldau.replication")


class OfflineReplicaReporter:
    def __init__(self, alter: AlterIsr, replicas: Replicas, image: Callable[[], ClusterImage], node_id: int) -> None:
        self._alter = alter
        self._replicas = replicas
        self._image = image
        self._node_id = node_id
        self._due = asyncio.Event()
        self._reported: set[tuple[UUID, int]] = set()  # partitions that the log names already
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """More partitions are offline, or the image changed."""
        if self._replicas.offline:
            self._due.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="offline replicas")
        self.look()

    async def stop(self) -> None:
        await cancel(self._task)

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._due.wait()
            self._due.clear()
            while proposals := list(self._proposals()):
                self._report(proposals)
                failures = 0 if await self._ask(proposals[:AT_ONCE]) else failures + 1
                await asyncio.sleep(backoff_s(failures))
            self._reported.clear()

    def _report(self, proposals: list[Proposal]) -> None:
        """Log new partitions once, not with every retry."""
        new = {(each.topic_id, each.partition) for each in proposals} - self._reported
        if new:
            self._reported |= new
            logger.warning(
                "Asking the controller to remove this broker from the ISR of %d partitions whose logs are offline "
                "here; see the errors above, repair the disk and restart.",
                len(new),
            )

    async def _ask(self, proposals: list[Proposal]) -> bool:
        """Whether some proposal was granted; the image will say so."""
        try:
            return any(isinstance(answer, Granted) for answer in await self._alter(proposals))
        except PeerLost as lost:
            logger.info("AlterPartition got no response from the controller and is sent again: %s", lost.reason)
        except Exception:
            logger.exception("Leaving the ISR of partitions whose logs are offline failed and is tried again")
        return False

    def _proposals(self) -> Iterator[Proposal]:
        image = self._image()
        if self._node_id not in image.brokers:  # not registered: it reports offline partitions when it registers
            return
        for name, index in self._replicas.offline:
            topic, state = image.topics.get(name), image.partition(name, index)
            if topic is None or state is None or self._resigns(name, index):
                continue
            if self._is_counted_on(image, name, state):
                rest = tuple((each, UNKNOWN) for each in state.isr if each != self._node_id)
                yield Proposal(topic.id, index, state.leader_epoch, state.partition_epoch, rest)

    def _resigns(self, topic: str, index: int) -> bool:
        partition = self._replicas.get(topic, index)
        return partition is not None and isinstance(partition.role, Leader)

    def _is_counted_on(self, image: ClusterImage, topic: str, state: PartitionState) -> bool:
        """Whether another live member of the ISR can go on without this broker.

        A leader without a successor leaves too: then clients hear that there is no leader, or, with unclean leader
        election, a replica is elected that lacks records. Unless the log only waits for space on its disk.
        """
        here = self._node_id
        if here in state.isr and any(each != here and each in image.brokers for each in state.isr):
            return True
        final = (topic, state.index) not in self._replicas.waiting_for_space
        return state.leader == here and len(state.replicas) > 1 and final
