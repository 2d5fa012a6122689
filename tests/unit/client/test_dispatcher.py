"""Dispatcher: who gets which message, and what the engine is told, one step at a time. The engine is a list here."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.client.consumer import dispatcher as module
from moldau.client.consumer.dispatcher import Dispatcher, Wait
from moldau.client.consumer.lanes import Job, Lanes
from moldau.client.consumer.retries import Backoff, Retry
from moldau.client.errors import Closed
from moldau.client.message import Message

AnyMessage = Message[Any, Any]
MUCH = 1 << 30


class Engine:
    """What a dispatcher needs of an engine."""

    def __init__(self, *messages: AnyMessage) -> None:
        self.buffer = list(messages)
        self.told: list[tuple[str, object]] = []
        self.parked: set[TopicPartition] = set()
        self.on_park: Callable[[], None] = lambda: None
        self.revoke: Callable[[list[TopicPartition], bool], None] = lambda partitions, lost: None
        self.closed = False

    def add_listener(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def on_revocation(self, hook: Callable[[list[TopicPartition], bool], None]) -> Callable[[], None]:
        self.revoke = hook
        return lambda: None

    def take_now(self, most: int, without: Collection[TopicPartition]) -> list[AnyMessage] | None:
        if self.closed:
            raise Closed("closed")
        found = [message for message in self.buffer if message.topic_partition not in without][:most]
        self.buffer = [message for message in self.buffer if message not in found]
        return found or None

    def done(self, message: AnyMessage) -> None:
        self.told.append(("done", message.offset))

    def rewind(self, messages: Iterable[AnyMessage]) -> None:
        self.told.append(("rewind", sorted(message.offset for message in messages)))

    def give_back(self, messages: Iterable[AnyMessage]) -> None:
        self.told.append(("give back", sorted(message.offset for message in messages)))

    def park(self, partitions: set[TopicPartition]) -> None:
        self.on_park()
        self.parked |= partitions

    def unpark(self, partitions: set[TopicPartition]) -> None:
        self.parked -= partitions


def messages(count: int, partition: int = 0) -> list[AnyMessage]:
    return [Message.of("t", partition, offset, key=b"%d-%d" % (partition, offset)) for offset in range(count)]


def dispatching(engine: Engine, *, most: int = 4, drain: bool = False) -> tuple[Dispatcher, Callable[[], None]]:
    """By key, and what ends it."""
    found: Any = engine
    retry = Retry(backoff=Backoff(first=600, most=600))
    dispatcher = Dispatcher(found, Lanes("key", most, MUCH), retry, lambda workers: None, take=most, drain=drain)
    return dispatcher, dispatcher.start()


def begun(dispatcher: Dispatcher, count: int) -> list[Job]:
    jobs = [dispatcher.next() for _ in range(count)]
    assert all(isinstance(job, Job) for job in jobs), jobs
    return jobs  # type: ignore[return-value]  # as asserted


def wait_s(dispatcher: Dispatcher) -> float | None:
    found = dispatcher.next()
    assert isinstance(found, Wait), found
    return found.seconds


def test_a_crowded_partition_is_passed_over_until_it_has_room() -> None:
    engine = Engine(*messages(6), *messages(1, partition=1))
    dispatcher, _ = dispatching(engine)
    jobs = begun(dispatcher, 5)
    assert [(job.partition.partition, job.message.offset) for job in jobs] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert wait_s(dispatcher) is not None
    dispatcher.done(jobs[0])
    assert wait_s(dispatcher) is not None, "there is not enough room yet"
    dispatcher.done(jobs[1])
    assert [job.message.offset for job in begun(dispatcher, 2)] == [4, 5]
    assert engine.told == [("done", 0), ("done", 1)]


def test_a_partition_without_progress_is_parked_until_it_has_room(monkeypatch: Any) -> None:
    engine = Engine(*messages(4))
    dispatcher, end = dispatching(engine)
    jobs = begun(dispatcher, 4)
    assert wait_s(dispatcher) is not None
    monkeypatch.setattr(module, "STUCK_S", 0.0)
    assert wait_s(dispatcher) is None
    assert engine.parked == {TopicPartition("t", 0)}
    dispatcher.done(jobs[0])
    assert engine.parked
    dispatcher.done(jobs[1])
    assert not engine.parked
    end()


def test_a_partition_that_moves_on_while_it_is_parked_is_not_left_so(monkeypatch: Any) -> None:
    engine = Engine(*messages(4))
    dispatcher, _ = dispatching(engine)
    jobs = begun(dispatcher, 4)
    monkeypatch.setattr(module, "STUCK_S", 0.0)

    def move_on() -> None:
        for job in jobs:  # of other workers, at that moment
            dispatcher.done(job)

    engine.on_park = move_on
    assert wait_s(dispatcher) is None
    assert not engine.parked


def test_what_has_not_ended_is_handed_out_again_after_the_run(monkeypatch: Any) -> None:
    engine = Engine(*messages(4))
    dispatcher, end = dispatching(engine)
    one, two, three = begun(dispatcher, 3)
    monkeypatch.setattr(module, "STUCK_S", 0.0)
    dispatcher.done(one)
    dispatcher.postpone(two, 600)
    dispatcher.fail(three, LookupError("no such customer"))
    assert dispatcher.next() is None
    assert isinstance(dispatcher.failure, LookupError)
    end()
    assert engine.told == [("done", 0), ("rewind", [1, 2, 3])]


def test_a_revocation_gives_back_what_does_not_run() -> None:
    engine = Engine(*messages(4), *messages(1, partition=1))
    dispatcher, end = dispatching(engine)
    one, two, three = begun(dispatcher, 3)
    dispatcher.postpone(one, 600)
    engine.revoke([TopicPartition("t", 0)], False)
    assert engine.told == [("give back", [0, 3])]
    dispatcher.done(two)
    dispatcher.postpone(three, 600)
    assert engine.told[1:] == [("done", 1), ("give back", [2])], "it is not tried again here"
    (other,) = begun(dispatcher, 1)
    assert other.partition.partition == 1
    dispatcher.stop()
    dispatcher.postpone(other, 600)
    end()
    assert engine.told[3:] == [("rewind", [0])]


def test_at_most_once_all_that_was_taken_is_processed() -> None:
    engine = Engine(*messages(6))
    dispatcher, end = dispatching(engine, drain=True)
    (first,) = begun(dispatcher, 1)
    engine.revoke([TopicPartition("t", 0)], False)
    dispatcher.fail(first, LookupError("no such customer"))
    for job in begun(dispatcher, 3):
        dispatcher.done(job)
    assert dispatcher.next() is None
    end()
    assert engine.told == [("done", 1), ("done", 2), ("done", 3)]


def test_an_engine_that_was_closed_ends_the_run_without_an_error() -> None:
    engine = Engine()
    dispatcher, _ = dispatching(engine)
    engine.closed = True
    assert dispatcher.next() is None
    assert dispatcher.failure is None
