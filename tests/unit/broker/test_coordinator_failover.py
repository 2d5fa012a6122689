"""CoordinatorRuntime with changing leaders: no reply is sent for records that are lost later."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.coordination import Caller, Decision, Record, Timer, TimerFired
from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later
from moldau.broker.coordinators import runtime as module
from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.waiting import awaited
from moldau.metadata.image import ClusterImage
from support.net.loops import on_both_loops, run, until
from support.replication.replicas import ReplicatedPartition

TOPIC = "__counts"
NOW = 1_700_000_000_000
ASKER = Caller(None, 0, "client", "/127.0.0.1")


class Counter:
    """A state machine with one number."""

    def __init__(self) -> None:
        self.number = 0
        self.ended: list[tuple[int, bool]] = []

    def gathers(self, command: Any) -> bool:
        return False

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return b"number", str(record.value).encode()

    def apply(self, change: Any, producer_id: int = -1) -> None:
        self.number = change.value

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        assert value is not None
        self.number = int(value)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        self.ended.append((producer_id, commit))

    def decide(self, command: Any, caller: Caller, now: int) -> Decision:
        match command:
            case "count" | TimerFired():
                number = self.number + 1
                return Decision([Record("number", number)], replies=[(caller.token, number)], work=[number])
            case "look":
                return Decision.reply(caller, self.number)
            case "fetch":
                return Decision(work=[-1])
            case "later":
                return Decision(timers=[Timer(("count",), now + 1)], replies=[(caller.token, "soon")])
        raise AssertionError(command)


class Topic:
    def __init__(self) -> None:
        self.partition = ReplicatedPartition()

    @property
    def by_name(self) -> dict[bytes, list[ReplicatedPartition]]:
        return {TOPIC.encode(): [self.partition]}

    def find(self, topics: object, token: bytes, index: int) -> ReplicatedPartition:
        return self.partition

    async def settled(self) -> None:
        """Nothing is being opened."""


class Coordinator:
    def __init__(self) -> None:
        self.topic = Topic()
        self.work: list[int] = []
        self.found: list[int] = []  # work that a loaded machine leaves to others
        self.runtime: CoordinatorRuntime[Counter, Any] = CoordinatorRuntime(
            TOPIC,
            self.topic,  # type: ignore[arg-type]
            Counter,
            Counter.decide,
            lambda machine, now: Decision(work=self.found),
            lambda: NOW,
        )
        self.runtime.on_work = lambda _, number: self.work.append(number)
        self.runtime.start()

    @property
    def partition(self) -> ReplicatedPartition:
        return self.topic.partition

    def ask(self, command: Any) -> Any:
        return self.runtime.ask("any", command, ASKER, lambda error: error)

    def read(self) -> Any:
        return self.runtime.read("any", lambda machine: machine.number, lambda error: error)

    async def loaded(self) -> None:
        await until(lambda: not isinstance(self.runtime.at(0), WireError))


Story = Callable[[Coordinator, ReplicatedPartition], Coroutine[Any, Any, None]]


def told(loop_kind: str, story: Story) -> None:
    async def main() -> None:
        coordinator = Coordinator()
        await story(coordinator, coordinator.partition)
        await coordinator.runtime.stop()

    run(loop_kind, main())


def pending(*promises: Any) -> bool:
    return all(isinstance(each, Later) and not each.done for each in promises)


@on_both_loops
def test_replies_come_in_order_as_their_records_are_committed(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        first, second, third = (coordinator.ask("count") for _ in range(3))
        assert pending(first, second, third)
        assert not coordinator.work, "others do nothing for what may be lost"
        partition.commit(1)
        assert await awaited(first) == 1
        assert coordinator.work == [1]
        assert pending(second, third)
        partition.commit(2)
        assert (await awaited(second), await awaited(third)) == (2, 3)
        assert coordinator.work == [1, 2, 3]

    told(loop_kind, story)


@on_both_loops
def test_a_read_waits_for_the_commit_of_what_it_saw(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        assert coordinator.ask("look") == coordinator.read() == 0
        first = coordinator.ask("count")
        looks = [coordinator.ask("look"), coordinator.read()]
        second = coordinator.ask("count")
        assert pending(first, second, *looks)
        partition.commit(1)
        assert [await awaited(each) for each in looks] == [1, 1], "and for no more than that"
        assert pending(second)
        partition.commit()
        assert await awaited(second) == 2
        assert coordinator.read() == 2

    told(loop_kind, story)


@on_both_loops
def test_pending_requests_fail_with_not_coordinator_when_leadership_is_lost(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        waiting = [coordinator.ask("count"), coordinator.ask("look"), coordinator.read(), coordinator.ask("count")]
        partition.lose()
        assert [await awaited(each) for each in waiting] == [WireError.NOT_COORDINATOR] * 4
        assert coordinator.ask("count") is coordinator.read() is WireError.NOT_COORDINATOR
        assert coordinator.runtime.read_all(lambda machine: machine.number, int) == []
        assert not coordinator.work
        assert not coordinator.runtime.loaded_shards()

    told(loop_kind, story)


@pytest.mark.parametrize(
    ("error", "level"), [(WireError.KAFKA_STORAGE_ERROR, "WARNING"), (WireError.NOT_LEADER_OR_FOLLOWER, "INFO")]
)
def test_a_lost_append_is_logged_with_what_follows(
    error: WireError, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        coordinator.ask("count")
        partition.lose(refusal=Refusal.of(error))

    with caplog.at_level(logging.INFO, "moldau.broker"):
        told("asyncio", story)
    reason = error.doc.rstrip(".")
    line = f"Records appended to __counts-0 may not be committed: {reason}. The coordinator's state is dropped; clients"
    assert [each.levelname for each in caplog.records if each.getMessage().startswith(line)] == [level]


@on_both_loops
def test_a_leader_begins_with_what_its_log_has(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        for _ in range(4):
            coordinator.ask("count")
        partition.commit(2)
        partition.lose(kept=1)
        partition.win()
        assert coordinator.read() is WireError.COORDINATOR_LOAD_IN_PROGRESS
        await coordinator.loaded()
        read, counted = coordinator.read(), coordinator.ask("count")
        assert pending(read, counted), "the last record of its log is not committed"
        partition.commit(1)
        assert await awaited(read) == 3
        assert pending(counted)
        partition.commit()
        assert await awaited(counted) == 4

    told(loop_kind, story)


@on_both_loops
def test_what_a_leader_found_may_be_lost_with_its_leadership(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        coordinator.ask("count")
        partition.lose(kept=1)
        partition.win()
        await coordinator.loaded()
        read = coordinator.read()
        shard = coordinator.runtime.loaded_shards()[0]
        partition.lose()
        assert coordinator.read() is WireError.NOT_COORDINATOR
        assert await awaited(read) is WireError.NOT_COORDINATOR
        assert shard.task is not None
        await asyncio.wait([shard.task])
        partition.win()
        assert coordinator.read() == 0

    told(loop_kind, story)


@on_both_loops
def test_another_epoch_is_another_shard(loop_kind: str) -> None:
    """It may have been led elsewhere meanwhile, without this broker having noticed."""

    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        coordinator.ask("count")
        partition.commit()
        coordinator.ask("later")
        shard = coordinator.runtime.loaded_shards()[0]
        partition.log.batches.append([(b"number", b"7")])
        partition.win()
        partition.commit()
        assert coordinator.read() is WireError.COORDINATOR_LOAD_IN_PROGRESS
        assert shard.closed
        assert not shard.timers
        await coordinator.loaded()
        assert coordinator.read() == 7

    told(loop_kind, story)


@on_both_loops
def test_shards_are_loaded_with_the_image_not_with_the_first_request(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        coordinator.ask("count")
        partition.commit()
        partition.lose()
        old, new = ClusterImage(), ClusterImage(version=1, topics={TOPIC: "changed"})  # type: ignore[dict-item]
        coordinator.runtime.follow(old, new)
        assert not coordinator.runtime.loaded_shards()
        partition.win()
        coordinator.runtime.follow(new, old)
        await until(lambda: bool(coordinator.runtime.loaded_shards()))
        assert coordinator.read() == 1

    told(loop_kind, story)


@on_both_loops
def test_a_load_that_is_overtaken_comes_to_nothing(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        coordinator.ask("count")
        partition.lose(kept=1)
        partition.win()
        assert coordinator.read() is WireError.COORDINATOR_LOAD_IN_PROGRESS
        old = coordinator.runtime._shards[0]
        partition.lose()  # of its record nothing is left
        partition.win()
        assert coordinator.ask("count") is not WireError.COORDINATOR_LOAD_IN_PROGRESS
        partition.commit()
        await asyncio.sleep(0.02)
        assert old.loading is not None
        assert old.loading.done()
        assert coordinator.read() == 1

    told(loop_kind, story)


@on_both_loops
def test_too_few_replicas_are_no_replicas(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        partition.refuses = Refusal.of(WireError.NOT_ENOUGH_REPLICAS)
        assert coordinator.ask("count") is WireError.COORDINATOR_NOT_AVAILABLE
        assert coordinator.ask("look") == 0
        partition.refuses = None
        counted = coordinator.ask("count")
        partition.commit()
        assert await awaited(counted) == 1

    told(loop_kind, story)


@on_both_loops
def test_pending_requests_time_out(loop_kind: str) -> None:
    """As after any time-out: what was asked for may still be done, and others hear of it when it is."""

    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        coordinator.runtime.append_timeout_ms = lambda: 20
        first, look = coordinator.ask("count"), coordinator.read()
        assert await awaited(first) is await awaited(look) is WireError.COORDINATOR_NOT_AVAILABLE
        assert not coordinator.work
        coordinator.runtime.append_timeout_ms = lambda: 60_000
        second = coordinator.ask("count")
        partition.commit()
        assert await awaited(second) == 2
        assert coordinator.work == [1, 2]

    told(loop_kind, story)


@on_both_loops
def test_later_requests_time_out_too(loop_kind: str) -> None:
    """Replicas stand still for long. Each request times out by itself."""

    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        coordinator.runtime.append_timeout_ms = lambda: 20
        assert await awaited(coordinator.ask("count")) is WireError.COORDINATOR_NOT_AVAILABLE
        for _ in range(2):
            asked = [coordinator.ask("look"), coordinator.read(), coordinator.ask("look")]
            assert pending(*asked)
            async with asyncio.timeout(10):
                assert [await awaited(each) for each in asked] == [WireError.COORDINATOR_NOT_AVAILABLE] * 3
        look = coordinator.ask("look")
        partition.commit()
        assert await awaited(look) == 1
        assert coordinator.work == [1]
        assert coordinator.read() == 1

    told(loop_kind, story)


@on_both_loops
def test_work_without_records_does_not_wait(loop_kind: str) -> None:
    """A producer id is allocated before its record is committed."""

    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        coordinator.ask("count")
        coordinator.ask("fetch")
        assert coordinator.work == [-1]
        partition.lose(kept=1)
        partition.win()
        coordinator.found = [7]
        await coordinator.loaded()
        assert coordinator.work == [-1], "what was found in the log may be lost"
        partition.commit()
        await until(lambda: coordinator.work == [-1, 7])

    told(loop_kind, story)


@on_both_loops
def test_there_is_an_end_to_what_may_wait(loop_kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MAX_PENDING_APPENDS", 3)

    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        asked = [coordinator.ask("count") for _ in range(4)]
        assert asked.pop() is WireError.COORDINATOR_NOT_AVAILABLE
        partition.commit()
        assert [await awaited(each) for each in asked] == [1, 2, 3]

    told(loop_kind, story)


@on_both_loops
def test_a_marker_counts_from_its_place_in_the_log(loop_kind: str) -> None:
    async def story(coordinator: Coordinator, partition: ReplicatedPartition) -> None:
        shard = coordinator.runtime.at(0)
        assert not isinstance(shard, WireError)
        heard: list[WireError] = []
        outcome = partition.appender.append_records([(b"number", b"0")], NOW)
        assert not isinstance(outcome, Refusal)
        coordinator.runtime.marker_appended(shard, 7, True, outcome, heard.append)
        assert shard.machine.ended == [(7, True)]
        look = coordinator.read()
        assert pending(look), "what the marker decided is not certain yet"
        assert not heard
        partition.commit()
        assert heard == [WireError.NONE]
        assert await awaited(look) == 0
        outcome = partition.appender.append_records([(b"number", b"0")], NOW)
        assert not isinstance(outcome, Refusal)
        coordinator.runtime.marker_appended(shard, 8, True, outcome, heard.append)
        partition.lose()
        assert heard == [WireError.NONE, WireError.NOT_LEADER_OR_FOLLOWER]

    told(loop_kind, story)


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["count", "count", "look", "read", "commit", "fail"]), st.integers(0, 3)), max_size=40
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_no_reply_tells_of_what_is_lost_later(steps: list[Step]) -> None:
    """Every number in a reply is in the log of every later leader."""

    async def main() -> None:
        coordinator = Coordinator()
        partition = coordinator.partition
        asked: list[Any] = []
        sure = 0
        for action, number in steps:
            if action == "commit":
                partition.commit(number)
            elif action == "fail":
                partition.lose(kept=number)
                partition.win()
                await coordinator.loaded()
                asked.append(coordinator.read())
                shard = coordinator.runtime.at(0)
                assert not isinstance(shard, WireError)
                assert shard.machine.number >= sure
            else:
                asked.append(coordinator.read() if action == "read" else coordinator.ask(action))
            answers = [each.result if isinstance(each, Later) else each for each in asked if not pending(each)]
            heard = [answer for answer in answers if not isinstance(answer, WireError)]
            sure = max(heard, default=0)
            assert sure <= len(partition.log.batches[: partition.high_watermark])
        partition.commit()
        for each in asked:
            assert not isinstance(each, Later) or await awaited(each) is not None, "everybody hears something"
        await coordinator.runtime.stop()

    asyncio.run(main())
