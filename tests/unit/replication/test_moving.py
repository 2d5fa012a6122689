"""Partitions on their way to another directory: complete, in order, and never in two places."""

import asyncio
import errno
import threading
from collections import deque
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.log import files
from moldau.log.directory import MOVED, DirectoryRefused, LogDirectory
from moldau.log.files import SyncFailed
from moldau.log.log import Log
from moldau.log.segment import Segment
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication import move as moving
from moldau.replication.moves import Moves
from moldau.replication.opener import Opener
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from moldau.wire.records import decode_records
from support.log.batches import Producer
from support.log.logs import NOW
from support.log.lying_disk import LyingDisk, lying
from support.net.loops import run, turns, until
from support.replication.partitions import Outcomes, abandon, some

NODE = 1
FIVE = Producer(5, 0)
TOPIC = Topic("t", UUID(int=7), (PartitionState(0, (NODE,), (NODE,), NODE),), {"internal.segment.bytes": "1000"})
IMAGE = ClusterImage(topics={"t": TOPIC})


class Node:
    def __init__(self, tmp_path: Path) -> None:
        self.directories = [LogDirectory.open(tmp_path / name) for name in ("one", "two")]
        self.replicas = Replicas(NODE, self.directories, lambda each: LogConfig.of(each.config), lambda: NOW, 10**9)
        self.replicas.load(IMAGE, 1, lambda: False)

    @property
    def partition(self) -> Partition:
        found = self.replicas.get("t", 0)
        assert found is not None
        return found

    @property
    def elsewhere(self) -> LogDirectory:
        return next(each for each in self.directories if self.replicas.directories.of(self.partition) is not each)

    async def move(self) -> None:
        await self.replicas.moves.begin(self.partition, self.elsewhere)
        await until(lambda: not self.replicas.moves)

    def crash(self) -> None:
        abandon(self.replicas, self.directories)


def content(log: Log) -> list[bytes]:
    return [bytes(data) for _, data in log.read_batches(log.start_offset)]


def places(tmp_path: Path) -> list[str]:
    return sorted(path.parent.name + "/" + path.name[:3] for path in tmp_path.glob("*/t-0*"))


def list_of(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


def test_a_partition_moves_while_it_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "LAST_ROUND", 2_000)

    async def test() -> None:
        node = Node(tmp_path)
        outcomes = Outcomes(node.partition)
        written = 0

        def write(count: int) -> None:
            nonlocal written
            for _ in range(count):
                batch = some(b"%d" % written, producer=FIVE, sequence=written)
                outcome = outcomes.produce(batch)
                if outcome is not None:
                    outcomes.later.append(outcome)
                written += 1

        write(200)
        node.partition.log.advance_start(5)
        target = node.elsewhere
        await node.replicas.moves.begin(node.partition, target)
        await until(lambda: node.replicas.moves and next(move for _, move in node.replicas.moves.items()).copy)
        [future] = target.path.glob("t-0.*-future")
        while node.replicas.moves:
            write(1)
            await asyncio.sleep(0.001)
        write(5)
        assert Path(node.partition.log.directory).parent == target.path
        assert not future.exists()
        await until(lambda: len(outcomes.later) == written)
        assert [outcome.base_offset for outcome in outcomes.later] == list(range(written))  # type: ignore[union-attr]
        assert node.partition.log.start_offset == 5
        assert [int(value) for value in values(node.partition.log)] == list(range(5, written))
        duplicate = some(b"%d" % (written - 1), producer=FIVE, sequence=written - 1)
        assert outcomes.offset(duplicate) == written - 1  # the copy knows its producers
        await node.replicas.stop()
        again = Node(tmp_path)
        assert [directory.clean for directory in again.directories] == [True, True]
        assert Path(again.partition.log.directory).parent == target.path
        assert (again.partition.log.start_offset, again.partition.log.end_offset) == (5, written)
        await again.replicas.stop()

    run("asyncio", test())
    assert len([path for path in tmp_path.glob("*/t-0") if path.is_dir()]) == 1


def values(log: Log) -> list[bytes]:
    records = (record for data in content(log) for record in decode_records(memoryview(data), limit=1 << 20))
    return [record.value or b"" for record in records]


def test_what_does_not_queue_is_asked_to_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    real = moving.Move._complete
    monkeypatch.setattr(moving.Move, "_complete", lambda move: go_on.wait(30) and real(move))

    async def test() -> None:
        node = Node(tmp_path)
        outcomes = Outcomes(node.partition)
        outcomes.offset(some())
        await node.replicas.moves.begin(node.partition, node.elsewhere)
        await until(lambda: node.partition.standing.moving)
        refused = node.partition.appender.append_records([(b"k", b"v")], NOW)
        assert isinstance(refused, Refusal)
        assert refused.error is WireError.NOT_LEADER_OR_FOLLOWER
        assert outcomes.produce(some()) is None  # and what queues does not notice
        go_on.set()
        await until(lambda: not node.replicas.moves and outcomes.later)
        assert node.partition.log.end_offset == 2
        await node.replicas.stop()

    run("asyncio", test())


def test_a_move_that_a_stop_interrupted_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        for _ in range(50):
            Outcomes(node.partition).offset(some())
        before, target = content(node.partition.log), node.elsewhere.path
        with monkeypatch.context() as patch:
            patch.setattr(moving.Move, "_complete", lambda _: Refusal(WireError.NONE, "stopped"))
            patch.setattr(moving.Move, "_discard", lambda _: None)
            await node.move()
        assert list(target.glob("*-future"))
        node.crash()
        again = Node(tmp_path)
        assert not list(target.glob("*-future"))
        assert content(again.partition.log) == before
        await again.replicas.resume_moves()
        await until(lambda: not again.replicas.moves)
        assert Path(again.partition.log.directory).parent == target
        assert content(again.partition.log) == before
        await again.replicas.stop()

    run("asyncio", test())


def test_a_crash_between_the_two_renames_leaves_one_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        for _ in range(50):
            Outcomes(node.partition).offset(some())
        before, target = content(node.partition.log), node.elsewhere.path

        def crashes(_: Log) -> list[Path]:
            raise OSError(5, "the power went")

        with monkeypatch.context() as patch:
            patch.setattr(Log, "delete", crashes)
            await node.move()
        node.crash()
        assert places(tmp_path) == ["one/t-0", "two/t-0"]
        again = Node(tmp_path)
        assert Path(again.partition.log.directory).parent == target
        assert content(again.partition.log) == before
        await again.replicas.stop()
        assert len(places(tmp_path)) == 1 + len(list_of(tmp_path, "*/t-0.*-delete"))

    run("asyncio", test())


def test_two_directories_that_claim_a_partition_stop_the_start(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        Outcomes(node.partition).offset(some())
        here, there = Path(node.partition.log.directory), node.elsewhere.path / "t-0"
        await node.replicas.stop()
        there.mkdir()
        with pytest.raises(DirectoryRefused, match="t-0 is in two log directories") as refused:
            Node(tmp_path)
        assert str(here) in str(refused.value)
        assert str(there) in str(refused.value)

    run("asyncio", test())


def test_a_target_without_room_ends_the_move_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        for _ in range(50):
            Outcomes(node.partition).offset(some())
        here = node.partition.log.directory
        with lying(LyingDisk(node.elsewhere.path)) as disk:
            disk.room = 2_000
            await node.move()
        assert node.partition.log.directory == here
        assert not node.replicas.offline
        assert Outcomes(node.partition).offset(some()) == 50
        assert not list_of(tmp_path, "*/*-future")
        assert not list_of(tmp_path, f"*/*/{MOVED}")
        await node.move()
        assert node.partition.log.directory != here
        await node.replicas.stop()

    run("asyncio", test())


def test_turning_round_and_deleting_end_a_move(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        for _ in range(50):
            Outcomes(node.partition).offset(some())
        here = node.partition.log.directory
        home = next(each for each in node.directories if each.path == Path(here).parent)
        await node.replicas.moves.begin(node.partition, node.elsewhere)
        await node.replicas.moves.begin(node.partition, home)
        assert not node.replicas.moves
        assert node.partition.log.directory == here
        await node.replicas.moves.begin(node.partition, node.elsewhere)
        await turns(2)
        node.replicas.follow(IMAGE, ClusterImage())
        await node.replicas.settled()
        assert not node.replicas.moves
        assert not list_of(tmp_path, "*/t-0")
        await node.replicas.stop()

    run("asyncio", test())


def filled(tmp_path: Path, count: int = 50) -> Node:
    node = Node(tmp_path)
    for number in range(count):
        Outcomes(node.partition).offset(some(b"%d" % number))
    return node


def test_what_is_cut_off_meanwhile_is_not_in_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's log is cut where its leader's parts from it, and goes on with other records."""
    copied, go_on = threading.Event(), threading.Event()
    real = moving.Move._append

    def append(move: moving.Move, *arguments: Any) -> None:
        real(move, *arguments)
        copied.set()
        go_on.wait(30)

    monkeypatch.setattr(moving.Move, "_append", append)

    async def test() -> None:
        node = filled(tmp_path)
        target = node.elsewhere
        await node.replicas.moves.begin(node.partition, target)
        await until(copied.is_set)
        files.remove(node.partition.log.truncate_to(10, NOW))
        for number in range(20):
            Outcomes(node.partition).offset(some(b"other %d" % number))
        expected = content(node.partition.log)
        go_on.set()
        await until(lambda: not node.replicas.moves)
        assert Path(node.partition.log.directory).parent == target.path
        assert content(node.partition.log) == expected
        assert not list_of(tmp_path, "*/*-future")
        await node.replicas.stop()

    run("asyncio", test())


def test_records_that_were_deleted_stay_so_if_it_crashes_before_the_checkpoints_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        node = filled(tmp_path)
        target = node.elsewhere.path
        copied = threading.Event()

        async def crash(*_: object) -> None:
            raise OSError(errno.EIO, "the power went")

        monkeypatch.setattr(Moves, "log_replaced", crash)
        real = moving.Move._complete
        monkeypatch.setattr(moving.Move, "_complete", lambda move: copied.wait(30) and real(move))
        await node.replicas.moves.begin(node.partition, node.elsewhere)
        await until(lambda: node.partition.standing.moving)
        [(_, move)] = node.replicas.moves.items()
        files.remove(node.partition.log.advance_start(30))  # DeleteRecords, while all is copied
        assert await node.replicas.checkpoint()
        copied.set()
        await until(lambda: not node.replicas.moves)
        assert isinstance(move._settling.exception(), OSError)
        for directory in node.directories:  # as if the source's had been written, and the target's not
            directory.write_checkpoints({}, {}, {})
        node.crash()
        again = Node(tmp_path)
        assert Path(again.partition.log.directory).parent == target
        assert (again.partition.log.start_offset, again.partition.log.end_offset) == (30, 50)
        await again.replicas.stop()

    run("asyncio", test())


def test_half_a_copy_that_is_given_up_is_not_taken_for_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step fails, and the power goes while the copy is being removed."""
    real_open, real_remove = Opener.open_copy, files.remove

    def fails(opener: Opener, partition: Any, path: Path, log_start: int, clean: bool) -> Log:
        if clean:
            raise OSError(errno.EMFILE, "Too many open files")
        return real_open(opener, partition, path, log_start, clean)

    def crashes(paths: Any) -> None:
        for path in paths:
            if path.is_dir():
                max(path.glob("*.log")).unlink()
                raise OSError(errno.EIO, "the power went")
            real_remove([path])

    async def test() -> None:
        node = filled(tmp_path)
        before, here = content(node.partition.log), node.partition.log.directory
        monkeypatch.setattr(Opener, "open_copy", fails)
        monkeypatch.setattr(files, "remove", crashes)
        await node.move()
        monkeypatch.undo()
        node.crash()
        again = Node(tmp_path)
        assert content(again.partition.log) == before
        assert again.partition.log.directory == here
        await again.replicas.stop()

    run("asyncio", test())


def test_a_log_that_cannot_be_read_does_not_blame_the_other_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        node = filled(tmp_path)
        here = node.partition.log.directory
        await node.partition.flusher.stop()
        real = Segment.opened

        def opened(segment: Segment) -> Any:
            if segment.stem.startswith(here):
                raise OSError(errno.EIO, "Input/output error")
            return real(segment)

        with monkeypatch.context() as patch:
            patch.setattr(Segment, "opened", opened)
            await node.move()
        assert node.partition.log.directory == here
        assert not any(each.offline for each in node.directories)
        assert not list_of(tmp_path, "*/*-future")
        await node.replicas.stop()

    run("asyncio", test())


@pytest.mark.parametrize("failing", ["the copy", "the mark"])
def test_a_failed_fsync_in_the_last_step_takes_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    async def test() -> None:
        node = filled(tmp_path)
        here, source = node.partition.log.directory, Path(node.partition.log.directory).parent
        target = node.elsewhere

        def fails(*_: object, clean: bool = True) -> None:
            if clean:
                raise SyncFailed(errno.EIO, "fsync failed")

        with monkeypatch.context() as patch:
            if failing == "the copy":
                patch.setattr(Log, "close", fails)
            else:
                patch.setattr(moving, "mark_moved", fails)
            await node.replicas.moves.begin(node.partition, target)
            await until(lambda: any(each.offline for each in node.directories))
        await until(lambda: not node.replicas.moves)
        offline = {each.path for each in node.directories if each.offline}
        assert offline == {target.path if failing == "the copy" else source}
        assert node.partition.log.directory == here
        assert not list_of(tmp_path, f"*/*/{MOVED}")
        await node.replicas.stop()

    run("asyncio", test())


def test_markers_that_are_not_committed_are_known_to_the_copy(tmp_path: Path) -> None:
    async def test() -> None:
        node = filled(tmp_path, 5)
        node.partition.log.producer_state.unreplicated = deque([(4, 2)])
        assert node.partition.log.last_stable_offset(4) == 2
        await node.move()
        assert node.partition.log.last_stable_offset(4) == 2
        await node.replicas.stop()

    run("asyncio", test())
