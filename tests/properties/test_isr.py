"""The leader's arithmetic: whatever followers fetch and the controller decides, what is committed stays committed."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.replication.isr import LONG_AGO, UNKNOWN, Isr, Progress

LEADER, FOLLOWERS = 1, (2, 3, 4)
LAG_MS = 1000


class Arithmetic(RuleBasedStateMachine):
    """Leader 1 with followers 2 to 4; the model keeps what each of them really has."""

    @initialize(isr=st.sets(st.sampled_from(FOLLOWERS)), min_isr=st.integers(1, 4), end=st.integers(0, 20))
    def begin(self, isr: set[int], min_isr: int, end: int) -> None:
        self.now, self.end, self.min_isr = 0, end, min_isr
        self.has = dict.fromkeys(FOLLOWERS, 0)
        self.gone: set[int] = set()
        known = min([end, *(0 for _ in isr)])
        self.isr = Isr(LEADER, (LEADER, *FOLLOWERS), {LEADER, *isr}, 0, epoch_start=end, high_watermark=known, now=0)
        self.before = known

    def epoch_of(self, broker: int) -> int | None:
        return None if broker in self.gone else 7

    def advance(self) -> None:
        self.isr.advance(self.end, self.min_isr, self.now, LAG_MS, self.epoch_of)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count
        self.advance()

    @rule(broker=st.sampled_from(FOLLOWERS), count=st.integers(0, 8))
    def fetch(self, broker: int, count: int) -> None:
        self.has[broker] = max(min(self.has[broker] + count, self.end), self.has[broker])
        self.isr.followers[broker].fetched(self.has[broker], 0, 7, self.end, self.now)
        self.advance()

    @rule(passed=st.sampled_from((1, LAG_MS // 2, LAG_MS + 1)))
    def wait(self, passed: int) -> None:
        self.now += passed

    @rule(broker=st.sampled_from(FOLLOWERS))
    def leave(self, broker: int) -> None:
        self.gone ^= {broker}
        self.advance()

    @precondition(lambda self: self.isr.pending is None)
    @rule(broker=st.sampled_from(FOLLOWERS))
    def propose_to_grow(self, broker: int) -> None:
        if self.isr.may_join(broker, self.epoch_of):
            assert self.has[broker] >= self.isr.high_watermark
            self.isr.propose({*self.isr.committed_isr, broker})

    @precondition(lambda self: self.isr.pending is None)
    @rule()
    def propose_to_shrink(self) -> None:
        laggards = self.isr.lagging(self.end, self.now, LAG_MS)
        assert LEADER not in laggards
        if laggards:
            self.isr.propose(self.isr.committed_isr.difference(laggards))

    @precondition(lambda self: self.isr.pending is not None)
    @rule(fate=st.sampled_from(("granted", "refused", "other change")))
    def decide(self, fate: str) -> None:
        pending, isr = self.isr.pending, self.isr
        assert pending is not None
        if fate == "granted":
            assert isr.adopt(isr.replicas, pending.isr, isr.partition_epoch + 1, self.now)
        elif fate == "refused":
            isr.drop_pending()
        else:
            isr.adopt(isr.replicas, isr.committed_isr, isr.partition_epoch + 1, self.now)
        self.advance()

    @invariant()
    def committed_is_with_every_member(self) -> None:
        if not hasattr(self, "isr"):
            return
        high_watermark = self.isr.high_watermark
        assert high_watermark >= self.before, "the high watermark went back"
        moved = high_watermark > self.before
        self.before = high_watermark
        assert high_watermark <= self.end
        members = self.isr.committed_isr | set(self.isr.pending.isr if self.isr.pending else ())
        for broker in members - {LEADER}:
            assert self.has[broker] >= high_watermark
        if moved:
            assert len(self.isr.committed_isr) >= min(self.min_isr, 4)


Arithmetic.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestArithmetic: Any = Arithmetic.TestCase


@given(fetches=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30), st.integers(0, 30)), min_size=1))
def test_who_was_at_the_end_within_the_lag_keeps_up(fetches: list[tuple[int, int, int]]) -> None:
    """Kafka's rule: caught up at the time of the last fetch that reached what was the end at the fetch before."""
    progress = Progress(LONG_AGO)
    now = end = offset = 0
    caught_up = LONG_AGO
    before = (UNKNOWN, LONG_AGO)  # the leader's end and the time at the fetch before
    for passed, grown, taken in fetches:
        now += passed
        end += grown
        offset = min(offset + taken, end)
        if offset >= end:
            caught_up = now
        elif before[0] != UNKNOWN and offset >= before[0]:
            caught_up = max(caught_up, before[1])
        progress.fetched(offset, 0, 1, end, now)
        before = (end, now)
        assert progress.caught_up_at == caught_up
        assert progress.keeps_up(end, now, 50) == (offset == end or now - caught_up <= 50)


def test_a_new_member_counts_before_the_controller_has_answered() -> None:
    isr = Isr(1, (1, 2, 3), (1, 2), 5, epoch_start=0, high_watermark=0, now=0)
    for broker in (2, 3):
        isr.followers[broker].fetched(10, 0, 7, 10, 0)
    assert isr.advance(10, 1, 0, LAG_MS, lambda _: 7)
    isr.propose({1, 2, 3})
    isr.followers[2].fetched(20, 0, 7, 20, 5)
    assert not isr.advance(20, 1, 10_000, LAG_MS, lambda _: 7), "broker 3 may be in the ISR already"
    isr.drop_pending()
    assert isr.advance(20, 1, 10_000, LAG_MS, lambda _: 7)


def test_nothing_is_committed_with_too_few_in_sync() -> None:
    isr = Isr(1, (1, 2, 3), (1,), 5, epoch_start=0, high_watermark=3, now=0)
    assert not isr.advance(10, 2, 0, LAG_MS, lambda _: None)
    assert not isr.committed_isr_is_enough(2)
    assert isr.advance(10, 1, 0, LAG_MS, lambda _: None)
    assert Isr(1, (1,), (1,), 0, epoch_start=0, high_watermark=0, now=0).committed_isr_is_enough(3), (
        "there is only one replica"
    )


def test_who_restarted_since_its_fetch_does_not_join() -> None:
    isr = Isr(1, (1, 2), (1,), 5, epoch_start=4, high_watermark=2, now=0)
    isr.followers[2].fetched(4, 0, 7, 4, 0)
    assert isr.may_join(2, lambda _: 7)
    assert not isr.may_join(2, lambda _: 8)
    assert not isr.may_join(2, lambda _: None)
    isr.followers[2].fetched(3, 0, 7, 4, 0)
    assert not isr.may_join(2, lambda _: 7), "it lacks what this leader began with"


def test_a_member_that_lost_committed_records_is_noticed() -> None:
    isr = Isr(1, (1, 2), (1, 2), 5, epoch_start=4, high_watermark=4, now=0)
    assert not isr.lacks_committed(2), "it has not said yet what it has"
    isr.followers[2].fetched(3, 0, 7, 4, 0)
    assert isr.lacks_committed(2)
