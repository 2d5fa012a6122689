"""Compaction of a broker's logs, with real cleaner processes: due logs are cleaned, others left alone."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from moldau.log.checkpoints import CLEANER_OFFSETS, read_offsets, write_offsets
from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication import cleaner_main
from moldau.replication import compactor as compaction
from moldau.replication.cleaner import Cleaner
from moldau.replication.compactor import CleanerSettings, Compactor
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from moldau.wire.records import decode_records
from support.log.logs import NOW, append, record
from support.log.logs import batch as encoded
from support.net.loops import run, until

NODE = 1
COMPACT = {"cleanup.policy": "compact", "internal.segment.bytes": "400", "min.cleanable.dirty.ratio": "0.01"}
QUICK = CleanerSettings(processes=1, key_memory=1 << 20, chunk=65536, bytes_per_second=1e12, backoff_ms=10)
Test = Callable[["Node"], Awaitable[None]]


class Node:
    def __init__(self, path: Path, settings: CleanerSettings = QUICK) -> None:
        self.path = path
        self.settings = settings
        self.directory = LogDirectory.open(path)
        self.replicas = Replicas(
            NODE, [self.directory], lambda each: LogConfig.of(each.config), lambda: NOW, 86_400_000
        )
        self.image = ClusterImage()
        self.asked = 0  # how often the settings were
        self.compactor = Compactor(self.replicas, self._settings, lambda: NOW)

    def _settings(self) -> CleanerSettings:
        self.asked += 1
        return self.settings

    async def become(self, *names: str, config: dict[str, str] = COMPACT) -> None:
        state = PartitionState(0, (NODE,), (NODE,), NODE)
        topics = {name: Topic(name, UUID(int=len(name)), (state,), config) for name in names}
        new = ClusterImage(topics=topics)
        self.replicas.follow(self.image, new)
        self.image = new
        await self.replicas.settled()

    def get(self, name: str) -> Partition:
        partition = self.replicas.get(name, 0)
        assert partition is not None
        return partition

    async def stop(self) -> None:
        await self.compactor.stop()
        await self.replicas.stop()


def on_a_node(path: Path, test: Test, settings: CleanerSettings = QUICK) -> None:
    async def scenario() -> None:
        node = Node(path, settings)
        try:
            await test(node)
        finally:
            await node.stop()

    run("uvloop", scenario())


async def fill(partition: Partition, count: int = 30) -> None:
    """The same two keys over and over; then everything but the active segment is on disk."""
    for number in range(count):
        body = record(0, b"%d" % number, key=b"a") + record(1, b"%d" % number, key=b"b")
        append(partition.log, encoded(2, body=body))
    await until(lambda: all(each.live is None for each in partition.log.segments.each[:-1]))


def values(partition: Partition) -> list[bytes | None]:
    return [each.value for _, data in partition.log.read_batches(0) for each in decode_records(data, limit=1 << 20)]


def unfinished(path: Path) -> list[Path]:
    return [*path.glob("*/*.cleaned"), *path.glob("*/*.swap")]


def is_clean(partition: Partition) -> bool:
    log = partition.log
    return log.first_dirty_offset == log.segments.bases[-1] and partition.cleaning is None


def test_a_log_that_is_due_is_cleaned(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        partition = node.get("topic")
        await fill(partition)
        size = partition.log.size
        node.compactor.start()
        await until(lambda: is_clean(partition))
        assert partition.log.size < size / 3
        assert values(partition)[-2:] == [b"29", b"29"]
        await until(lambda: (tmp_path / CLEANER_OFFSETS).exists())
        assert read_offsets(tmp_path / CLEANER_OFFSETS) == {("topic", 0): partition.log.first_dirty_offset}
        assert not unfinished(tmp_path)

    on_a_node(tmp_path, test)


def test_what_was_cleaned_earlier_is_remembered(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        write_offsets(tmp_path / CLEANER_OFFSETS, {("topic", 0): 5, ("gone", 3): 7})
        node.compactor.start()
        assert node.get("topic").log.first_dirty_offset == 5
        await until(lambda: read_offsets(tmp_path / CLEANER_OFFSETS) == {("topic", 0): 5})

    on_a_node(tmp_path, test)


def test_a_checkpoint_that_cannot_be_read_is_told_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        (tmp_path / CLEANER_OFFSETS).write_text("nonsense")
        node.compactor.start()
        assert node.get("topic").log.first_dirty_offset == 0

    on_a_node(tmp_path, test)
    assert "are compacted from their start" in caplog.text


def test_topics_that_only_delete_are_left_alone(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("topic", config={**COMPACT, "cleanup.policy": "delete"})
        await fill(node.get("topic"))
        assert await node.compactor._dirtiest() is None

    on_a_node(tmp_path, test)


def test_the_dirtiest_comes_first(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("one", "other")
        for name in ("one", "other"):
            await fill(node.get(name))
        node.get("one").log.first_dirty_offset = 20
        due = await node.compactor._dirtiest()
        assert due is not None
        assert due.partition is node.get("other")
        second = await node.compactor._dirtiest()
        assert second is not None
        assert second.partition is node.get("one"), "the first is taken"

    on_a_node(tmp_path, test)


def test_a_log_that_cannot_be_read_is_left_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(node: Node) -> None:
        await node.become("bad", "sound")
        for name in ("bad", "sound"):
            await fill(node.get(name))
        first = sorted((tmp_path / "bad-0").glob("*.log"))[0]
        data = bytearray(first.read_bytes())
        data[-3] ^= 1
        first.write_bytes(data)
        before = node.get("bad").log.size
        node.compactor.start()
        await until(lambda: is_clean(node.get("sound")))
        await until(lambda: "bad-0 cannot be compacted" in caplog.text)
        assert node.get("bad").log.size == before
        assert await node.compactor._dirtiest() is None

    on_a_node(tmp_path, test)
    assert caplog.text.count("bad-0 cannot be compacted") == 1


def slow(bytes_per_second: float) -> CleanerSettings:
    return QUICK._replace(bytes_per_second=bytes_per_second)


async def being_cleaned(node: Node, partition: Partition) -> Cleaner:
    node.compactor.start()
    await until(lambda: partition.cleaning is not None and unfinished(node.path))
    assert isinstance(partition.cleaning, compaction.Cleaning)
    return partition.cleaning.cleaner


def test_a_topic_that_is_deleted_takes_its_cleaner_along(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        partition = node.get("topic")
        await fill(partition)
        cleaner = await being_cleaned(node, partition)
        await node.become()
        assert not cleaner.alive
        assert not (tmp_path / "topic-0").exists()

    on_a_node(tmp_path, test, slow(2000))


def test_a_cleaner_that_is_killed_leaves_the_log_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        partition = node.get("topic")
        await fill(partition)
        before = values(partition)
        cleaner = await being_cleaned(node, partition)
        os.kill(cleaner.pid, signal.SIGKILL)
        await until(lambda: partition.cleaning is None)
        assert values(partition) == before
        assert not unfinished(tmp_path)
        assert not node.compactor._may_clean(partition), "it rests for a while"

    on_a_node(tmp_path, test, slow(2000))
    assert "Compacting topic-0 failed" in caplog.text


def test_a_log_that_changes_meanwhile_is_cleaned_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        partition = node.get("topic")
        await fill(partition)
        await being_cleaned(node, partition)
        partition.log.advance_start(partition.log.segments.bases[2])
        node.settings = QUICK
        await until(lambda: is_clean(partition))
        assert values(partition)[-2:] == [b"29", b"29"]
        assert partition.log.start_offset > 0

    caplog.set_level(logging.INFO)
    on_a_node(tmp_path, test, slow(4000))
    assert "changed while it was compacted" in caplog.text


def test_a_stop_does_not_wait_for_a_cleaning(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        partition = node.get("topic")
        await fill(partition)
        cleaner = await being_cleaned(node, partition)
        await asyncio.wait_for(node.compactor.stop(), 30)
        assert not cleaner.alive
        assert not unfinished(tmp_path)

    on_a_node(tmp_path, test, slow(2000))


def test_no_process_runs_when_nothing_is_due(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        partition = node.get("topic")
        await fill(partition)
        cleaner = await being_cleaned(node, partition)
        node.settings = QUICK
        await until(lambda: is_clean(partition))
        await until(lambda: not cleaner.alive)

    on_a_node(tmp_path, test, slow(2000))


def test_nothing_is_cleaned_when_it_is_switched_off(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        await fill(node.get("topic"))
        node.compactor.start()
        await until(lambda: node.asked > 2)
        assert not node.compactor._workers
        assert node.get("topic").log.first_dirty_offset == 0

    on_a_node(tmp_path, test, QUICK._replace(processes=0))


def test_the_throttle_keeps_to_a_mean_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(cleaner_main.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(cleaner_main.time, "sleep", sleep)
    pace = cleaner_main.Pace(1000)
    for _ in range(100):
        pace(50)
    assert clock[0] - 100 == pytest.approx(5, abs=0.1)
    clock[0] += 60  # nothing was read for a while: that is not made up for
    before = clock[0]
    for _ in range(100):
        pace(50)
    assert clock[0] - before == pytest.approx(5, abs=0.1)
    free = cleaner_main.Pace(1.7976931348623157e308)
    slept.clear()
    free(1 << 30)
    assert not slept


def test_a_log_that_moves_to_another_directory_is_not_compacted(tmp_path: Path) -> None:
    """Its copy might get a key's old value, but not the tombstone behind it."""

    async def test(node: Node) -> None:
        await node.become("topic")
        partition = node.get("topic")
        await fill(partition)
        cleaner = await being_cleaned(node, partition)
        other = LogDirectory.open(tmp_path / "other")
        await node.replicas.moves.begin(partition, other)
        assert not cleaner.alive
        assert partition.cleaning is None
        assert not node.compactor._may_clean(partition)
        await node.replicas.moves.end(partition)
        other.close(clean=False)

    on_a_node(tmp_path, test, slow(2000))


def test_nothing_is_written_to_a_directory_that_failed(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.become("topic")
        node.compactor.start()
        node.replicas.fail(node.directory, OSError(5, "broken"))
        node.get("topic").log.first_dirty_offset = 5
        await node.compactor._checkpoint()
        assert not (tmp_path / CLEANER_OFFSETS).exists()

    on_a_node(tmp_path, test)
