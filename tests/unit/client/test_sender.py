"""Batches arrive once and in order, whatever becomes of connections. Brokers here are a few lines of Python."""

import random
from collections import deque
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.client.direct.connection import ConnectionLost
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Leader, Topic
from moldau.client.direct.retries import Retries
from moldau.client.direct.sender import IN_FLIGHT, ProducerBatch, Sender
from moldau.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC_ID = UUID(int=7)
NOT_LEADER, OUT_OF_ORDER, TOO_LARGE = 6, 45, 10


class Impatient(Retries):
    """Tries fifty times, without a pause."""

    def __init__(self) -> None:
        super().__init__(0)
        self.left = 50

    def again(self) -> bool:
        self.left -= 1
        return self.left > 0


class World:
    """Two brokers that share logs; which of them leads changes by chance, and connections break by chance."""

    timeout_s = 1.0

    def __init__(self, partitions: int, chance: random.Random, trouble: float) -> None:
        self.logs: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self.chance, self.trouble = chance, trouble
        self.leaders = dict.fromkeys(self.logs, 0)
        self.known: dict[int, int] | None = None
        self.most_in_flight = 0
        self.lifetime = 1 << 30  # requests that a connection lasts
        self.lost_to_age = 0  # answers that were not waited for when it ended

    def retries(self, timeout_s: float | None = None) -> Retries:
        return Impatient()

    def topic(self, name: str, retries: Retries | None = None) -> Topic:
        if self.known is None:
            self.known = dict(self.leaders)
        return Topic(name, TOPIC_ID, False, {part: Leader(node, 0) for part, node in self.known.items()})

    def leader(self, place: TopicPartition, retries: Retries | None = None) -> Leader:
        return self.topic(place.topic).leaders[place.partition]

    def forget(self, *names: str) -> None:
        self.known = None

    def dedicated_connection(self, node_id: int) -> "Wire":
        if self.chance.random() < self.trouble:
            raise ConnectionLost("refused")
        return Wire(self, node_id)

    def release(self, connection: "Wire") -> None:
        connection.close()

    def append(self, node_id: int, partition: int, data: bytes) -> int:
        """What the leader answers; a sequence that is known is written once."""
        number = int(data)
        log = self.logs[partition]
        if self.chance.random() < self.trouble:
            self.leaders[partition] = 1 - self.leaders[partition]
        if self.leaders[partition] != node_id:
            return NOT_LEADER
        if number > len(log):
            return OUT_OF_ORDER
        if number == len(log):
            log.append(number)
        return 0


class Wire:
    """A connection: answers come in order, and may be lost after the broker has written."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world, self.node_id = world, node_id
        self.answers: deque[ProduceResponse] = deque()
        self.left = world.lifetime

    @property
    def stale(self) -> bool:
        return self.left <= 0

    @property
    def has_response(self) -> bool:
        return bool(self.answers) and self.world.chance.random() < 0.5

    def close(self) -> None:
        if self.stale:
            self.world.lost_to_age += len(self.answers)
        self.answers.clear()

    def send(self, request: ProduceRequest, answer: type, until: int) -> "Wire":
        assert not self.stale
        self.left -= 1
        if self.world.chance.random() < self.world.trouble:
            raise ConnectionLost("broken pipe")
        rows = []
        for part in request.topic_data[0].partition_data:
            assert part.records is not None
            code = self.world.append(self.node_id, part.index, part.records)
            rows.append(PartitionProduceResponse(index=part.index, error_code=code, base_offset=0))
        self.world.chance.shuffle(rows)
        topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=tuple(rows))
        self.answers.append(ProduceResponse(responses=(topic,)))
        self.world.most_in_flight = max(self.world.most_in_flight, len(self.answers))
        return self

    def tell(self, request: ProduceRequest, until: int) -> None:
        self.send(request, ProduceResponse, until)
        self.answers.clear()
        self.world.most_in_flight = 0

    def receive(self, ticket: Any) -> ProduceResponse:
        if self.world.chance.random() < self.world.trouble:
            raise ConnectionLost("reset")
        return self.answers.popleft()


def outgoing(partition: int, number: int, order: int) -> ProducerBatch:
    return ProducerBatch(TopicPartition("t", partition), b"%d" % number, (order,))


@settings(deadline=None, database=None, max_examples=60)
@given(st.integers(0, 1 << 32), st.integers(1, 4), st.integers(1, 40), st.sampled_from([0.0, 0.05, 0.2]))
def test_every_batch_arrives_once_and_in_order(seed: int, partitions: int, each: int, trouble: float) -> None:
    world = World(partitions, random.Random(seed), trouble)
    delivered: list[ProducerBatch] = []
    sender = Sender(world, delivered=delivered.append)  # type: ignore[arg-type]
    order = 0
    for number in range(each):
        for partition in range(partitions):
            assert sender.add([outgoing(partition, number, order)]) is None
            order += 1
    assert sender.push() is None
    assert world.logs == {partition: list(range(each)) for partition in range(partitions)}
    assert len(delivered) == len({batch.order for batch in delivered}) == partitions * each
    assert world.most_in_flight <= IN_FLIGHT


def test_a_connection_whose_session_ends_is_replaced_when_all_is_answered() -> None:
    world = World(2, random.Random(1), 0.0)
    world.lifetime = 3
    sender = Sender(world)  # type: ignore[arg-type]
    for number in range(20):
        assert sender.add(outgoing(partition, number, number) for partition in (0, 1)) is None
    assert sender.push() is None
    assert world.logs == {0: list(range(20)), 1: list(range(20))}
    assert world.lost_to_age == 0


def test_a_batch_that_is_too_large_goes_in_parts() -> None:
    """Batches here are ranges of numbers, and brokers take up to three of them."""
    world = World(1, random.Random(1), 0.0)
    log = world.logs[0]

    def append(node_id: int, partition: int, numbers: range) -> int:
        if len(numbers) > 3:
            return TOO_LARGE
        if numbers.start != len(log):
            return OUT_OF_ORDER
        log.extend(numbers)
        return 0

    def made(numbers: range, order: tuple[int, ...]) -> ProducerBatch:
        return ProducerBatch(TopicPartition("t", 0), b"%d-%d" % (numbers.start, numbers.stop), order, len(numbers))

    def split(batch: ProducerBatch) -> list[ProducerBatch]:
        first, end = map(int, batch.data.split(b"-"))
        middle = (first + end) // 2
        return [made(range(first, middle), (*batch.order, 0)), made(range(middle, end), (*batch.order, 1))]

    world.append = lambda node, part, data: append(node, part, range(*map(int, data.split(b"-"))))  # type: ignore[method-assign]
    delivered: list[ProducerBatch] = []
    sender = Sender(world, delivered=delivered.append, split=split)  # type: ignore[arg-type]
    batches = [made(range(2), (0,)), made(range(2, 25), (1,)), made(range(25, 27), (2,)), made(range(27, 40), (3,))]
    assert (sender.add(batches) or sender.push()) is None
    assert log == list(range(40))
    assert sum(batch.records for batch in delivered) == 40


def test_nothing_is_waited_for_if_nobody_answers() -> None:
    world = World(2, random.Random(1), 0.0)
    sender = Sender(world, acks=0)  # type: ignore[arg-type]
    for number in range(20):
        assert sender.add(outgoing(partition, number, number) for partition in (0, 1)) is None
    assert sender.push() is None
    assert world.logs == {0: list(range(20)), 1: list(range(20))}
    assert world.most_in_flight == 0


def test_a_failure_that_stays_is_told_in_the_end() -> None:
    world = World(1, random.Random(1), 1.0)
    sender = Sender(world)  # type: ignore[arg-type]
    problem = sender.add([outgoing(0, 0, 0)]) or sender.push()
    assert isinstance(problem, Failure)
    assert problem.name == "NETWORK_EXCEPTION"


@pytest.mark.parametrize("code", [TOO_LARGE, OUT_OF_ORDER, -1])
def test_a_failure_that_does_not_pass_is_told_at_once(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, random.Random(1), 0.0)
    monkeypatch.setattr(world, "append", lambda *_: code)
    sender = Sender(world)  # type: ignore[arg-type]
    problem = sender.add([outgoing(0, 0, 0)]) or sender.push()
    assert isinstance(problem, Failure)
    assert problem.code == code
