"""The leader role of a replicated partition: tracks followers, moves the high watermark, completes waiting produces.

A sole replica has no role object: what is appended there is committed at once. The arithmetic is in `isr`. The
controller decides the ISR; the leader proposes changes through `ClusterView.propose_isr`.
"""

import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Offset
from moldau.base.later import Later, NowOrLater
from moldau.metadata.image import PartitionState
from moldau.replication.cluster_view import ClusterView
from moldau.replication.isr import Isr, PendingIsr
from moldau.replication.uncommitted import Uncommitted

if TYPE_CHECKING:
    from moldau.replication.appender import Appended, Outcome
    from moldau.replication.partition import Partition

logger: Final = logging.getLogger("moldau.replication")

RESENDS_BEFORE_CHECK: Final = 4  # so often are the same records sent to a follower before they are checked on disk
ALL: Final = -1  # acks: answered when the batch is committed
NOT_LEADER: Final = Refusal.of(WireError.NOT_LEADER_OR_FOLLOWER)
# Below min.insync.replicas a batch with acks=all is refused before it is appended. The high watermark stands still
# then, so a batch that was appended before waits, and usually times out. Only a batch that was committed before the ISR
# shrank, and was not answered then because its flush was under way (flush.messages), is answered with AFTER_APPEND.
NOT_ENOUGH_REPLICAS: Final = Refusal.of(WireError.NOT_ENOUGH_REPLICAS)
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = Refusal.of(WireError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class Leader:
    __slots__ = (
        "_awaiting",
        "_cluster",
        "_completing",
        "_low_waiting",
        "_number",
        "_partition",
        "_resigned",
        "_stable",
        "_uncommitted",
        "isr",
    )

    def __init__(
        self, partition: "Partition", state: PartitionState, cluster: ClusterView, high_watermark: int, epoch_start: int
    ) -> None:
        self._partition = partition
        self._cluster = cluster
        # A heap, by the offset that must be committed.
        self._awaiting: list[tuple[Offset, int, Appended, Later[Outcome]]] = []
        self._low_waiting: list[tuple[int, Callable[[], None]]] = []  # by offset: DeleteRecords requests
        self._completing = False  # while produces are completed
        self._number = 0  # of waiting produces: those with equal offsets complete in order
        self._resigned = False
        self._uncommitted = Uncommitted()
        self._begin(state, high_watermark, epoch_start)
        self._stable = partition.log.last_stable_offset(high_watermark)

    def count(self) -> None:
        """Count the uncommitted bytes that the epoch begins with. Reads the log, which may turn out to be corrupt."""
        start, end = self.isr.high_watermark, self._partition.log.end_offset
        if end > start:
            self._uncommitted.add(end, self._partition.bytes_between(start, end))

    def _begin(self, state: PartitionState, high_watermark: int, epoch_start: int) -> None:
        self.isr = Isr(
            self._cluster.node_id,
            state.replicas,
            state.isr,
            state.partition_epoch,
            epoch_start=epoch_start,
            high_watermark=high_watermark,
            now=self._cluster.now(),
        )

    @property
    def high_watermark(self) -> int:
        return self.isr.high_watermark

    # ── decisions of the controller ──

    def begin_epoch(self, state: PartitionState, epoch_start: int) -> None:
        """Elected again, with no other leader between: waiting produces are kept, and followers have to show again
        what they have.

        From leader to follower to leader, `end` answers waiting produces, and a new `Leader` begins without any.
        """
        self._resigned = False
        self._begin(state, self.isr.high_watermark, epoch_start)
        self.advance()

    def adopt(self, state: PartitionState) -> None:
        """Another ISR or other replicas, in the same epoch."""
        withdrawn = self._withdrawn(state)
        if self.isr.adopt(state.replicas, state.isr, state.partition_epoch, self._cluster.now()):
            for each in withdrawn:
                self.isr.begin_anew(each)
            self.advance()
            if self._resigned:
                self._propose_to_leave()
            else:
                self.expand_isr()

    def _withdrawn(self, state: PartitionState) -> list[int]:
        """Members of the same broker epoch that left the ISR although this leader did not propose it: their disks
        failed.

        Such a member had caught up and would be added again at once. It has to fetch first.
        """
        pending, committed = self.isr.pending, self.isr.committed_isr
        return [
            each
            for each, known in self.isr.followers.items()
            if each in committed
            and each in state.replicas
            and each not in state.isr
            and (pending is None or each in pending.isr)
            and self._cluster.epoch_of(each) == known.broker_epoch
        ]

    def end(self, refusal: Refusal = NOT_LEADER) -> None:
        """This broker leads no longer: whether the waiting batches will be committed is unknown."""
        awaiting, self._awaiting = self._awaiting, []
        for _, _, _, later in awaiting:
            later.resolve(refusal)
        lows, self._low_waiting = self._low_waiting, []
        for _, tell in lows:
            tell()

    def end_alone(self) -> None:
        """All other replicas were removed: what is in the log is committed."""
        awaiting, self._awaiting = self._awaiting, []
        for _, _, outcome, later in sorted(awaiting, key=lambda each: each[:2]):
            later.resolve(outcome)
        lows, self._low_waiting = self._low_waiting, []
        for _, tell in lows:
            tell()

    # ── producers ──

    def refusal(self, acks: int) -> Refusal | None:
        """Why a batch may not be appended with these acks."""
        if acks == ALL and not self.isr.committed_isr_is_enough(self._min_isr):
            return NOT_ENOUGH_REPLICAS
        return None

    def appended(self, base: int, end: int, size: int) -> None:
        self._uncommitted.add(end, size)
        partition = self._partition
        for broker, session in partition.follower_sessions.items():
            known = self.isr.followers.get(broker)
            if known is not None:
                known.was_at(base, session.asked_at)
            session.touch(partition.topic_id_partition, size)
        for delayed in partition.delayed_fetches:
            if delayed.follower:
                delayed.grown(size)
        if len(self.isr.maximal) == 1:
            self.advance()

    def await_commit(self, end: int, outcome: "Appended", later: "Later[Outcome]") -> "NowOrLater[Outcome]":
        """The outcome if everything before `end` is committed, else `later`, which gets it then."""
        if self.isr.high_watermark >= end and not self._completing:
            return outcome if self._maximal_isr_is_enough() else NOT_ENOUGH_REPLICAS_AFTER_APPEND
        self._number += 1
        heapq.heappush(self._awaiting, (end, self._number, outcome, later))
        return later

    @property
    def _min_isr(self) -> int:
        return self._partition.log.config.min_insync_replicas

    def _maximal_isr_is_enough(self) -> bool:
        """Whether enough replicas have what is committed: every member of the maximal ISR has it.

        `Isr.committed_isr_is_enough` asks whether to append at all: the controller may not grant a pending member.
        """
        return len(self.isr.maximal) >= self.isr.required(self._min_isr)

    # ── followers ──

    def may_be_replaced(self) -> bool:
        """Whether an in-sync follower is silent: it may lead by now."""
        now, sessions = self._cluster.now(), self._partition.follower_sessions
        return any(sessions[each].silent(now) for each in self.isr.committed_isr if each in sessions)

    def final(self, refusal: Refusal) -> Refusal:
        """The error for a producer. A former leader may miss batches of a sequence: then the producer has to look for
        the leader, instead of giving up.
        """
        missing = refusal.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
        return NOT_LEADER if missing and self.may_be_replaced() else refusal

    def knows(self, broker: int) -> bool:
        return broker in self.isr.followers

    def stale(self, broker: int, broker_epoch: int) -> bool:
        """Whether a fetch has an outdated broker epoch (KIP-903)."""
        current = self._cluster.epoch_of(broker)
        return broker_epoch >= 0 and current is not None and broker_epoch < current

    def fetched(self, broker: int, offset: int, log_start: int, broker_epoch: int) -> None:
        """A follower has all records before `offset`. May move the high watermark and expand the ISR."""
        isr = self.isr
        known = isr.followers[broker]
        before = known.end_offset
        end = self._partition.log.end_offset
        if broker_epoch < 0:
            broker_epoch = self._cluster.epoch_of(broker) or broker_epoch
        known.fetched(offset, log_start, broker_epoch, end, self._cluster.now())
        if broker not in isr.committed_isr:
            self._expand_isr_by(broker)
        elif isr.lacks_committed(broker) and isr.pending is None and not self._resigned:
            logger.error(
                "Broker %d lost committed records of %s from offset %d on. It is removed from the ISR and copies them "
                "again.",
                broker,
                self._partition.name,
                offset,
            )
            isr.propose(isr.committed_isr - {broker})
            self._cluster.propose_isr(self._partition)
        if offset != before:
            self.advance()
        if self._low_waiting and log_start >= self._low_waiting[0][0]:
            self._tell_low()

    def sent(self, broker: int, offset: int) -> None:
        """A follower gets the records at `offset`. If it fetches them again and again, they may be corrupt here."""
        if self.isr.followers[broker].sent(offset) == RESENDS_BEFORE_CHECK:
            self._partition.owner.records_suspect(self._partition, offset)

    # ── deleting records ──

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all live replicas."""
        starts = [self._partition.log.start_offset]
        followers = self.isr.followers.items()
        starts += [known.log_start for each, known in followers if self._cluster.epoch_of(each) is not None]
        return min(starts)

    def when_low(self, offset: int, tell: Callable[[], None]) -> Callable[[], None]:
        """Tell when no replica has records before `offset`, or this broker leads no longer. Returns how to cancel."""
        entry = (offset, tell)
        self._low_waiting = sorted([*self._low_waiting, entry], key=lambda each: each[0])
        self._partition.touch()  # followers learn of the new log start with the response
        return lambda: self._low_waiting.remove(entry) if entry in self._low_waiting else None

    def _tell_low(self) -> None:
        low = self.low_watermark
        while self._low_waiting and self._low_waiting[0][0] <= low:
            self._low_waiting.pop(0)[1]()

    def heard(self, broker: int, broker_epoch: int, offset: int) -> None:
        """A follower continues its session, in which it said before that it is at this offset.

        What is known from another session may have been lost in a restart: it does not count for a new broker epoch.
        """
        known = self.isr.followers[broker]
        if known.end_offset != offset:
            return
        known.broker_epoch = broker_epoch
        known.was_at(self._partition.log.end_offset, self._cluster.now())
        if broker not in self.isr.committed_isr:
            self._expand_isr_by(broker)

    def _expand_isr_by(self, broker: int) -> None:
        isr = self.isr
        if not self._resigned and isr.may_join(broker, self._cluster.epoch_of):
            isr.propose({*isr.committed_isr, broker})
            self._cluster.propose_isr(self._partition)

    def expand_isr(self) -> None:
        """Propose followers that may join. A fetch checks that too; this is for changes of brokers or members, since a
        follower that has caught up does not say so again.
        """
        if self.isr.pending is None and len(self.isr.committed_isr) < len(self.isr.replicas):
            for broker in self.isr.followers:
                self._expand_isr_by(broker)

    def shrink_isr(self) -> None:
        """Propose an ISR without lagging members. Called from time to time."""
        isr = self.isr
        if isr.pending is not None or self._resigned:
            return
        end, now = self._partition.log.end_offset, self._cluster.now()
        lagging = isr.lagging(end, now, self._cluster.lag_ms)
        if lagging:
            logger.info(
                "Brokers %s have not caught up with %s for %d ms and are removed from its ISR.",
                lagging,
                self._partition.name,
                self._cluster.lag_ms,
            )
            isr.propose(isr.committed_isr.difference(lagging))
            self._cluster.propose_isr(self._partition)

    def reconsider(self) -> None:
        """Brokers came or went. Gone followers outside the ISR are not waited for: the high watermark may move now."""
        if self.isr.proposal_cannot_succeed(self._cluster.epoch_of):
            self.isr.drop_pending()
        self.advance()

    def resign(self) -> None:
        """This replica cannot serve. Propose an ISR without it: the controller elects another leader."""
        if not self._resigned:
            self._resigned = True
            self.isr.abandon_pending()
            self._propose_to_leave()

    def _propose_to_leave(self) -> None:
        if self._cluster.node_id in self.isr.committed_isr:
            self.isr.propose(self.isr.committed_isr - {self._cluster.node_id})
            self._cluster.propose_isr(self._partition)

    @property
    def pending_isr(self) -> PendingIsr | None:
        return self.isr.pending

    def granted(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        if self.isr.adopt(self.isr.replicas, isr, partition_epoch, self._cluster.now()):
            self.advance()
            self.expand_isr()

    def refused(self) -> None:
        """The proposal was certainly not granted. One that was abandoned for it may have been."""
        if self._resigned:
            self.isr.abandon_pending()
        else:
            self.isr.drop_pending()
        self.advance()

    # ── the high watermark ──

    def advance(self) -> None:
        """Move the high watermark as far as possible, and complete what waits for it."""
        cluster = self._cluster
        log = self._partition.log
        if self.isr.advance(log.end_offset, self._min_isr, cluster.now(), cluster.lag_ms, cluster.epoch_of):
            self._moved()

    def _moved(self) -> None:
        """Complete waiting produces in a loop, not recursively.

        A completed produce may append at once, and a leader alone commits that at once.
        """
        if self._completing:
            return
        self._completing = True
        try:
            while self._awaiting and self._awaiting[0][0] <= self.isr.high_watermark:
                _, _, outcome, later = heapq.heappop(self._awaiting)
                later.resolve(outcome if self._maximal_isr_is_enough() else NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        finally:
            self._completing = False
        high_watermark = self.isr.high_watermark
        self._stable = self._partition.tell_readers(self._uncommitted.take(high_watermark), self._stable)
