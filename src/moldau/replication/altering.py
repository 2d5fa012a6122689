"""Asks the controller for other in-sync replicas, for all partitions that wish it at once.

Safety does not depend on answers: until the image or an answer says what became of a wish, the larger of the two sets
counts. So a wish whose answer got lost stays, and is asked again, word by word: it is granted at most once, because it
names the partition epoch that it is based on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import WireError
from moldau.net.peer import PeerLost
from moldau.replication.isr import UNKNOWN, Wish
from moldau.replication.leader import Leader
from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")

LEAST_BACKOFF_S = 0.02
MOST_BACKOFF_S = 1.0
AT_ONCE = 1000  # partitions in one request

# Answers that say for certain that nothing was changed, and that asking again makes no sense as things are.
REFUSED = frozenset({WireError.INELIGIBLE_REPLICA, WireError.INVALID_REQUEST, WireError.OPERATION_NOT_ATTEMPTED})


class Proposal(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]  # brokers with their epochs, -1 where it is not known (KIP-903)


class Granted(NamedTuple):
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


AlterIsr = Callable[[Sequence[Proposal]], Awaitable[Sequence[Granted | WireError]]]


def backoff_s(failures: int) -> float:
    """How long to wait after so many attempts in a row that led to nothing."""
    return min(LEAST_BACKOFF_S * 2.0 ** min(failures, 10), MOST_BACKOFF_S)


class IsrChanges:
    def __init__(self, alter: AlterIsr, epoch_of: Callable[[int], int | None], node_id: int) -> None:
        self._alter = alter
        self._epoch_of = epoch_of
        self._node_id = node_id
        self._due: dict[Partition, None] = {}
        self._unsure: dict[Partition, Wish] = {}  # wishes that were sent, and nobody knows what became of them
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def ask(self, partition: Partition) -> None:
        """The partition's leader wishes another ISR."""
        self._due[partition] = None
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="in-sync replicas")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            wishes = self._wishes()
            if not wishes:
                if self._due:  # none of the first ones was wished any more
                    self._wake.set()
                continue
            try:
                again = self._decided(wishes, await self._alter([proposal for _, _, proposal in wishes]))
            except PeerLost as lost:
                logger.info("the controller did not answer: %s", lost.reason)
                self._unsure.update((partition, wish) for partition, wish, _ in wishes)
                again = [partition for partition, _, _ in wishes]
            except Exception:
                logger.exception("asking for other in-sync replicas failed")
                self._unsure.update((partition, wish) for partition, wish, _ in wishes)
                again = [partition for partition, _, _ in wishes]
            failures = failures + 1 if again else 0
            if again:
                self._due.update(dict.fromkeys(again))
                await asyncio.sleep(backoff_s(failures))
            if self._due:
                self._wake.set()

    def _wishes(self) -> list[tuple[Partition, Wish, Proposal]]:
        found: list[tuple[Partition, Wish, Proposal]] = []
        for partition in list(self._due)[:AT_ONCE]:
            del self._due[partition]
            role = partition.role
            wish = role.wished() if isinstance(role, Leader) else None
            if wish is None or not isinstance(role, Leader):  # decided meanwhile, or led by another
                self._unsure.pop(partition, None)
                continue
            members = tuple((each, self._epoch(role, wish, each)) for each in wish.isr)
            log, epoch = partition.log, partition.leader_epoch
            found.append(
                (partition, wish, Proposal(log.topic_id, partition.index, epoch, wish.partition_epoch, members))
            )
        return found

    def _epoch(self, role: Leader, wish: Wish, broker: int) -> int:
        if broker == self._node_id:
            own = self._epoch_of(broker)
            return UNKNOWN if own is None else own
        for joining, epoch in wish.joining:  # not a newer one: an attempt is the same each time, or none is hopeless
            if joining == broker:
                return epoch
        known = role.isr.followers.get(broker)
        return UNKNOWN if known is None else known.broker_epoch

    def _decided(
        self, wishes: list[tuple[Partition, Wish, Proposal]], answers: Sequence[Granted | WireError]
    ) -> list[Partition]:
        """Takes the answers; returns the partitions whose wish has to be asked again."""
        again: list[Partition] = []
        for (partition, wish, proposal), answer in zip(wishes, answers, strict=True):
            role = partition.role
            if not isinstance(role, Leader) or role.wished() is not wish:
                self._unsure.pop(partition, None)
                continue
            if isinstance(answer, Granted):
                self._unsure.pop(partition, None)
                if answer.leader_epoch == proposal.leader_epoch and answer.leader == self._node_id:
                    role.granted(answer.isr, answer.partition_epoch)
                # Otherwise this broker does not lead any more, and the image will say so.
            elif answer in REFUSED and self._unsure.get(partition) is not wish:
                role.refused()
            else:  # whether an earlier attempt was granted, the image will show; until then it is asked again
                again.append(partition)
        return again
