"""Elections: whatever brokers do, a leader has every record that was committed; and decisions are written as decided.

A partition is played through with logs as lists of numbers: leaders append, followers copy, brokers are killed, lose
what they had not synced, come back, leave. What counts as committed is what KIP-966 says: on every member of an ISR
that is not smaller than min.insync.replicas.
"""

from dataclasses import replace
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.errors import Refusal
from moldau.metadata import elections, znodes
from moldau.metadata.alter_partition import ProposedIsr, alter_partition
from moldau.metadata.changes import (
    BrokerGone,
    BrokerLeaving,
    BrokerRegistered,
    Change,
    ChangeSet,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    apply,
    fold,
)
from moldau.metadata.elections import ElectionRules
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState
from moldau.metadata.splitting import split_change

TOPIC_ID = UUID(int=7)
IDS = (1, 2, 3)
WHO = st.sampled_from(IDS)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("append", "produce", "fetch", "expand", "shrink", "restart", "withdraw")), WHO),
        st.tuples(st.sampled_from(("kill", "lose power", "leave", "kill two", "return", "return")), WHO),
    ),
    min_size=8,
    max_size=60,
)


class Play:
    """One partition on three brokers, and the controller that decides for it."""

    def __init__(self, min_isr: int, unclean: bool) -> None:
        self.rules = ElectionRules(min_isr=lambda _: min_isr, unclean=lambda _: unclean)
        self.needed = min_isr
        self.image = ClusterImage(controller_epoch=1)
        for each in IDS:
            self.become(BrokerRegistered(Broker(each, {})))
        self.become(TopicCreated("t", TOPIC_ID, (PartitionState(0, IDS, IDS, leader=1),), {}))
        self.logs: dict[int, list[int]] = {each: [] for each in IDS}
        self.committed: list[int] = []
        self.shaky: set[int] = set()  # lost power: they come back without the end of their log
        self.next = 0

    @property
    def state(self) -> PartitionState:
        return self.image.topics["t"].partitions[0]

    def become(self, change: Change) -> None:
        before = self.image
        self.image = apply(before, change)
        for each in change.changes if isinstance(change, ChangeSet) else (change,):
            if isinstance(each, PartitionChanged):
                old, new = before.topics["t"].partitions[0], self.image.topics["t"].partitions[0]
                assert new.leader_epoch >= old.leader_epoch + (new.leader != old.leader)

    def settle(self, *restarted: int) -> None:
        self.become(ChangeSet(elections.leader_and_isr_changes(self.image, self.rules, restarted)))

    # ── what happens ──

    def append(self, _: int) -> None:
        if self.state.leader in self.image.brokers:
            self.logs[self.state.leader].append(self.next)
            self.next += 1
            self.advance()

    def produce(self, who: int) -> None:
        self.append(who)
        for each in IDS:
            self.fetch(each)

    def fetch(self, who: int) -> None:
        leader = self.state.leader
        if who in self.image.brokers and leader in self.image.brokers and who != leader:
            source, mine = self.logs[leader], self.logs[who]
            pairs = enumerate(zip(source, mine, strict=False))
            shared = next((at for at, (theirs, ours) in pairs if theirs != ours), min(len(source), len(mine)))
            self.logs[who] = source[: max(shared, len(source) - 1) if shared == len(mine) else shared]
            self.advance()

    def advance(self) -> None:
        state = self.state
        if len(state.isr) >= min(self.needed, len(state.replicas)):
            mark = min(len(self.logs[each]) for each in state.isr)
            if mark > len(self.committed):
                self.committed = self.logs[state.leader][:mark]

    def expand(self, who: int) -> None:
        leader = self.state.leader
        if leader in self.image.brokers and who in self.image.brokers and self.logs[who] == self.logs[leader]:
            self.alter({*self.state.isr, who})

    def shrink(self, who: int) -> None:
        if self.state.leader in self.image.brokers and who != self.state.leader:
            self.alter(set(self.state.isr) - {who})

    def withdraw(self, who: int) -> None:
        """A follower's disk fails, and nothing of its log is ever seen again."""
        state = self.state
        if who in self.image.brokers and who in state.isr and state.leader not in (who, NO_BROKER):
            self.alter(set(state.isr) - {who}, who)
            assert who not in {*self.state.isr, *self.state.elr}
            self.logs[who] = []

    def alter(self, isr: set[int], asking: int = NO_BROKER) -> None:
        state, brokers = self.state, self.image.brokers
        asking = state.leader if asking == NO_BROKER else asking
        members = {each: brokers[each].epoch if each in brokers else -1 for each in isr}
        asked = ProposedIsr(TOPIC_ID, 0, state.leader_epoch, state.partition_epoch, members)
        change = alter_partition(self.image, asking, brokers[asking].epoch, asked, self.rules)
        if not isinstance(change, Refusal):
            self.become(change)
            self.advance()

    def kill(self, *who: int) -> None:
        there = [each for each in who if each in self.image.brokers]
        self.become(ChangeSet(elections.broker_failure_changes(self.image, there, self.rules)))

    def kill_two(self, who: int) -> None:
        self.kill(who, who % len(IDS) + 1)

    def lose_power(self, who: int) -> None:
        self.shaky.add(who)
        self.logs[who] = self.logs[who][: len(self.logs[who]) // 2]
        self.kill(who)

    def return_(self, who: int) -> None:
        if who not in self.image.brokers:
            doubts = elections.unclean_shutdown_changes(self.image, who, self.rules) if who in self.shaky else ()
            self.shaky.discard(who)
            self.become(ChangeSet((*doubts, BrokerRegistered(Broker(who, {})))))
            self.settle()

    def restart(self, who: int) -> None:
        if who in self.image.brokers:
            self.become(BrokerRegistered(Broker(who, {})))
            self.settle(who)

    def leave(self, who: int) -> None:
        if who in self.image.brokers:
            after = fold(self.image, BrokerLeaving(who))
            self.become(ChangeSet((BrokerLeaving(who), *elections.controlled_shutdown_changes(after, who, self.rules))))
            self.check()
            self.kill(who)

    # ── what must hold ──

    def check(self) -> None:
        state = self.state
        assert set(state.isr) <= set(state.replicas)
        assert set(state.elr) <= set(state.replicas) - set(state.isr)
        assert len(set(state.isr)) == len(state.isr)
        if state.leader != NO_BROKER:
            assert state.leader in state.isr
            assert set(state.isr) <= set(self.image.brokers)
        if len(state.isr) >= min(self.needed, len(state.replicas)):
            assert state.elr == ()


def play(events: list[tuple[str, int]], min_isr: int, *, unclean: bool = False) -> Play:
    game = Play(min_isr, unclean)
    for what, who in events:
        getattr(game, what.replace(" ", "_").replace("return", "return_"))(who)
        game.check()
        if game.state.leader != NO_BROKER and not unclean:
            log = game.logs[game.state.leader]
            assert log[: len(game.committed)] == game.committed, (what, who, game.state)
    return game


@settings(max_examples=400, deadline=None)
@given(EVENTS, st.integers(1, 3))
def test_a_leader_has_all_that_was_committed(events: list[tuple[str, int]], min_isr: int) -> None:
    play(events, min_isr)


@settings(deadline=None)
@given(EVENTS, st.integers(1, 3))
def test_a_partition_whose_last_replicas_are_back_has_a_leader(events: list[tuple[str, int]], min_isr: int) -> None:
    game = play([each for each in events if each[0] != "lose power"], min_isr)
    for each in IDS:
        game.return_(each)
    assert game.state.leader != NO_BROKER


@settings(deadline=None)
@given(EVENTS, st.integers(1, 3))
def test_a_topic_that_accepts_loss_has_a_leader_while_a_broker_is_there(
    events: list[tuple[str, int]], min_isr: int
) -> None:
    game = play(events, min_isr, unclean=True)
    game.settle()
    assert (game.state.leader != NO_BROKER) == bool(game.image.brokers)


@settings(deadline=None)
@given(EVENTS, st.integers(1, 3))
def test_once_settled_nothing_is_left_to_do(events: list[tuple[str, int]], min_isr: int) -> None:
    game = play(events, min_isr)
    game.settle()
    assert elections.leader_and_isr_changes(game.image, game.rules) == ()


@settings(deadline=None)
@given(EVENTS)
def test_what_the_preferred_leader_gets_is_its_own(events: list[tuple[str, int]]) -> None:
    game = play(events, 2)
    change = elections.preferred_election(game.image, "t", 0)
    if isinstance(change, PartitionChanged):
        assert change.leader == game.state.replicas[0]
        assert change.isr == game.state.isr
        assert change.leader_epoch == game.state.leader_epoch + 1
        assert elections.leader_rebalance_changes(game.image, 10, game.rules) == (
            (change,) if game.state.leader != NO_BROKER else ()
        )


PARTITIONS = st.integers(1, 40)
LIMITS = st.integers(700, 6000)


@settings(deadline=None)
@given(st.lists(PARTITIONS, min_size=1, max_size=6), LIMITS)
def test_portions_have_the_same_effect_one_after_the_other(sizes: list[int], limit: int) -> None:
    image = ClusterImage(controller_epoch=1)
    created = ChangeSet(
        tuple(
            TopicCreated(f"t{n}", UUID(int=n + 1), tuple(PartitionState(i, IDS, IDS, 1) for i in range(size)), {})
            for n, size in enumerate(sizes)
        )
    )
    whole = fold(image, created)
    lost = ChangeSet(elections.broker_failure_changes(whole, [1], ElectionRules(lambda _: 2, lambda _: False)))
    grown = ChangeSet(
        tuple(
            PartitionsAdded(f"t{n}", tuple(PartitionState(i, IDS, IDS, 1) for i in range(size, 2 * size)))
            for n, size in enumerate(sizes)
        )
    )
    for before, change in ((image, created), (whole, lost), (whole, grown)):
        pieces = split_change(change, before, limit)
        after = before
        for piece in pieces:
            alone = isinstance(piece, ChangeSet) and len(piece.changes) == 1 and change is not lost
            written = sum(len(op.path) + len(getattr(op, "data", b"")) for op in znodes.ops_for(piece, after))
            assert alone or written <= max(2 * limit, 1500)
            after = fold(after, piece)
        expected = fold(before, change)
        assert replace(after, version=0) == replace(expected, version=0)


def test_the_end_of_a_broker_takes_its_leadership_and_no_more() -> None:
    game = Play(2, False)
    changes = elections.broker_failure_changes(game.image, [2], game.rules)
    assert changes == (
        BrokerGone(2),
        PartitionChanged("t", 0, IDS, isr=(1, 3), leader=1, leader_epoch=0),
    )
    game.become(ChangeSet(changes))
    changes = elections.broker_failure_changes(game.image, [1], game.rules)
    assert changes[1] == PartitionChanged("t", 0, IDS, isr=(3,), leader=3, leader_epoch=1, elr=(1,))


def test_a_leader_that_lost_power_and_was_the_last_one_does_not_lead() -> None:
    game = Play(1, False)
    for each in (2, 3, 1):
        game.kill(each)
    assert game.state == replace(game.state, isr=(1,), leader=NO_BROKER)
    game.shaky.add(1)
    game.return_(1)
    assert (game.state.leader, game.state.isr) == (NO_BROKER, ())
    game.return_(2)
    assert game.state.leader == NO_BROKER
    game.return_(3)
    game.kill(1)
    game.return_(1)
    change = elections.unclean_election(game.image, "t", 0, game.rules)
    assert isinstance(change, PartitionChanged)
    assert (change.leader, change.isr) == (1, (1,)), "it was the last one in sync"


def test_of_several_that_may_have_lost_records_the_one_that_was_in_sync_last_is_the_best() -> None:
    game = Play(1, False)
    for each in (1, 2, 3):
        game.kill(each)
    game.shaky |= {2, 3}
    for each in (1, 2, 3):
        game.return_(each)
    assert (game.state.leader, game.state.isr, game.state.last) == (NO_BROKER, (), 3)
    change = elections.unclean_election(game.image, "t", 0, game.rules)
    assert isinstance(change, PartitionChanged)
    assert (change.leader, change.isr, change.last) == (3, (3,), NO_BROKER)


def test_an_eligible_replica_that_lost_power_is_eligible_no_more() -> None:
    game = Play(2, False)
    game.produce(1)
    game.kill(2, 3)
    assert game.state.elr == (2, 3)
    game.lose_power(2)
    game.kill(1)
    game.return_(2)
    assert (game.state.leader, game.state.elr) == (NO_BROKER, (3,))
    game.return_(3)
    assert game.state == replace(game.state, leader=3, isr=(3,), elr=(1,))
