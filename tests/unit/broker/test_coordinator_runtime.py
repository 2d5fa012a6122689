"""The coordinators' runtime: decide, append, apply, reply, on real partitions, with a machine that counts."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from moldau.base.coordination import Caller, Decision, Record, Timer, TimerFired
from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later
from moldau.broker.coordinators.partitioning import hash_of, partition_of
from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.waiting import awaited
from moldau.log.settings import LogConfig
from moldau.replication.partition import Partition
from support.log.logs import NOW, open_log
from support.net.loops import on_both_loops, run, until

TOPIC = "__counts"
ASKER = Caller(None, 0, "client", "/127.0.0.1")


class Counter:
    """A state machine with a number for each name; "wait" is answered by the next "tell"."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.waiting: list[object] = []
        self.ended: list[tuple[int, bool]] = []

    def gathers(self, command: Any) -> bool:
        return isinstance(command, tuple) and command[0] == "put"

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return record.key.encode(), None if record.value is None else str(record.value).encode()

    def apply(self, change: Any, producer_id: int = -1) -> None:
        if isinstance(change, Record):
            self.counts[change.key] = change.value
        else:
            self.waiting = change

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        self.apply(Record(key.decode(), None if value is None else int(value)), producer_id)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        self.ended.append((producer_id, commit))

    def decide(self, command: Any, caller: Caller, now: int) -> Decision:
        match command:
            case ("count", name):
                number = self.counts.get(name, 0) + 1
                return Decision([Record(name, number)], replies=[(caller.token, number)])
            case "enter":
                return Decision([Record("entered", 1)], transient=[[*self.waiting, caller.token]])
            case "wait":
                return Decision(transient=[[*self.waiting, caller.token]])
            case "tell":
                told = [(token, "told") for token in (*self.waiting, caller.token)]
                return Decision([Record("told", len(told))], transient=[[]], replies=told)
            case ("later", name):
                return Decision(timers=[Timer(("count", name), now + 1)], replies=[(caller.token, "soon")])
            case ("never", name):
                return Decision(timers=[Timer(("count", name), None)], replies=[(caller.token, "no")])
            case TimerFired(key=(_, name)):
                return Decision([Record(name, self.counts.get(name, 0) + 1)])
        raise AssertionError(command)


class Topic:
    """Stands where the broker's partitions are looked up: one partition with a real log."""

    def __init__(self, directory: Path, config: LogConfig | None = None) -> None:
        self.partition: Partition | None = Partition(TOPIC, 0, open_log(directory, config), 0)

    @property
    def by_name(self) -> dict[bytes, list[Partition | None]]:
        return {} if self.partition is None else {TOPIC.encode(): [self.partition]}

    def find(self, topics: dict[bytes, list[Partition | None]], token: bytes, index: int) -> Partition | None:
        return topics[token][index] if token in topics else None


def a_runtime(topic: Topic) -> CoordinatorRuntime[Counter, Any]:
    return CoordinatorRuntime(TOPIC, topic, Counter, Counter.decide, lambda machine, now: Decision(), lambda: NOW)  # type: ignore[arg-type]


def ask(runtime: CoordinatorRuntime[Counter, Any], command: Any) -> Any:
    return runtime.ask("any", command, ASKER, lambda error: error)


def machine(runtime: CoordinatorRuntime[Counter, Any]) -> Counter:
    shard = runtime.at(0)
    assert not isinstance(shard, WireError)
    return shard.machine


Story = Callable[[Topic, CoordinatorRuntime[Counter, Any]], Coroutine[Any, Any, None]]


def told(loop_kind: str, directory: Path, story: Story) -> None:
    async def main() -> None:
        topic = Topic(directory)
        runtime = a_runtime(topic)
        await story(topic, runtime)
        await runtime.stop()

    run(loop_kind, main())


@on_both_loops
def test_a_reply_comes_after_its_record_is_in_the_log(loop_kind: str, tmp_path: Path) -> None:
    async def story(topic: Topic, runtime: CoordinatorRuntime[Counter, Any]) -> None:
        assert [ask(runtime, ("count", "a")) for _ in range(3)] == [1, 2, 3]
        assert topic.partition is not None
        assert topic.partition.log.end_offset == 3

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_start_up_replays_what_was_decided(loop_kind: str, tmp_path: Path) -> None:
    async def story(topic: Topic, runtime: CoordinatorRuntime[Counter, Any]) -> None:
        for name in "abca":
            ask(runtime, ("count", name))
        again = a_runtime(topic)
        again.start()
        assert ask(again, ("count", "a")) is WireError.COORDINATOR_LOAD_IN_PROGRESS
        await until(again.loaded_shards)
        assert machine(again).counts == machine(runtime).counts == {"a": 2, "b": 1, "c": 1}

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_one_decision_answers_all_pending_requests(loop_kind: str, tmp_path: Path) -> None:
    async def story(topic: Topic, runtime: CoordinatorRuntime[Counter, Any]) -> None:
        waiting = [ask(runtime, "wait") for _ in range(3)]
        assert all(isinstance(each, Later) and not each.done for each in waiting)
        assert ask(runtime, "tell") == "told"
        assert [await awaited(each) for each in waiting] == ["told"] * 3

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_failed_append_changes_nothing_and_is_logged_once(
    loop_kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def story(topic: Topic, runtime: CoordinatorRuntime[Counter, Any]) -> None:
        waiting = ask(runtime, "wait")
        partition = topic.partition
        assert partition is not None
        full = Refusal(WireError.KAFKA_STORAGE_ERROR, "the disk is full")
        topic.partition = Refusing(partition, full)  # type: ignore[assignment]
        shard = runtime._shards[0]
        shard.partition = topic.partition  # type: ignore[assignment]
        assert ask(runtime, "tell") is WireError.NOT_COORDINATOR
        assert await awaited(waiting) is WireError.NOT_COORDINATOR
        assert ask(runtime, "enter") is WireError.NOT_COORDINATOR, "a request that would have waited fails, too"
        assert shard.machine.counts == {}
        assert caplog.text.count("Append to __counts-0 failed, clients retry: the disk is full") == 1
        shard.partition = topic.partition = partition
        assert ask(runtime, ("count", "a")) == 1
        assert caplog.text.count("Appends to __counts-0 succeed again") == 1

    told(loop_kind, tmp_path, story)


class Refusing:
    """A partition on a failing disk."""

    offline, leads = False, True

    def __init__(self, partition: Partition, refusal: Refusal) -> None:
        self.log = partition.log
        self.leader_epoch = partition.leader_epoch
        self.high_watermark = partition.high_watermark
        self._refusal = refusal
        self.appender = self

    def append_records(self, *_: object, **__: object) -> Refusal:
        return self._refusal

    async def await_committed(self, offset: int) -> None:
        """There is but one replica."""


@on_both_loops
def test_timers_fire_once_and_can_be_taken_back(loop_kind: str, tmp_path: Path) -> None:
    async def story(topic: Topic, runtime: CoordinatorRuntime[Counter, Any]) -> None:
        assert ask(runtime, ("later", "a")) == "soon"
        assert ask(runtime, ("later", "b")) == "soon"
        assert ask(runtime, ("never", "b")) == "no"
        await until(lambda: "a" in machine(runtime).counts)
        await asyncio.sleep(0.01)
        assert machine(runtime).counts == {"a": 1}

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_reply_waits_for_the_disk_where_the_topic_asks_for_it(loop_kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        topic = Topic(tmp_path, LogConfig.of({"flush.messages": "1"}))
        runtime = a_runtime(topic)
        assert topic.partition is not None
        reply = ask(runtime, ("count", "a"))
        assert isinstance(reply, Later)
        assert await awaited(reply) == 1
        assert topic.partition.log.recovery_point == 1
        await runtime.stop()
        await topic.partition.stop()

    run(loop_kind, main())


@on_both_loops
def test_pending_requests_are_answered_when_the_coordinator_stops(loop_kind: str, tmp_path: Path) -> None:
    async def story(topic: Topic, runtime: CoordinatorRuntime[Counter, Any]) -> None:
        waiting = ask(runtime, "wait")
        await runtime.stop()
        assert await awaited(waiting) is WireError.NOT_COORDINATOR
        assert ask(runtime, "tell") is WireError.NOT_COORDINATOR

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_shard_on_a_failed_disk_is_closed(loop_kind: str, tmp_path: Path) -> None:
    async def story(topic: Topic, runtime: CoordinatorRuntime[Counter, Any]) -> None:
        waiting = ask(runtime, "wait")
        ask(runtime, ("later", "a"))
        assert topic.partition is not None
        shard = runtime._shards[0]
        topic.partition.go_offline()
        await until(lambda: shard.closed)
        assert not shard.timers
        assert await awaited(waiting) is WireError.NOT_COORDINATOR

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_timers_run_after_a_load_without_its_records(loop_kind: str, tmp_path: Path) -> None:
    async def story(topic: Topic, runtime: CoordinatorRuntime[Counter, Any]) -> None:
        ask(runtime, ("count", "a"))
        partition = topic.partition
        assert partition is not None

        def loaded(machine: Counter, now: int) -> Decision:
            return Decision([Record("b", 1)], timers=[Timer(("count", "a"), now + 1)])

        again = CoordinatorRuntime(TOPIC, topic, Counter, Counter.decide, loaded, lambda: NOW)  # type: ignore[arg-type]
        full = Refusal(WireError.KAFKA_STORAGE_ERROR, "the disk is full")
        again.start()
        shard = again._shards[0]
        shard.partition = Refusing(partition, full)  # type: ignore[assignment]
        await until(lambda: shard.loading is None)
        shard.partition = partition
        await until(lambda: machine(again).counts == {"a": 2})

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_no_reply_tells_what_is_not_safe_yet(loop_kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        topic = Topic(tmp_path, LogConfig.of({"flush.messages": "1"}))
        runtime = a_runtime(topic)
        assert topic.partition is not None
        counted = ask(runtime, ("count", "a"))
        asked = ask(runtime, ("later", "b"))
        assert isinstance(asked, Later)
        assert not asked.done
        assert await awaited(counted) == 1
        assert await awaited(asked) == "soon"
        await runtime.stop()
        await topic.partition.stop()

    run(loop_kind, main())


def test_keys_belong_where_java_puts_them() -> None:
    assert hash_of("") == 0
    assert hash_of("my-group") == 1_906_497_762
    assert hash_of("Gruppe-ä😀") == 710_681_045
    assert hash_of("polygenelubricants") == 0  # its hash is the least integer, which has no opposite
    assert partition_of("a", 50) == 97 % 50
