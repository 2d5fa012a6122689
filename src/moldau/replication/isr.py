"""What a leader knows of its followers: how far each one is, who is in sync, what is committed. Pure arithmetic.

The in-sync replicas (ISR) are the controller's to decide. While a change that the leader has asked for is under way,
the larger of the two sets counts (KIP-497): who may be in the ISR may be elected, and must have all that is committed.
Nothing is committed while the ISR is smaller than min.insync.replicas (KIP-966). A replica joins with the broker epoch
that it fetched with (KIP-903), so that one that was restarted meanwhile, and may have lost records, does not slip in.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

UNKNOWN = -1  # an offset or epoch that was not told yet
NEVER = -(2**62)  # a time that is always too long ago

EpochOf = Callable[[int], int | None]  # the epoch of a broker that may join an ISR; None: it is gone or leaving


class Progress:
    """One follower as its fetches show it."""

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
        self._fetched_at = NEVER
        self._sent = UNKNOWN  # what it got last begins here
        self._times_sent = 0
        self._leader_end = UNKNOWN  # where the leader's log ended at the last fetch

    def fetched(self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now: int) -> None:
        """It asks for what comes at `offset`, so it has what lies before.

        Who asks for the end of the leader's log has caught up now. Who asks for what was the end when it asked last was
        caught up then: under load nobody is ever quite at the end.
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
        """It gets what lies at `offset`; for the how-many-th time in a row."""
        self._times_sent = self._times_sent + 1 if offset == self._sent else 1
        self._sent = offset
        return self._times_sent

    def was_at(self, leader_end: int, asked_at: int) -> None:
        """At its last request, of which nobody told this partition, it had all there was: the end was the same."""
        if self.end_offset == leader_end:
            self.caught_up_at = max(self.caught_up_at, asked_at)
            self._fetched_at = max(self._fetched_at, asked_at)
            self._leader_end = leader_end

    def keeps_up(self, leader_end: int, now: int, lag_ms: int) -> bool:
        return self.end_offset == leader_end or now - self.caught_up_at <= lag_ms


class Wish(NamedTuple):
    """An ISR that the leader asks for, on top of the partition epoch that it knows."""

    isr: tuple[int, ...]
    partition_epoch: int
    joining: tuple[tuple[int, int], ...] = ()  # whom it lets in, with the epochs that they fetched with


class Isr:
    """The followers of one partition during one leader epoch of this broker."""

    __slots__ = (
        "_here",
        "committed",
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
        committed: Iterable[int],
        partition_epoch: int,
        *,
        epoch_start: int,
        high_watermark: int,
        now: int,
    ) -> None:
        self._here = here
        self.replicas = tuple(replicas)
        self.committed = frozenset(committed)
        self.maximal = self.committed
        self.partition_epoch = partition_epoch
        self.pending: Wish | None = None
        self.epoch_start = epoch_start  # where this leader began: what it had before may not be committed yet
        self.high_watermark = high_watermark
        # Of an old leader nothing is taken over: a member whose end is unknown holds the high watermark where it is.
        self.followers = {each: Progress(self._since(each, now)) for each in self.replicas if each != here}

    def _since(self, broker: int, now: int) -> int:
        return now if broker in self.committed else NEVER

    # ── changes that the controller has made ──

    def adopt(self, replicas: tuple[int, ...], committed: Iterable[int], partition_epoch: int, now: int) -> bool:
        """The controller's newest word; whether it is news. What was asked for is answered by it, either way."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.replicas = replicas
        self.committed = self.maximal = frozenset(committed)
        self.partition_epoch = partition_epoch
        self.pending = None
        others = [each for each in replicas if each != self._here]
        self.followers = {each: self.followers.get(each) or Progress(self._since(each, now)) for each in others}
        return True

    def begin_anew(self, broker: int) -> None:
        """What a follower fetched so far says nothing of what it has now."""
        self.followers[broker] = Progress(NEVER)

    # ── changes that the leader wishes ──

    def wish(self, isr: Iterable[int]) -> Wish:
        """One change at a time is under way; until it is decided the larger set counts."""
        assert self.pending is None
        members = tuple(each for each in self.replicas if each in set(isr))
        joining = tuple(
            (each, known.broker_epoch)
            for each, known in self.followers.items()
            if each in members and each not in self.committed
        )
        self.pending = Wish(members, self.partition_epoch, joining)
        self.maximal = self.maximal.union(self.pending.isr)
        return self.pending

    def abandon_wish(self) -> None:
        """Another one is more urgent. It may still be granted, so whom it names goes on counting."""
        self.pending = None

    def drop_wish(self) -> None:
        """It was certainly not granted."""
        self.pending = None
        self.maximal = self.committed

    def hopeless(self, epoch_of: EpochOf) -> bool:
        """Whether the wish was not granted and never will be: whom it lets in is gone, or has registered anew.

        The image that says so has every change before it, so a grant would be known; and after it there can be none.
        Without this, a wish whose answer got lost would have the leader wait for ever for one that does not come back.
        """
        return self.pending is not None and any(epoch_of(broker) != epoch for broker, epoch in self.pending.joining)

    def laggards(self, leader_end: int, now: int, lag_ms: int) -> list[int]:
        """Members that were not caught up within replica.lag.time.max.ms."""
        members = [(each, self.followers.get(each)) for each in self.committed if each != self._here]
        return [each for each, known in members if known is None or not known.keeps_up(leader_end, now, lag_ms)]

    def bereft(self, broker: int) -> bool:
        """Whether a member lacks what is committed: it has lost records, and must not be elected."""
        known = self.followers.get(broker)
        return broker in self.committed and known is not None and UNKNOWN < known.end_offset < self.high_watermark

    def may_join(self, broker: int, epoch_of: EpochOf) -> bool:
        """Whether to ask for a follower to become a member: it has all that is committed, and all that this leader
        began with.
        """
        known = self.followers.get(broker)
        if known is None or self.pending is not None or broker in self.committed:
            return False
        if known.end_offset < max(self.high_watermark, self.epoch_start):
            return False
        return self._eligible(broker, known, epoch_of)

    def _eligible(self, broker: int, known: Progress, epoch_of: EpochOf) -> bool:
        epoch = epoch_of(broker)
        return epoch is not None and epoch == known.broker_epoch

    # ── what is committed ──

    def required(self, min_isr: int) -> int:
        """min.insync.replicas, as far as there are replicas."""
        return min(min_isr, len(self.replicas))

    def enough(self, min_isr: int) -> bool:
        return len(self.committed) >= self.required(min_isr)

    def advance(self, leader_end: int, min_isr: int, now: int, lag_ms: int, epoch_of: EpochOf) -> bool:
        """Moves the high watermark to what every member has; whether it moved.

        A follower that keeps up and may join is waited for like a member: it has to reach the high watermark to join,
        and never would if that ran ahead of it with every batch.
        """
        if not self.enough(min_isr):
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
