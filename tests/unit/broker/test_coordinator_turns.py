"""CoordinatorRuntime: decisions of one turn of the loop in one batch, on real partitions and on one with followers."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from moldau.base.coordination import Caller, Decision, Record, Timer, TimerFired
from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.broker.coordinators import turn_batch
from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.coordinators.shard import Shard
from moldau.broker.waiting import awaited
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.replication.partition import Partition
from moldau.wire.records import decode_records
from support.log.batches import read_batches
from support.log.logs import NOW, open_log
from support.net.loops import on_both_loops, run, until
from support.replication.replicas import ReplicatedPartition

TOPIC = "__board"
ASKER = Caller(None, 0, "client", "/127.0.0.1")
LIMIT = 1 << 22


class Board:
    """A state machine with a text for each name. "put" looks at nothing, "add" at the text that is there."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.fired: list[str] = []

    def gathers(self, command: Any) -> bool:
        return isinstance(command, tuple) and command[0] in ("put", "beat", "refuse")

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        if record.key == "broken":
            raise ValueError("no such key")
        return str(record.key).encode(), str(record.value).encode()

    def apply(self, change: Any, producer_id: int = -1) -> None:
        self.texts[change.key] = change.value

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        assert value is not None
        self.texts[key.decode()] = value.decode()

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        self.texts["marker"] = str(commit)

    def decide(self, command: Any, caller: Caller, now: int) -> Decision:
        match command:
            case ("put", name, text):
                return Decision([Record(name, text)], replies=[(caller.token, text)])
            case ("beat", name):
                return Decision(
                    [Record(name, "!")], replies=[(caller.token, "!")], timers=[Timer((name,), now + 60_000)]
                )
            case ("refuse", _):
                return Decision.reply(caller, "refused")
            case ("add", name, text):
                whole = self.texts.get(name, "") + text
                return Decision([Record(name, whole)], replies=[(caller.token, whole)])
            case TimerFired(key=(name,)):
                self.fired.append(name)
                return Decision()
        raise AssertionError(command)


class Topic:
    """Stands where the broker's partitions are looked up: one partition."""

    def __init__(self, partition: Any) -> None:
        self.partition = partition

    @property
    def by_name(self) -> dict[bytes, list[Any]]:
        return {TOPIC.encode(): [self.partition]}

    def find(self, topics: object, token: bytes, index: int) -> Any:
        return self.partition


class Coordinator:
    def __init__(self, partition: Any) -> None:
        self.runtime: CoordinatorRuntime[Board, Any] = CoordinatorRuntime(
            TOPIC,
            Topic(partition),  # type: ignore[arg-type]
            Board,
            Board.decide,
            lambda machine, now: Decision(),
            lambda: NOW,
        )

    def ask(self, *command: str) -> Any:
        return self.runtime.ask("any", command, ASKER, lambda error: error)

    def read(self, name: str) -> Any:
        return self.runtime.read("any", lambda board: board.texts.get(name), lambda error: error)

    @property
    def shard(self) -> Shard[Board]:
        return self.runtime._shards[0]

    @property
    def texts(self) -> dict[str, str]:
        return self.shard.machine.texts


def batches(directory: Path) -> list[list[tuple[str, str]]]:
    """The keys and values of each batch in the log."""
    (segment,) = (directory / "topic-0").glob("*.log")
    found = [decode_records(batch.raw, limit=LIMIT) for batch in read_batches(segment.read_bytes())]
    return [[((each.key or b"").decode(), (each.value or b"").decode()) for each in records] for records in found]


Story = Callable[[Coordinator, Partition], Coroutine[Any, Any, None]]


def told(loop_kind: str, directory: Path, story: Story, **config: str) -> None:
    async def main() -> None:
        log = open_log(directory, LogConfig.of({key.replace("_", "."): value for key, value in config.items()}))
        partition = Partition(TOPIC, 0, log, 0)
        coordinator = Coordinator(partition)
        await story(coordinator, partition)
        await coordinator.runtime.stop()

    run(loop_kind, main())


async def several(coordinator: Coordinator) -> None:
    """A turn with several decisions, so that the first one of the next turn expects others."""
    replies = [coordinator.ask("put", "warm", "up") for _ in range(2)]
    assert [await awaited(each) for each in replies] == ["up", "up"]
    await asyncio.sleep(0)


def waits(reply: Any) -> bool:
    return isinstance(reply, Later) and not reply.done


@on_both_loops
def test_a_decision_alone_in_its_turn_is_answered_at_once(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        for text in "abc":
            assert coordinator.ask("put", "name", text) == text
            await asyncio.sleep(0)
        assert batches(tmp_path) == [[("name", "a")], [("name", "b")], [("name", "c")]]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_the_decisions_of_a_turn_are_one_batch_in_their_order(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        first, second, third = (coordinator.ask("put", "name", text) for text in "abc")
        assert first == "a", "nothing says yet that others will come"
        assert waits(second)
        assert waits(third)
        assert [await awaited(each) for each in (second, third)] == ["b", "c"]
        await asyncio.sleep(0)
        replies = [coordinator.ask("put", name, name.upper()) for name in "xyz"]
        assert all(map(waits, replies)), "the last turn had several"
        assert [await awaited(each) for each in replies] == ["X", "Y", "Z"]
        assert batches(tmp_path) == [
            [("name", "a")],
            [("name", "b"), ("name", "c")],
            [("x", "X"), ("y", "Y"), ("z", "Z")],
        ]
        assert coordinator.texts == {"name": "c", "x": "X", "y": "Y", "z": "Z"}
        again = Coordinator(partition)
        again.runtime.start()
        await until(lambda: again.read("z") == "Z")
        assert again.texts == coordinator.texts

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_the_replies_of_a_turn_come_last_first(loop_kind: str, tmp_path: Path) -> None:
    """A connection keeps them in order, and can send all of them when the first is there."""

    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        heard: list[str] = []
        replies = [coordinator.ask("put", "name", text) for text in "abc"]
        for each in replies:
            each.then(heard.append)
        await awaited(coordinator.ask("put", "name", "d"))
        assert heard == ["c", "b", "a"]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_decision_that_depends_on_others_sees_them(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        put = [coordinator.ask("put", "name", text) for text in "ab"]
        assert coordinator.ask("add", "name", "c") == "bc"
        assert [each.result for each in put] == ["a", "b"]
        assert batches(tmp_path)[2:] == [[("name", "a"), ("name", "b")], [("name", "bc")]]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_read_sees_what_was_decided_before_it(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        put = coordinator.ask("put", "name", "a")
        assert coordinator.read("name") == "a"
        assert put.result == "a"

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_refusal_does_not_wait_for_the_turn(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        put = coordinator.ask("put", "name", "a")
        assert coordinator.ask("refuse", "name") == "refused"
        assert waits(put)

    told(loop_kind, tmp_path, story)


@on_both_loops
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_append_refuses_the_whole_turn_and_changes_nothing(
    loop_kind: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        shard = coordinator.shard

        def fail(*_: object) -> int:
            raise OSError(number, "the disk fails")

        with monkeypatch.context() as failing:
            failing.setattr(Log, "append", fail)
            replies = [coordinator.ask("beat", name) for name in "abc"]
            assert [await awaited(each) for each in replies] == [WireError.NOT_COORDINATOR] * 3
        assert shard.machine.texts == {"warm": "up"}
        assert not shard.timers
        assert not shard.waiting
        assert len(batches(tmp_path)) == 2
        if number == errno.ENOSPC:
            assert await awaited(coordinator.ask("put", "name", "a")) == "a", "space was freed"
        else:
            assert coordinator.ask("put", "name", "a") is WireError.NOT_COORDINATOR, "its directory is offline"

    told(loop_kind, tmp_path, story)


@on_both_loops
@pytest.mark.parametrize("again", [False, True])
def test_leadership_lost_before_the_end_of_the_turn(loop_kind: str, again: bool) -> None:
    async def main() -> None:
        partition = ReplicatedPartition()
        coordinator = Coordinator(partition)
        first = [coordinator.ask("put", "name", text) for text in "ab"]
        await asyncio.sleep(0)
        partition.commit()
        assert [await awaited(each) for each in first] == ["a", "b"]
        shard = coordinator.shard
        replies = [coordinator.ask("put", "name", text) for text in "cd"]
        partition.lose()
        if again:
            partition.win()
        assert [await awaited(each) for each in replies] == [WireError.NOT_COORDINATOR] * 2
        assert shard.closed
        assert partition.log.batches == [[(b"name", b"a")], [(b"name", b"b")]]
        await coordinator.runtime.stop()

    run(loop_kind, main())


@on_both_loops
def test_followers_commit_the_turn_as_a_whole(loop_kind: str) -> None:
    async def main() -> None:
        partition = ReplicatedPartition()
        coordinator = Coordinator(partition)
        await asyncio.sleep(0)
        replies = [coordinator.ask("put", name, "a") for name in "xyz"]
        found = coordinator.read("z")
        assert waits(found), "what it saw may be lost"
        assert partition.log.batches == [[(b"x", b"a")], [(b"y", b"a"), (b"z", b"a")]]
        partition.commit(1)
        assert [each.done for each in replies] == [True, False, False]
        partition.commit(1)
        assert [each.result for each in (*replies, found)] == ["a"] * 4
        await coordinator.runtime.stop()

    run(loop_kind, main())


@on_both_loops
def test_a_marker_before_the_end_of_the_turn_comes_first(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        put = coordinator.ask("put", "marker", "after")
        outcome = partition.appender.append_records([(b"marker", b"True")], NOW)
        coordinator.runtime.marker_appended(coordinator.shard, 7, True, outcome, lambda error: None)
        assert await awaited(put) == "after"
        assert coordinator.texts["marker"] == "after"
        assert batches(tmp_path)[2:] == [[("marker", "True")], [("marker", "after")]]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_full_batch_does_not_wait_for_the_end_of_the_turn(
    loop_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_batch, "MAX_RECORDS", 3)

    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        replies = [coordinator.ask("put", "name", text) for text in "abcd"]
        assert [waits(each) for each in replies] == [False, False, False, True]
        assert await awaited(replies[3]) == "d"
        assert [len(batch) for batch in batches(tmp_path)[2:]] == [3, 1]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_turn_over_the_size_of_a_batch_is_several(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        long, too_long = "a" * 250, "b" * 500
        replies = [coordinator.ask("put", name, text) for name, text in zip("xyz", (long, too_long, long), strict=True)]
        assert [await awaited(each) for each in replies] == [long, WireError.UNKNOWN_SERVER_ERROR, long]
        assert batches(tmp_path)[2:] == [[("x", long)], [("z", long)]]
        assert coordinator.texts == {"warm": "up", "x": long, "z": long}

    told(loop_kind, tmp_path, story, max_message_bytes="400")


@on_both_loops
def test_a_timer_that_the_turn_sets_anew_does_not_fire(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        runtime, shard = coordinator.runtime, coordinator.shard
        runtime.execute(shard, Decision(timers=[Timer(("a",), NOW + 60_000), Timer(("b",), NOW + 60_000)]))
        beat = coordinator.ask("beat", "a")
        for name in "ab":  # both are due before the turn ends
            runtime._on_timer(shard, (name,), NOW)
        assert beat.result == "!"
        assert shard.machine.fired == ["b"]
        assert set(shard.timers) == {("a",)}

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_a_stop_appends_the_turn(loop_kind: str, tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        put = coordinator.ask("put", "name", "a")
        await coordinator.runtime.stop()
        assert put.result == "a"
        assert batches(tmp_path)[2:] == [[("name", "a")]]

    told(loop_kind, tmp_path, story)


@on_both_loops
def test_an_unexpected_error_answers_the_turn_and_loads_again(
    loop_kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(coordinator: Coordinator, partition: Partition) -> None:
        await several(coordinator)
        shard = coordinator.shard
        replies = [coordinator.ask("put", name, "a") for name in ("x", "broken")]
        assert [await awaited(each) for each in replies] == [WireError.NOT_COORDINATOR] * 2
        assert shard.closed
        assert "Writing decisions to __board-0 failed; its state is loaded again" in caplog.text
        await until(lambda: coordinator.read("warm") == "up")
        assert len(batches(tmp_path)) == 2

    told(loop_kind, tmp_path, story)
