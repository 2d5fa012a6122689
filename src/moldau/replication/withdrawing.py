"""Asks the controller to leave this broker out where it has no log to lead or follow with: its disk failed.

Otherwise a leader without a log would stay, and others wait for a follower of that kind until it lags. What is asked
follows from the image and from what is offline here, again and again until the two agree, so nothing depends on an
answer. A leader whose log was open before resigns by itself, as part of its role.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice

from moldau.metadata.image import ClusterImage, PartitionState
from moldau.net.peer import PeerLost
from moldau.replication.altering import AT_ONCE, AlterIsr, Granted, Proposal, backoff_s
from moldau.replication.isr import UNKNOWN
from moldau.replication.leader import Leader
from moldau.replication.replicas import Replicas

logger = logging.getLogger("moldau.replication")


class Withdrawals:
    def __init__(self, alter: AlterIsr, replicas: Replicas, image: Callable[[], ClusterImage], node_id: int) -> None:
        self._alter = alter
        self._replicas = replicas
        self._image = image
        self._node_id = node_id
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """More is offline, or the image is another."""
        if self._replicas.offline:
            self._due.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="withdrawals")
        self.look()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._due.wait()
            self._due.clear()
            while proposals := list(islice(self._proposals(), AT_ONCE)):
                failures = 0 if await self._ask(proposals) else failures + 1
                await asyncio.sleep(backoff_s(failures))

    async def _ask(self, proposals: list[Proposal]) -> bool:
        """Whether something of it was granted; the image will say so."""
        logger.info("asking to be left out of the replicas in sync of %d partitions, which failed here", len(proposals))
        try:
            return any(isinstance(answer, Granted) for answer in await self._alter(proposals))
        except PeerLost as lost:
            logger.info("the controller did not answer: %s", lost.reason)
        except Exception:
            logger.exception("asking to be left out of the replicas in sync failed")
        return False

    def _proposals(self) -> Iterator[Proposal]:
        image = self._image()
        if self._node_id not in image.brokers:  # nobody listens to it; what it found out it says when it registers
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
        """Whether somebody waits for this broker that could do without it.

        A leader that nobody can replace goes too, so that all clients hear that there is none, or one is elected that
        lacks records where its topic allows that. Unless it only waits for room on its disk.
        """
        here = self._node_id
        if here in state.isr and any(each != here and each in image.brokers for each in state.isr):
            return True
        final = (topic, state.index) not in self._replicas.waiting_for_space
        return state.leader == here and len(state.replicas) > 1 and final
