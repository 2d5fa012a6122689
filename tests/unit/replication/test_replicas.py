"""Partitions in step with the image: created, deleted, made again, grown, configured, and kept over a crash."""

import asyncio
import errno
import threading
from pathlib import Path
from uuid import UUID

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.log.directory import LogDirectory
from moldau.log.flush import FlushJob
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.appender import Appended, Outcome
from moldau.replication.owners import StandaloneOwner
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from support.log.logs import NOW
from support.log.lying_disk import LyingDisk, lying
from support.net.loops import run, turns, until
from support.replication.partitions import Outcomes, abandon, some

NODE = 1
NOTHING = ClusterImage()


def topic(name: str, number: int, partitions: int = 1, **config: str) -> Topic:
    states = tuple(PartitionState(index, (NODE,), (NODE,), NODE) for index in range(partitions))
    return Topic(name, UUID(int=number), states, {key.replace("_", "."): value for key, value in config.items()})


def image(*topics: Topic) -> ClusterImage:
    return ClusterImage(topics={each.name: each for each in topics})


class Node:
    """The replicas of a node on real directories, and the image it follows."""

    def __init__(self, *paths: Path, now: ClusterImage = NOTHING) -> None:
        self.directories = [LogDirectory.open(path) for path in paths]
        self.replicas = Replicas(
            NODE, self.directories, lambda each: LogConfig.of(each.config), lambda: NOW, 86_400_000
        )
        self.replicas.load(now, 1, lambda: False)
        self.image = now

    def follow(self, *topics: Topic) -> None:
        new = image(*topics)
        self.replicas.follow(self.image, new)
        self.image = new

    async def become(self, *topics: Topic) -> None:
        self.follow(*topics)
        await self.replicas.settled()

    def get(self, name: str, index: int = 0) -> Partition:
        partition = self.replicas.get(name, index)
        assert partition is not None
        return partition

    def crash(self) -> None:
        abandon(self.replicas, self.directories)


def test_a_created_topic_can_be_written_to_and_found_both_ways(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        node.follow(topic("a", 7, 2))
        assert node.replicas.by_name[b"a"] == [None, None]  # known, but not open yet
        await node.replicas.settled()
        replicas = node.replicas
        assert Outcomes(node.get("a", 1)).offset(some()) == 0
        assert replicas.find(replicas.by_id, UUID(int=7).bytes, 1) is node.get("a", 1)
        assert replicas.get("a", 2) is replicas.get("a", -1) is replicas.get("b", 0) is None
        await replicas.stop()

    run("asyncio", test())


def test_a_topic_deleted_and_made_again_at_once_is_empty(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1))
        Outcomes(node.get("a")).offset(some())
        waiting = node.get("a")
        for number in range(2, 6):  # faster than the disk follows
            node.follow()
            node.follow(topic("a", number))
        await node.replicas.settled()
        assert node.get("a") is not waiting
        assert node.get("a").log.end_offset == 0
        assert set(node.replicas.by_id) == {UUID(int=5).bytes}
        assert Outcomes(node.get("a")).offset(some()) == 0
        assert [partition.log.topic_id for partition in node.replicas] == [UUID(int=5)]
        await node.replicas.stop()

    run("asyncio", test())


def test_a_topic_replaced_in_one_change_is_empty(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1))
        Outcomes(node.get("a")).offset(some())
        await node.become(topic("a", 2))
        assert node.get("a").log.end_offset == 0
        assert UUID(int=1).bytes not in node.replicas.by_id
        await node.replicas.stop()

    run("asyncio", test())


def test_records_of_a_topic_made_again_survive_a_crash(tmp_path: Path) -> None:
    """The log start of the deleted topic must not be taken for the new one's."""

    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1))
        for _ in range(5):
            Outcomes(node.get("a")).offset(some())
        node.get("a").log.advance_start(5)
        await node.replicas.checkpoint()
        await node.become()
        again = topic("a", 2)
        await node.become(again)
        assert Outcomes(node.get("a")).offset(some()) == 0
        node.crash()
        after = Node(tmp_path, now=image(again))
        assert (after.get("a").log.start_offset, after.get("a").log.end_offset) == (0, 1)
        await after.replicas.stop()

    run("asyncio", test())


def test_partitions_are_added_and_the_old_ones_stay(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1))
        Outcomes(node.get("a")).offset(some())
        old = node.get("a")
        await node.become(topic("a", 1, 3))
        assert node.get("a") is old
        assert [node.get("a", index).log.end_offset for index in range(3)] == [1, 0, 0]
        await node.replicas.stop()

    run("asyncio", test())


def test_settings_take_effect_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1))
        await node.become(topic("a", 1, max_message_bytes="77"))
        assert node.get("a").log.config.max_message_bytes == 77
        await node.become(topic("a", 1))
        assert node.get("a").log.config.max_message_bytes > 77
        await node.replicas.stop()

    run("asyncio", test())


def test_settings_changed_while_a_log_is_being_opened_are_not_lost(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        node.follow(topic("a", 1))
        node.follow(topic("a", 1, max_message_bytes="77"))
        await node.replicas.settled()
        assert node.get("a").log.config.max_message_bytes == 77
        await node.replicas.stop()

    run("asyncio", test())


@pytest.mark.parametrize("problem", [OSError(24, "too many open files"), ZeroDivisionError()])
def test_a_log_that_cannot_be_opened_is_its_own_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    real = Log.open

    def fails_for_bad(directory: Path, name: str, *rest: object, **options: object) -> Log:
        if name == "bad-0":
            raise problem
        return real(directory, name, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Log, "open", fails_for_bad)

    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("bad", 1), topic("good", 2))
        assert node.replicas.get("bad", 0) is None
        assert "bad-0 is offline" in caplog.text
        assert Outcomes(node.get("good")).offset(some()) == 0
        await node.become(topic("good", 2), topic("later", 3))
        assert Outcomes(node.get("later")).offset(some()) == 0
        await node.replicas.stop()

    run("asyncio", test())


def shared(name: str, *isr: int, elr: tuple[int, ...] = (), leader: int = 2, **config: str) -> Topic:
    """A topic that this node and two others have."""
    state = PartitionState(0, (2, NODE, 3), isr, leader, elr=elr)
    return Topic(name, UUID(int=9), (state,), {key.replace("_", "."): value for key, value in config.items()})


def spoil(directory: Path) -> None:
    """Nothing can be read of a log whose segment is not even a file."""
    segment = directory / "a-0" / "00000000000000000000.log"
    segment.unlink()
    segment.mkdir()


async def written(path: Path, small: dict[str, str], records: int = 3) -> None:
    """The log of `a`, on the disk of a node that was stopped in order."""
    state = PartitionState(0, (NODE,), (NODE,), NODE)
    node = Node(path)
    await node.become(Topic("a", UUID(int=9), (state,), small))
    for _ in range(records):
        Outcomes(node.get("a")).offset(some())
    await node.replicas.stop()


@pytest.mark.parametrize(
    "had",
    [shared("a", 2, 3), shared("a", NODE, 2), shared("a", NODE, 2, leader=NODE), shared("a", elr=(3,), leader=-1)],
    ids=["out of sync", "in sync", "leading", "eligible"],
)
def test_a_log_that_cannot_be_opened_is_put_aside_if_others_have_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, had: Topic
) -> None:
    async def test() -> None:
        await written(tmp_path, {})
        spoil(tmp_path)
        node = Node(tmp_path, now=image(had))
        assert node.get("a").log.end_offset == 0
        assert not node.get("a").leads
        assert node.replicas.directories.without_records == {("a", 0)}
        assert not node.replicas.offline
        caught_up = PartitionState(0, (2, NODE, 3), (2, NODE, 3), 2, partition_epoch=9)
        await node.become(Topic("a", UUID(int=9), (PartitionState(0, (2, NODE, 3), (2, 3), 2, partition_epoch=8),)))
        await node.become(Topic("a", UUID(int=9), (caught_up,)))
        assert not node.replicas.directories.without_records
        await node.replicas.stop()

    run("asyncio", test())
    (kept,) = tmp_path.glob("a-0.*-stray")
    assert (kept / "00000000000000000000.log").is_dir()
    assert "The log of a-0 is copied again from its leader: [Errno 21]" in caplog.text


@pytest.mark.parametrize("last", [shared("a", NODE), shared("a", elr=(NODE,), leader=-1)], ids=["ISR", "ELR"])
def test_the_last_log_of_all_stays_as_it_is_even_if_it_cannot_be_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, last: Topic
) -> None:
    async def test() -> None:
        await written(tmp_path, {})
        spoil(tmp_path)
        node = Node(tmp_path, now=image(last))
        assert node.replicas.get("a", 0) is None
        assert node.replicas.offline == node.replicas.directories.without_records == {("a", 0)}
        assert (tmp_path / "a-0" / "00000000000000000000.log").is_dir()
        await node.replicas.stop()

    run("asyncio", test())
    assert "Partition a-0 is offline, and no other in-sync replica has its records" in caplog.text


@pytest.mark.parametrize(
    ("had", "anew"),
    [
        (shared("a", NODE, 2), True),
        (shared("a", NODE, 2, cleanup_policy="compact"), False),  # there it may be as it should be
        (shared("a", NODE), False),
    ],
    ids=["others have it", "compacted", "the last one"],
)
def test_a_log_that_lacks_a_segment_in_the_middle_is_copied_anew_if_others_have_it(
    tmp_path: Path, had: Topic, anew: bool
) -> None:
    async def test() -> None:
        await written(tmp_path, {"segment.ms": "1", "internal.segment.bytes": "100"}, 5)
        (tmp_path / "a-0" / "00000000000000000002.log").unlink()
        node = Node(tmp_path, now=image(had))
        assert node.get("a").log.end_offset == (0 if anew else 5)
        assert node.get("a").standing.log_replaced == anew
        await node.replicas.stop()

    run("asyncio", test())


def test_a_directory_with_a_log_that_was_not_opened_is_not_marked_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        first = Node(tmp_path)
        topics = topic("a", 1), topic("b", 2)
        await first.become(*topics)
        for _ in range(3):
            Outcomes(first.get("a")).offset(some())
        first.get("a").log.advance_start(2)
        await first.replicas.stop()
        real = Log.open

        def fails_for_a(directory: Path, name: str, *rest: object, **options: object) -> Log:
            if name == "a-0":
                raise OSError(24, "too many open files")
            return real(directory, name, *rest, **options)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(Log, "open", fails_for_a)
            second = Node(tmp_path, now=image(*topics))
            assert second.replicas.get("a", 0) is None
            await second.replicas.stop()
        third = Node(tmp_path, now=image(*topics))
        assert not third.directories[0].clean
        assert (third.get("a").log.start_offset, third.get("a").log.end_offset) == (2, 3)
        await third.replicas.stop()

    run("asyncio", test())


def test_a_failed_deletion_does_not_stop_what_comes_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1))

        def fails(_: Log) -> list[Path]:
            raise OSError(5, "the disk is broken")

        with monkeypatch.context() as patch:
            patch.setattr(Log, "delete", fails)
            await node.become()
        await node.become(topic("b", 2))
        assert Outcomes(node.get("b")).offset(some()) == 0
        await node.replicas.stop()

    run("asyncio", test())


def test_new_partitions_spread_over_the_directories_and_stay_there(tmp_path: Path) -> None:
    async def test() -> None:
        paths = tmp_path / "one", tmp_path / "two"
        node = Node(*paths)
        wide = topic("a", 1, 10)
        await node.become(wide)
        counts = [len(node.replicas.directories.partitions_in(directory)) for directory in node.directories]
        assert counts == [5, 5]
        await node.become(wide, topic("b", 2, 4))
        assert [len(node.replicas.directories.partitions_in(directory)) for directory in node.directories] == [7, 7]
        homes = {index: node.get("a", index).log.directory for index in range(10)}
        await node.replicas.stop()
        again = Node(*paths, now=node.image)
        assert {index: again.get("a", index).log.directory for index in range(10)} == homes
        await again.replicas.stop()

    run("asyncio", test())


def test_a_cordoned_directory_gets_no_new_partitions_while_there_is_another(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path / "one", tmp_path / "two")
        node.directories[0].cordoned = True
        await node.become(topic("a", 1, 4))
        assert [len(node.replicas.directories.partitions_in(each)) for each in node.directories] == [0, 4]
        node.directories[1].cordoned = True
        await node.become(topic("a", 1, 4), topic("b", 2))
        assert [len(node.replicas.directories.partitions_in(each)) for each in node.directories] == [1, 4]
        await node.replicas.stop()

    run("asyncio", test())


def test_checkpoints_asked_for_together_do_not_meet(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1, 5))
        await asyncio.gather(*(node.replicas.checkpoint() for _ in range(20)))
        await node.replicas.stop()

    run("asyncio", test())
    assert not list(tmp_path.glob("*.tmp"))


def test_a_roll_during_a_flush_is_flushed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, runs = threading.Event(), []
    real = FlushJob.run

    def slow(job: FlushJob) -> None:
        runs.append(job.end_offset)
        go_on.wait(30)
        real(job)

    monkeypatch.setattr(FlushJob, "run", slow)

    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1, internal_segment_bytes="200"))
        outcomes = Outcomes(node.get("a"))
        for _ in range(4):
            outcomes.offset(some(b"x" * 100))
            await turns(2)
        await until(lambda: runs)
        for _ in range(4):
            outcomes.offset(some(b"x" * 100))
        go_on.set()
        log = node.get("a").log
        await until(lambda: log.recovery_point == log.end_offset)
        assert len(runs) == 2
        await node.replicas.stop()

    run("asyncio", test())


def test_a_failed_fsync_takes_the_directory_offline_and_is_not_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All of its partitions, not only the one; the other directory goes on, and new partitions go there."""

    async def test() -> None:
        paths = tmp_path / "one", tmp_path / "two"
        node = Node(*paths)
        await node.become(topic("a", 1, 4, flush_messages="1"))
        there = [node.get("a", index) for index in range(4)]
        one, two = ([each for each in there if each.log.directory.startswith(str(path))] for path in paths)
        with lying(LyingDisk(paths[0])) as disk:
            disk.fail("sync", 1, path=one[0].log.directory)
            outcomes = Outcomes(one[0])
            assert outcomes.produce(some()) is None
            await until(lambda: outcomes.later)
            assert isinstance(outcomes.later[0], Refusal)
            assert outcomes.later[0].error is WireError.KAFKA_STORAGE_ERROR
            assert [each.offline for each in one + two] == [True, True, False, False]
            assert node.replicas.offline == {("a", each.index) for each in one}
            assert Outcomes(one[1]).refusal(some()).error is WireError.KAFKA_STORAGE_ERROR
            synced = disk.calls["sync"]
            await node.become(topic("a", 1, 4, flush_messages="1"), topic("b", 2, 3))
            assert len(node.replicas.directories.partitions_in(node.directories[1])) == 5
            node.replicas.flush_due()
            assert await node.replicas.checkpoint()
            await node.replicas.stop()
            assert disk.calls["sync"] == synced  # nobody asked that disk again
        again = [LogDirectory.open(path) for path in paths]
        assert [directory.clean for directory in again] == [False, True]  # the next start looks at every log

    run("asyncio", test())
    assert f"{tmp_path / 'one'} is offline, and its 2 partitions with it" in caplog.text


def test_when_no_directory_is_left_somebody_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path / "one", tmp_path / "two")
        told: list[str] = []
        node.replicas.owner = StandaloneOwner(told.append)
        for directory in node.directories:
            assert not told
            node.replicas.fail(directory, OSError(errno.EIO, "broken"))
        assert "No log directory is left" in told[0]
        await node.replicas.stop()

    run("asyncio", test())


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """Appends, rolls, flushes, checkpoints and new partitions: refused while there is no room, and then they work."""

    async def test() -> None:
        node = Node(tmp_path)
        settings = {"internal_segment_bytes": "300", "flush_messages": "1"}
        await node.become(topic("a", 1, **settings))
        outcomes = Outcomes(node.get("a"))
        with lying(LyingDisk(tmp_path)) as disk:
            for room in (0, 7, 100, 150, 200, 250, 300, 350, 400, 500):  # in the middle of each kind of write
                disk.room = room
                before = node.get("a").log.end_offset
                outcomes.later.clear()
                refusals = 0
                while not refusals:
                    outcome = outcomes.produce(some(b"x" * 60))
                    await until(lambda found=outcome: found is not None or outcomes.later)
                    outcome = outcome or outcomes.later.pop()
                    refusals += isinstance(outcome, Refusal)
                assert isinstance(outcome, Refusal)
                assert (outcome.error, outcome.error.retriable) == (WireError.KAFKA_STORAGE_ERROR, True)
                assert not await node.replicas.checkpoint() or disk.room > 0
                assert node.get("a").log.locate(0, 1000, before or 1, whole_first=True) or not before  # readers go on
                disk.room = None
                node.replicas.flush_due()
                outcome = outcomes.produce(some(b"x" * 60)) or await later(outcomes)
                assert isinstance(outcome, Appended)
            disk.room = 0
            await node.become(topic("a", 1, **settings), topic("b", 2))
            assert node.replicas.offline == {("b", 0)}
            disk.room = None
            node.replicas.reopen()
            await node.replicas.settled()
            assert not node.replicas.offline
            assert Outcomes(node.get("b")).offset(some()) == 0
            assert await node.replicas.checkpoint()
        written = node.get("a").log.end_offset
        await node.replicas.stop()
        again = Node(tmp_path, now=node.image)
        assert again.directories[0].clean
        assert again.get("a").log.end_offset == written
        await again.replicas.stop()

    run("asyncio", test())
    assert not list(tmp_path.rglob("*.tmp"))


async def later(outcomes: Outcomes) -> Outcome:
    await until(lambda: outcomes.later)
    return outcomes.later.pop()


def test_stopping_waits_for_the_inspection_queue(tmp_path: Path) -> None:
    async def test() -> None:
        node = Node(tmp_path)
        gzip = topic("a", 1, compression_type="gzip")
        await node.become(gzip)
        outcomes = Outcomes(node.get("a"))
        assert [outcomes.produce(some(b"x" * 1000)) for _ in range(20)] == [None] * 20
        await node.replicas.stop()
        assert len(outcomes.later) == 20
        again = Node(tmp_path, now=image(gzip))
        assert again.get("a").log.end_offset == 20
        await again.replicas.stop()

    run("asyncio", test())


def test_a_crash_before_the_disk_followed_a_deletion(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The metadata knows the new topic, the directory the old one: that is renamed to a stray, as in Kafka."""

    async def test() -> None:
        node = Node(tmp_path)
        await node.become(topic("a", 1))
        for _ in range(5):
            Outcomes(node.get("a")).offset(some())
        node.get("a").log.advance_start(5)
        await node.replicas.checkpoint()
        node.crash()
        after = Node(tmp_path, now=image(topic("a", 2)))
        assert (after.get("a").log.start_offset, after.get("a").log.end_offset) == (0, 0)
        assert Outcomes(after.get("a")).offset(some()) == 0
        await after.replicas.stop()

    run("asyncio", test())
    assert [path.name.endswith("-stray") for path in tmp_path.glob("a-0.*")] == [True]
    assert "Renamed to" in caplog.text
