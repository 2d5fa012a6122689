"""Isr: a leader's state of its followers: their end offsets, the ISR, the high watermark. Pure arithmetic.

The controller decides the ISR. While a change that the leader proposed is pending, the larger of the two sets counts
(KIP-497): a replica that may be in the ISR may be elected, and must have all committed records. Nothing is committed
while the ISR is smaller than min.insync.replicas (KIP-966). A replica joins with the broker epoch that it fetched with
(KIP-903): a broker that restarted meanwhile may have lost records, and has to fetch again first.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

UNKNOWN: Final = -1  # an offset or epoch that is not known yet
LONG_AGO: Final = -(2**62)  # a time that is always too long ago

EpochOf = Callable[
    [int], int | None
]  # the epoch of a broker that may join an ISR; None: it is not registered, or shutting down


class Progress:
    """One follower, as its fetches show it."""

    __slots__ = (
        "_fetched_at",
        "_leader_end",
        "_sent",
        "_times_sent",
        "broker_epoch",
        "caught_up_at",
        "end_offset",
        "log_start",
    )

    def __init__(self, caught_up_at: int) -> None:
        self.end_offset = UNKNOWN  # it has everything before this
        self.log_start = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.caught_up_at = caught_up_at  # the last time at which it had all that the leader had
        self._fetched_at = LONG_AGO
        self._sent = UNKNOWN  # the first offset of the last response
        self._times_sent = 0
        self._leader_end = UNKNOWN  # where the leader's log ended at the last fetch

    def fetched(self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now: int) -> None:
        """The follower fetches from `offset`: it has all records before it.

        A fetch at the leader's end offset means that it has caught up now. A fetch at the end offset of its previous
        fetch means that it had caught up then: under load no follower is ever quite at the end.
        """
        if offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif offset >= self._leader_end != UNKNOWN:
            self.caught_up_at = max(self.caught_up_at, self._fetched_at)
        self.end_offset = offset
        self.log_start = log_start
        self.broker_epoch = broker_epoch
        self._fetched_at = now
        self._leader_end = leader_end

    def sent(self, offset: int) -> int:
        """The follower gets the records at `offset`; how many times in a row it did."""
        self._times_sent = self._times_sent + 1 if offset == self._sent else 1
        self._sent = offset
        return self._times_sent

    def was_at(self, leader_end: int, asked_at: int) -> None:
        """At its last request, which did not name this partition, the follower had caught up: the end was the same."""
        if self.end_offset == leader_end:
            self.caught_up_at = max(self.caught_up_at, asked_at)
            self._fetched_at = max(self._fetched_at, asked_at)
            self._leader_end = leader_end

    def keeps_up(self, leader_end: int, now: int, lag_ms: int) -> bool:
        return self.end_offset == leader_end or now - self.caught_up_at <= lag_ms


class PendingIsr(NamedTuple):
    """An ISR that the leader proposed, based on the partition epoch that it knows."""

    isr: tuple[int, ...]
    partition_epoch: int
    joining: tuple[tuple[int, int], ...] = ()  # brokers that it adds, with the epochs that they fetched with


class Isr:
    """The followers of one partition during one leader epoch of this broker."""

    __slots__ = (
        "_here",
        "committed_isr",
        "epoch_start",
        "followers",
        "high_watermark",
        "maximal",
        "partition_epoch",
        "pending",
        "replicas",
    )

    def __init__(
        self,
        here: int,
        replicas: Iterable[int],
        committed_isr: Iterable[int],
        partition_epoch: int,
        *,
        epoch_start: int,
        high_watermark: int,
        now: int,
    ) -> None:
        self._here = here
        self.replicas = tuple(replicas)
        self.committed_isr = frozenset(committed_isr)
        self.maximal = self.committed_isr
        self.partition_epoch = partition_epoch
        self.pending: PendingIsr | None = None
        self.epoch_start = epoch_start  # where this leader epoch began: records before it may not be committed yet
        self.high_watermark = high_watermark
        # Nothing is taken over from an earlier epoch: a member with an unknown end offset holds the high watermark.
        self.followers = {each: Progress(self._since(each, now)) for each in self.replicas if each != here}

    def _since(self, broker: int, now: int) -> int:
        return now if broker in self.committed_isr else LONG_AGO

    # ── decisions of the controller ──

    def adopt(self, replicas: tuple[int, ...], committed_isr: Iterable[int], partition_epoch: int, now: int) -> bool:
        """Take the controller's newest state; whether it is new. It settles a pending proposal, either way."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.replicas = replicas
        self.committed_isr = self.maximal = frozenset(committed_isr)
        self.partition_epoch = partition_epoch
        self.pending = None
        others = [each for each in replicas if each != self._here]
        self.followers = {each: self.followers.get(each) or Progress(self._since(each, now)) for each in others}
        return True

    def begin_anew(self, broker: int) -> None:
        """Forget a follower's progress: it may have lost records."""
        self.followers[broker] = Progress(LONG_AGO)

    # ── proposals of the leader ──

    def propose(self, isr: Iterable[int]) -> PendingIsr:
        """One proposal is pending at a time; until it is decided the larger set counts."""
        assert self.pending is None
        members = tuple(each for each in self.replicas if each in set(isr))
        joining = tuple(
            (each, known.broker_epoch)
            for each, known in self.followers.items()
            if each in members and each not in self.committed_isr
        )
        self.pending = PendingIsr(members, self.partition_epoch, joining)
        self.maximal = self.maximal.union(self.pending.isr)
        return self.pending

    def abandon_pending(self) -> None:
        """Another proposal is more urgent. This one may still be granted, so its members go on counting."""
        self.pending = None

    def drop_pending(self) -> None:
        """The pending proposal was certainly not granted."""
        self.pending = None
        self.maximal = self.committed_isr

    def proposal_cannot_succeed(self, epoch_of: EpochOf) -> bool:
        """Whether the pending proposal was not granted and never will be: a broker that it adds is gone, or registered
        again.

        The image that says so includes every change before it, so a grant would be known; and there can be none after
        it. Without this check, a leader that lost a response would wait for ever for a broker that is gone.
        """
        return self.pending is not None and any(epoch_of(broker) != epoch for broker, epoch in self.pending.joining)

    def lagging(self, leader_end: int, now: int, lag_ms: int) -> list[int]:
        """Members that have not caught up for replica.lag.time.max.ms."""
        members = [(each, self.followers.get(each)) for each in self.committed_isr if each != self._here]
        return [each for each, known in members if known is None or not known.keeps_up(leader_end, now, lag_ms)]

    def lacks_committed(self, broker: int) -> bool:
        """Whether a member lacks committed records: it has lost them, and must not be elected."""
        known = self.followers.get(broker)
        return broker in self.committed_isr and known is not None and UNKNOWN < known.end_offset < self.high_watermark

    def may_join(self, broker: int, epoch_of: EpochOf) -> bool:
        """Whether to propose a follower as a member: it has all committed records, and all before this epoch."""
        known = self.followers.get(broker)
        if known is None or self.pending is not None or broker in self.committed_isr:
            return False
        if known.end_offset < max(self.high_watermark, self.epoch_start):
            return False
        return self._eligible(broker, known, epoch_of)

    def _eligible(self, broker: int, known: Progress, epoch_of: EpochOf) -> bool:
        epoch = epoch_of(broker)
        return epoch is not None and epoch == known.broker_epoch

    # ── the high watermark ──

    def required(self, min_isr: int) -> int:
        """min.insync.replicas, or the number of replicas if that is smaller."""
        return min(min_isr, len(self.replicas))

    def committed_isr_is_enough(self, min_isr: int) -> bool:
        return len(self.committed_isr) >= self.required(min_isr)

    def advance(self, leader_end: int, min_isr: int, now: int, lag_ms: int, epoch_of: EpochOf) -> bool:
        """Move the high watermark to the smallest end offset of the members; whether it moved.

        A follower that keeps up and may join counts like a member: it has to reach the high watermark to join, and
        never would if that moved ahead with every batch.
        """
        if not self.committed_isr_is_enough(min_isr):
            return False
        reached = leader_end
        for broker, known in self.followers.items():
            if known.end_offset >= reached:
                continue
            if broker in self.maximal or (
                known.keeps_up(leader_end, now, lag_ms) and self._eligible(broker, known, epoch_of)
            ):
                reached = known.end_offset
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True
