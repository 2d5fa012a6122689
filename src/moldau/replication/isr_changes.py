"""Sends pending ISRs to the controller (AlterPartition), for many partitions at once.

Safety does not depend on responses: until the image or a response has the outcome of a proposal, the larger of the
two sets counts. A proposal whose response was lost stays pending and is sent again, unchanged: it is granted at most
once, because it names the partition epoch that it is based on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import WireError
from moldau.net.peer import PeerLost
from moldau.net.tasks import cancel
from moldau.replication.isr import UNKNOWN, PendingIsr
from moldau.replication.leader import Leader
from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")

LEAST_BACKOFF_S = 0.02
MOST_BACKOFF_S = 1.0
AT_ONCE = 1000  # partitions in one request

# Errors that say for certain that nothing was changed, and that the same proposal will not succeed.
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
    """How long to wait after so many failed attempts in a row."""
    return min(LEAST_BACKOFF_S * 2.0 ** min(failures, 10), MOST_BACKOFF_S)


class IsrChanges:
    def __init__(self, alter: AlterIsr, epoch_of: Callable[[int], int | None], node_id: int) -> None:
        self._alter = alter
        self._epoch_of = epoch_of
        self._node_id = node_id
        self._due: dict[Partition, None] = {}
        self._outcome_unknown: dict[Partition, PendingIsr] = {}  # sent, and the response was lost
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def propose(self, partition: Partition) -> None:
        """The partition's leader has a pending ISR."""
        self._due[partition] = None
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ISR changes")

    async def stop(self) -> None:
        await cancel(self._task)

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            proposals = self._pending()
            if not proposals:
                if self._due:  # none of the first ones was still pending
                    self._wake.set()
                continue
            try:
                again = self._take_responses(proposals, await self._alter([proposal for _, _, proposal in proposals]))
            except PeerLost as lost:
                logger.info("AlterPartition got no response from the controller and is sent again: %s", lost.reason)
                self._outcome_unknown.update((partition, pending) for partition, pending, _ in proposals)
                again = [partition for partition, _, _ in proposals]
            except Exception:
                logger.exception("AlterPartition failed and is sent again")
                self._outcome_unknown.update((partition, pending) for partition, pending, _ in proposals)
                again = [partition for partition, _, _ in proposals]
            failures = failures + 1 if again else 0
            if again:
                self._due.update(dict.fromkeys(again))
                await asyncio.sleep(backoff_s(failures))
            if self._due:
                self._wake.set()

    def _pending(self) -> list[tuple[Partition, PendingIsr, Proposal]]:
        found: list[tuple[Partition, PendingIsr, Proposal]] = []
        for partition in list(self._due)[:AT_ONCE]:
            del self._due[partition]
            role = partition.role
            pending = role.pending_isr if isinstance(role, Leader) else None
            if pending is None or not isinstance(role, Leader):  # decided meanwhile, or another broker leads
                self._outcome_unknown.pop(partition, None)
                continue
            members = tuple((each, self._epoch(role, pending, each)) for each in pending.isr)
            log, epoch = partition.log, partition.leader_epoch
            found.append(
                (partition, pending, Proposal(log.topic_id, partition.index, epoch, pending.partition_epoch, members))
            )
        return found

    def _epoch(self, role: Leader, pending: PendingIsr, broker: int) -> int:
        if broker == self._node_id:
            own = self._epoch_of(broker)
            return UNKNOWN if own is None else own
        for joining, epoch in pending.joining:  # not a newer one: a proposal is the same each time
            if joining == broker:
                return epoch
        known = role.isr.followers.get(broker)
        return UNKNOWN if known is None else known.broker_epoch

    def _take_responses(
        self, proposals: list[tuple[Partition, PendingIsr, Proposal]], responses: Sequence[Granted | WireError]
    ) -> list[Partition]:
        """Take the responses; returns the partitions whose proposal has to be sent again."""
        again: list[Partition] = []
        for (partition, pending, proposal), response in zip(proposals, responses, strict=True):
            role = partition.role
            if not isinstance(role, Leader) or role.pending_isr is not pending:
                self._outcome_unknown.pop(partition, None)
                continue
            if isinstance(response, Granted):
                self._outcome_unknown.pop(partition, None)
                if response.leader_epoch == proposal.leader_epoch and response.leader == self._node_id:
                    role.granted(response.isr, response.partition_epoch)
                # Otherwise another broker leads, and the image will say so.
            elif response in REFUSED and self._outcome_unknown.get(partition) is not pending:
                role.refused()
            else:  # the image will show whether an earlier attempt was granted
                again.append(partition)
        return again
