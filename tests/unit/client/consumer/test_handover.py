"""Handover and leases: whatever happens in between, the body gets each partition's messages in order, none twice.

The fetcher here does what librdkafka does: it delivers from a position, which seeks change.
"""

import random
import threading
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moldau.base.ids import TopicPartition
from moldau.client.consumer.buffers import Run
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.handover import AnyMessage, Handover
from moldau.client.consumer.leases import Lease
from moldau.client.consumer.options import read_options
from moldau.client.errors import Closed, InvalidUse
from moldau.client.message import Deserializers, Message

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
partitions = st.sampled_from(PARTITIONS)


class Fetcher:
    """Delivers records of endless partitions."""

    def __init__(self, handover: Handover) -> None:
        self.handover = handover
        self.position = dict.fromkeys(PARTITIONS, 0)

    def deliver(self, partition: TopicPartition, count: int) -> None:
        """As the poll thread does: first the seeks, then messages, if it is not paused."""
        for tp, offset in self.handover.due_seeks().items():
            if tp not in self.handover.paused():
                self.position[tp] = offset
                self.handover.sought(tp, offset)
        if partition not in self.handover.paused():
            self.deliver_late(partition, count)

    def deliver_late(self, partition: TopicPartition, count: int) -> None:
        """Messages that were on their way when something changed."""
        start = self.position[partition]
        records = [Message.of(*partition, start + number).record for number in range(count)]
        self.position[partition] += count
        self.handover.put([Run(partition, records, count)])


class HandoverMachine(RuleBasedStateMachine):
    """One body that takes messages in all ways, and everything that can come in between."""

    def __init__(self) -> None:
        super().__init__()
        self.handover = Handover(1000, 1 << 30, Deserializers())
        self.handover.assign(PARTITIONS)
        self.fetcher = Fetcher(self.handover)
        self.next = dict.fromkeys(PARTITIONS, 0)  # that the body must get
        self.in_hand: list[AnyMessage] = []
        self.loop: Iterator[AnyMessage] | None = None

    def get(self, messages: list[AnyMessage]) -> None:
        for message in messages:
            assert message.offset == self.next[message.topic_partition], message
            assert message.topic_partition not in self.handover.paused()
            self.next[message.topic_partition] += 1
        self.in_hand += messages

    @rule(partition=partitions, count=st.integers(1, 5))
    def deliver(self, partition: TopicPartition, count: int) -> None:
        self.fetcher.deliver(partition, count)

    @rule(partition=partitions, count=st.integers(1, 5))
    def deliver_late(self, partition: TopicPartition, count: int) -> None:
        self.fetcher.deliver_late(partition, count)

    @rule(most=st.integers(1, 8))
    def take(self, most: int) -> None:
        self.get(self.handover.take_now(most) or [])

    @rule(most=st.integers(1, 8))
    def start_loop(self, most: int) -> None:
        taken = self.handover.take_now(most)
        if taken:
            self.loop = self.leased(self.handover.lease(taken, self.handover.epoch))

    def leased(self, lease: Lease[AnyMessage]) -> Iterator[AnyMessage]:
        for at, message in enumerate(lease.messages):
            lease.at = at
            if at >= lease.limit and not self.handover.goes_on(lease, at):
                return
            yield message

    @precondition(lambda self: self.loop is not None)
    @rule()
    def step_loop(self) -> None:
        assert self.loop is not None
        message = next(self.loop, None)
        if message is None:
            self.loop = None
        else:
            self.get([message])

    @rule(data=st.data())
    def do(self, data: st.DataObject) -> None:
        if self.in_hand:
            self.handover.done([self.in_hand.pop(data.draw(st.integers(0, len(self.in_hand) - 1)))])

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        if self.in_hand:
            message = self.in_hand[data.draw(st.integers(0, len(self.in_hand) - 1))]
            self.handover.rewind([message])
            self.go_back(message.topic_partition, message.offset)

    @rule(partition=partitions, offset=st.integers(0, 20))
    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.handover.seek({partition: offset})
        self.next[partition] = offset
        self.in_hand = [each for each in self.in_hand if each.topic_partition != partition or each.offset < offset]

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        self.next[partition] = min(offset, self.next[partition])
        self.in_hand = [each for each in self.in_hand if each.topic_partition != partition or each.offset < offset]

    @rule(partition=partitions)
    def pause(self, partition: TopicPartition) -> None:
        self.handover.pause([partition])

    @rule(partition=partitions)
    def resume(self, partition: TopicPartition) -> None:
        self.handover.resume([partition])

    @rule()
    def wake_up(self) -> None:
        self.handover.wakeup()
        if self.loop is None:
            assert self.handover.take_now(5) == []
        else:
            assert next(self.loop, None) is None
            self.loop = None
            assert self.handover.take_now(5) == []

    @rule(partition=partitions)
    def lose_and_get_again(self, partition: TopicPartition) -> None:
        """Revoked: what is done is committed, and read on from there."""
        self.handover.revoke([partition])
        committed = self.handover.committable().get(partition, self.next[partition])
        assert all(each.topic_partition != partition or each.offset >= committed for each in self.in_hand)
        self.handover.forget([partition])
        self.handover.assign([partition])
        self.in_hand = [each for each in self.in_hand if each.topic_partition != partition]
        self.next[partition] = self.fetcher.position[partition] = committed

    @invariant()
    def positions_are_the_next_messages(self) -> None:
        for tp, offset in self.handover.positions().items():
            assert offset == self.next[tp]

    @invariant()
    def nothing_in_hand_is_committable(self) -> None:
        committable = self.handover.committable()
        assert all(each.offset >= committable[each.topic_partition] for each in self.in_hand)


TestHandover = HandoverMachine.TestCase
TestHandover.settings = settings(max_examples=150, stateful_step_count=40)


def make_engine(**options: object) -> ConsumerEngine:
    engine = ConsumerEngine(read_options("127.0.0.1:1", ["t"], group="g", **options))  # type: ignore[arg-type]
    engine._handover.assign(PARTITIONS)
    return engine


def test_a_loop_and_a_thread_that_calls_its_messages_back() -> None:
    """The loop locks nothing for a message; still each message is begun once, and in order."""
    engine = make_engine(buffer_messages=1000)
    fetcher = Fetcher(engine._handover)
    count = 30_000
    over = threading.Event()

    def disturb() -> None:
        choose = random.Random(5)
        while not over.is_set():
            partition = choose.choice(PARTITIONS)
            if not engine._handover.buffer.full:
                fetcher.deliver(partition, 20)
            if choose.random() < 0.3:
                engine._handover.pause([partition])
                engine._handover.resume([partition])

    thread = threading.Thread(target=disturb)
    thread.start()
    expected = dict.fromkeys(PARTITIONS, 0)
    try:
        for number, message in enumerate(engine.messages()):
            assert message.offset == expected[message.topic_partition]
            expected[message.topic_partition] += 1
            if number == count:
                break
    finally:
        over.set()
        thread.join()
    assert all(offset > count // 10 for offset in expected.values())


def test_wakeup_ends_a_loop_before_its_next_message_and_nothing_is_lost() -> None:
    engine = make_engine()
    Fetcher(engine._handover).deliver(PARTITIONS[0], 10)
    seen = []
    for message in engine.messages():
        seen.append(message.offset)
        if message.offset == 3:
            engine.wakeup()
    assert seen == [0, 1, 2, 3]
    assert engine._handover.committable() == {PARTITIONS[0]: 4}
    for message in engine.messages():
        seen.append(message.offset)
        if message.offset == 9:
            engine.wakeup()
    assert seen == list(range(10))


def test_a_message_in_hand_when_the_loop_is_left_is_not_done_unless_more_is_asked_for() -> None:
    engine = make_engine()
    Fetcher(engine._handover).deliver(PARTITIONS[0], 10)
    for message in engine.messages():
        if message.offset == 2:
            break
    assert engine._handover.committable() == {PARTITIONS[0]: 2}
    assert engine.in_hand() == [], "a revocation would wait for it"
    assert next(engine.messages()).offset == 3
    assert engine._handover.committable() == {PARTITIONS[0]: 3}


def test_errors_come_before_the_next_message() -> None:
    engine = make_engine()
    Fetcher(engine._handover).deliver(PARTITIONS[0], 10)
    seen = []

    def loop() -> None:
        for message in engine.messages():
            seen.append(message.offset)
            if message.offset == 1:
                engine._handover.report(InvalidUse("said so"))

    with pytest.raises(InvalidUse, match="said so"):
        loop()
    assert seen == [0, 1]
    assert engine.take(1, 0)[0].offset == 2, "it is raised once"
    engine._handover.close()
    with pytest.raises(Closed):
        engine.take(1, 0)


def test_where_passes_messages_over_and_they_are_done() -> None:
    engine = make_engine(where={"tier": {"gold", "silver"}})
    headers = [[("tier", b"gold")], [("tier", b"iron")], [], [("tier", b"silver"), ("x", b"\xff")]]
    records = [Message.of("t", 0, number, headers=each).record for number, each in enumerate(headers)]
    engine._handover.put([Run(PARTITIONS[0], records, 4)])
    messages = engine.take(10, 0)
    assert [message.offset for message in messages] == [0, 3]
    assert engine.passed_over == 2
    engine.done(messages[0])
    assert engine._handover.committable() == {PARTITIONS[0]: 3}


def test_where_passes_a_message_that_its_function_cannot_read() -> None:
    def broken(value: bytes | None, _: object) -> int:
        raise ValueError("broken")

    engine = make_engine(where=lambda message: message.value > 1, deserializers=Deserializers(value=broken))
    engine._handover.put([Run(PARTITIONS[0], [Message.of("t", 0, 0).record], 1)])
    assert [message.offset for message in engine.take(1, 0)] == [0]


def test_where_that_raises_loses_nothing() -> None:
    engine = make_engine(where=lambda message: 1 / 0 > 1)
    fetcher = Fetcher(engine._handover)
    fetcher.deliver(PARTITIONS[0], 3)
    with pytest.raises(ZeroDivisionError):
        engine.take(2, 0)
    assert engine._handover.due_seeks() == {PARTITIONS[0]: 0}
