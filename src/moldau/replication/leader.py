"""The leader's role of a replicated partition: takes followers' fetches, commits, and lets go whoever waited for that.

A partition whose only replica is here has no role object at all: what is appended there is committed at once. What the
numbers mean is in `isr`; which ISR holds is the controller's to say, and is asked for through `Surroundings.ask_isr`.
"""

import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later, NowOrLater
from moldau.metadata.image import PartitionState
from moldau.replication.isr import Isr, Wish
from moldau.replication.roles import Surroundings, Uncommitted

if TYPE_CHECKING:
    from moldau.replication.appender import Appended, Outcome
    from moldau.replication.partition import Partition

logger = logging.getLogger("moldau.replication")

IN_VAIN = 4  # times that the same records were sent to a follower, before a look at what they are
ALL = -1  # acks: answered when the batch is committed
NOT_LEADER = Refusal.of(WireError.NOT_LEADER_OR_FOLLOWER)
TOO_FEW = Refusal.of(WireError.NOT_ENOUGH_REPLICAS)
TOO_FEW_NOW = Refusal.of(WireError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class Leader:
    __slots__ = (
        "_around",
        "_awaiting",
        "_low_waiting",
        "_moving",
        "_number",
        "_partition",
        "_resigned",
        "_stable",
        "_uncommitted",
        "isr",
    )

    def __init__(
        self, partition: "Partition", state: PartitionState, around: Surroundings, high_watermark: int, epoch_start: int
    ) -> None:
        self._partition = partition
        self._around = around
        self._awaiting: list[
            tuple[int, int, Appended, Later[Outcome]]
        ] = []  # a heap: by the offset that must be committed
        self._low_waiting: list[tuple[int, Callable[[], None]]] = []  # by offset: whoever deleted records
        self._moving = False  # while those are told that waited for what is committed
        self._number = 0  # of those who waited, so that equal offsets are let go in order
        self._resigned = False
        self._uncommitted = Uncommitted()
        self._begin(state, high_watermark, epoch_start)
        self._stable = partition.log.last_stable_offset(high_watermark)

    def count(self) -> None:
        """What it begins with and is not committed. The log is read for that, and it may turn out that it cannot be."""
        start, end = self.isr.high_watermark, self._partition.log.end_offset
        if end > start:
            self._uncommitted.add(end, self._partition.bytes_between(start, end))

    def _begin(self, state: PartitionState, high_watermark: int, epoch_start: int) -> None:
        self.isr = Isr(
            self._around.node_id,
            state.replicas,
            state.isr,
            state.partition_epoch,
            epoch_start=epoch_start,
            high_watermark=high_watermark,
            now=self._around.now(),
        )

    @property
    def high_watermark(self) -> int:
        return self.isr.high_watermark

    # ── the controller's word ──

    def begin_epoch(self, state: PartitionState, epoch_start: int) -> None:
        """Elected again: who waits goes on waiting, followers have to show again how far they are."""
        self._resigned = False
        self._begin(state, self.isr.high_watermark, epoch_start)
        self.advance()

    def adopt(self, state: PartitionState) -> None:
        """Another ISR or other replicas, in the same epoch."""
        withdrawn = self._withdrawn(state)
        if self.isr.adopt(state.replicas, state.isr, state.partition_epoch, self._around.now()):
            for each in withdrawn:
                self.isr.begin_anew(each)
            self.advance()
            if self._resigned:
                self._ask_to_go()
            else:
                self.invite()

    def _withdrawn(self, state: PartitionState) -> list[int]:
        """Members that are there as before, and left although this leader did not wish it: their disks failed.

        Such a one had all there was, and would be invited again at once. It has to fetch before it is.
        """
        pending, committed = self.isr.pending, self.isr.committed
        return [
            each
            for each, known in self.isr.followers.items()
            if each in committed
            and each in state.replicas
            and each not in state.isr
            and (pending is None or each in pending.isr)
            and self._around.epoch_of(each) == known.broker_epoch
        ]

    def end(self, refusal: Refusal = NOT_LEADER) -> None:
        """This broker does not lead any more: nobody knows what becomes of the batches that were waited for."""
        awaiting, self._awaiting = self._awaiting, []
        for _, _, _, later in awaiting:
            later.resolve(refusal)
        lows, self._low_waiting = self._low_waiting, []
        for _, tell in lows:
            tell()

    def end_alone(self) -> None:
        """All other replicas were taken away: what is in the log is committed."""
        awaiting, self._awaiting = self._awaiting, []
        for _, _, outcome, later in sorted(awaiting, key=lambda each: each[:2]):
            later.resolve(outcome)
        lows, self._low_waiting = self._low_waiting, []
        for _, tell in lows:
            tell()

    # ── producers ──

    def refusal(self, acks: int) -> Refusal | None:
        """Why a batch may not be appended."""
        if acks == ALL and not self.isr.enough(self._min_isr):
            return TOO_FEW
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
        if self.isr.high_watermark >= end and not self._moving:
            return outcome if self._enough_now() else TOO_FEW_NOW
        self._number += 1
        heapq.heappush(self._awaiting, (end, self._number, outcome, later))
        return later

    @property
    def _min_isr(self) -> int:
        return self._partition.log.config.min_insync_replicas

    def _enough_now(self) -> bool:
        return len(self.isr.maximal) >= self.isr.required(self._min_isr)

    # ── followers ──

    def may_be_replaced(self) -> bool:
        """Whether a follower in sync is silent: it may lead by now, and know better."""
        now, sessions = self._around.now(), self._partition.follower_sessions
        return any(sessions[each].silent(now) for each in self.isr.committed if each in sessions)

    def final(self, refusal: Refusal) -> Refusal:
        """What a producer is told. A sequence that a former leader misses is no reason to give up, but to look again
        who leads; clients that compare no epochs come to it.
        """
        missing = refusal.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
        return NOT_LEADER if missing and self.may_be_replaced() else refusal

    def knows(self, broker: int) -> bool:
        return broker in self.isr.followers

    def stale(self, broker: int, broker_epoch: int) -> bool:
        """Whether a fetch is of an earlier life of a broker (KIP-903)."""
        current = self._around.epoch_of(broker)
        return broker_epoch >= 0 and current is not None and broker_epoch < current

    def fetched(self, broker: int, offset: int, log_start: int, broker_epoch: int) -> None:
        """A follower asks for `offset`: it has everything before. May commit, and may be the moment for it to join."""
        isr = self.isr
        known = isr.followers[broker]
        before = known.end_offset
        end = self._partition.log.end_offset
        if broker_epoch < 0:
            broker_epoch = self._around.epoch_of(broker) or broker_epoch
        known.fetched(offset, log_start, broker_epoch, end, self._around.now())
        if broker not in isr.committed:
            self._invite(broker)
        elif isr.bereft(broker) and isr.pending is None and not self._resigned:
            logger.error(
                "broker %d lacks committed records of %s-%d from offset %d on; it leaves the in-sync replicas",
                broker,
                self._partition.topic,
                self._partition.index,
                offset,
            )
            isr.wish(isr.committed - {broker})
            self._around.ask_isr(self._partition)
        if offset != before:
            self.advance()
        if self._low_waiting and log_start >= self._low_waiting[0][0]:
            self._tell_low()

    def sent(self, broker: int, offset: int) -> None:
        """A follower gets what lies at `offset`. If it asks for it again and again, it may be what is wrong."""
        if self.isr.followers[broker].sent(offset) == IN_VAIN:
            self._partition.owner.records_suspect(self._partition, offset)

    # ── deleting records ──

    @property
    def low_watermark(self) -> int:
        """Where the logs of all replicas that are alive begin, at the latest."""
        starts = [self._partition.log.start_offset]
        followers = self.isr.followers.items()
        starts += [known.log_start for each, known in followers if self._around.epoch_of(each) is not None]
        return min(starts)

    def when_low(self, offset: int, tell: Callable[[], None]) -> Callable[[], None]:
        """Tell when no replica has anything before `offset`, or nobody knows any more. Returns how to stop waiting."""
        entry = (offset, tell)
        self._low_waiting = sorted([*self._low_waiting, entry], key=lambda each: each[0])
        self._partition.touch()  # followers learn of the new log start with the answer
        return lambda: self._low_waiting.remove(entry) if entry in self._low_waiting else None

    def _tell_low(self) -> None:
        low = self.low_watermark
        while self._low_waiting and self._low_waiting[0][0] <= low:
            self._low_waiting.pop(0)[1]()

    def heard(self, broker: int, broker_epoch: int, offset: int) -> None:
        """A follower asks on. Earlier in its session it said that it is at this offset.

        What is known from another session may be of an earlier life of its broker, and lost with it: that it is in
        sync with a new epoch does not follow.
        """
        known = self.isr.followers[broker]
        if known.end_offset != offset:
            return
        known.broker_epoch = broker_epoch
        known.was_at(self._partition.log.end_offset, self._around.now())
        if broker not in self.isr.committed:
            self._invite(broker)

    def _invite(self, broker: int) -> None:
        isr = self.isr
        if not self._resigned and isr.may_join(broker, self._around.epoch_of):
            isr.wish({*isr.committed, broker})
            self._around.ask_isr(self._partition)

    def invite(self) -> None:
        """Ask for those to become members who are ready for it. When a follower fetches, that is looked at; here, when
        brokers or members have changed: who has everything does not say so again and again.
        """
        if self.isr.pending is None and len(self.isr.committed) < len(self.isr.replicas):
            for broker in self.isr.followers:
                self._invite(broker)

    def shrink(self) -> None:
        """Ask for an ISR without those who lag. Called from time to time."""
        isr = self.isr
        if isr.pending is not None or self._resigned:
            return
        end, now = self._partition.log.end_offset, self._around.now()
        laggards = isr.laggards(end, now, self._around.lag_ms)
        if laggards:
            logger.info(
                "%s-%d: brokers %s lag, the in-sync replicas shrink",
                self._partition.topic,
                self._partition.index,
                laggards,
            )
            isr.wish(isr.committed.difference(laggards))
            self._around.ask_isr(self._partition)

    def reconsider(self) -> None:
        """Brokers came or went. Who is gone or leaving is not waited for: what the others have may be committed now."""
        if self.isr.hopeless(self._around.epoch_of):
            self.isr.drop_wish()
        self.advance()

    def resign(self) -> None:
        """This replica cannot serve any more. An ISR without its leader says so to the controller."""
        if not self._resigned:
            self._resigned = True
            self.isr.abandon_wish()
            self._ask_to_go()

    def _ask_to_go(self) -> None:
        if self._around.node_id in self.isr.committed:
            self.isr.wish(self.isr.committed - {self._around.node_id})
            self._around.ask_isr(self._partition)

    def wished(self) -> Wish | None:
        return self.isr.pending

    def granted(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        if self.isr.adopt(self.isr.replicas, isr, partition_epoch, self._around.now()):
            self.advance()
            self.invite()

    def refused(self) -> None:
        """Certainly not granted. One that was given up for it before may have been."""
        if self._resigned:
            self.isr.abandon_wish()
        else:
            self.isr.drop_wish()
        self.advance()

    # ── committing ──

    def advance(self) -> None:
        """Move the high watermark as far as it goes, and tell those who wait for it."""
        around = self._around
        log = self._partition.log
        if self.isr.advance(log.end_offset, self._min_isr, around.now(), around.lag_ms, around.epoch_of):
            self._moved()

    def _moved(self) -> None:
        """Who is told may write at once, and a leader alone commits that at once. It is told in its turn, by the loop
        that runs already: one in the other, they would be as deep as there are who waited.
        """
        if self._moving:
            return
        self._moving = True
        try:
            while self._awaiting and self._awaiting[0][0] <= self.isr.high_watermark:
                _, _, outcome, later = heapq.heappop(self._awaiting)
                later.resolve(outcome if self._enough_now() else TOO_FEW_NOW)
        finally:
            self._moving = False
        high_watermark = self.isr.high_watermark
        self._stable = self._partition.tell_readers(self._uncommitted.take(high_watermark), self._stable)
