"""Copying from a leader when something goes wrong here: a disk fails, logs are cut, leaders change meanwhile."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from moldau.log.flush import FlushJob
from moldau.log.follower_append import FetchedBatches
from moldau.log.log import Log
from moldau.log.segment import CorruptLogError
from moldau.log.settings import LogConfig
from moldau.metadata.image import PartitionState
from moldau.net.peer import PeerResponse
from moldau.replication.cluster_view import ClusterView
from moldau.replication.fetcher import Bounds, Fetcher, FetchSettings, LeaderConnection
from moldau.replication.owners import NoOwner
from moldau.replication.partition import Partition
from moldau.replication.throttle import ReplicationThrottle
from moldau.wire.codec import encode
from moldau.wire.fetching import VERSION, FetchLimits
from moldau.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from support.log.logs import NOW, batch, open_log
from support.net.loops import run, until

HERE, LEADER = 1, 2
STATE = PartitionState(0, (HERE, LEADER), (LEADER,), LEADER, leader_epoch=4, partition_epoch=7)
AROUND = ClusterView(HERE, lambda: NOW, {1: 10, 2: 20}.get, lambda _: None, 1000)
SETTINGS = FetchSettings(FetchLimits(500, 1, 1 << 20), 1 << 20, 20, 1000)


def a_partition(directory: Path, topic_id: int) -> Partition:
    partition = Partition("topic", 0, open_log(directory, topic_id=UUID(int=topic_id)), 0)
    partition.assign(STATE, AROUND, 0)
    return partition


def told(partition: Partition, records: memoryview | None = None, error: int = 0, **more: object) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=0,
        log_start_offset=0,
        aborted_transactions=None,
        records=None if records is None else bytes(records),
        **more,  # type: ignore[arg-type]
    )


class Copying:
    """A fetcher, and a leader that answers as a test says."""

    def __init__(self, *answers: list[tuple[Partition, PartitionData]]) -> None:
        self.answers = list(answers)
        self.more = asyncio.Event()
        self.asked = 0
        self.checkpoints: list[int] = []
        self.before_bounds: Callable[[], None] = lambda: None
        self.throttle = ReplicationThrottle()
        self.fetcher = Fetcher(LEADER, self, self)

    async def ask_raw(self, api_key: int, version: int, body: bytes, timeout_ms: int | None = None) -> PeerResponse:
        self.asked += 1
        while not self.answers:
            self.more.clear()
            await self.more.wait()
        topics = tuple(
            FetchableTopicResponse(topic_id=partition.log.topic_id, partitions=(row,))
            for partition, row in self.answers.pop(0)
        )
        return PeerResponse(memoryview(encode(FetchResponse(session_id=5, responses=topics), VERSION)), 0)

    def answer(self, *rows: tuple[Partition, PartitionData]) -> None:
        self.answers.append(list(rows))
        self.more.set()

    async def ask(self, message: object, version: int, timeout_ms: int | None = None) -> object:
        raise AssertionError(message)

    def disconnect(self, reason: str) -> None:
        raise AssertionError(reason)

    def replica(self) -> tuple[int, int]:
        return HERE, 10

    def fetch_settings(self) -> FetchSettings:
        return SETTINGS

    def now(self) -> int:
        return NOW

    def delete_later(self, paths: list[Path], delay_ms: int) -> None:
        """Nothing is removed."""

    async def bounds(self, leader: LeaderConnection, partitions: list[Partition]) -> dict[Partition, Bounds]:
        self.before_bounds()
        return dict.fromkeys(partitions, Bounds(0, 1))

    async def checkpoint(self) -> bool:
        self.checkpoints.append(self.asked)
        return True


class LeftOut(NoOwner):
    """Has partitions in trouble left out by their fetcher."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def disk_failed(self, partition: Partition, problem: OSError) -> None:
        self._fetcher.remove(partition)

    def log_corrupt(self, partition: Partition) -> None:
        self._fetcher.remove(partition)


def test_a_disk_that_fails_does_not_stop_what_is_on_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        broken, sound = a_partition(tmp_path / "a", 1), a_partition(tmp_path / "b", 2)
        real = Log.append_as_follower

        def append(log: Log, copies: FetchedBatches, now: int) -> None:
            if log is broken.log:
                raise OSError(errno.EIO, "the disk failed")
            real(log, copies, now)

        monkeypatch.setattr(Log, "append_as_follower", append)
        first = batch(leader_epoch=4)
        copying = Copying([(broken, told(broken, first)), (sound, told(sound, first))])
        broken.owner = LeftOut(copying.fetcher)
        for each in (broken, sound):
            copying.fetcher.add(each)
        await until(lambda: copying.asked == 2)
        await asyncio.sleep(3 * SETTINGS.backoff_ms / 1000)
        copying.answer((sound, told(sound, batch(base_offset=1, leader_epoch=4))))
        await until(lambda: sound.log.end_offset == 2)
        assert broken.offline
        await copying.fetcher.stop()

    run("asyncio", main())


@pytest.mark.parametrize("added_again", [False, True])
def test_records_that_could_not_be_flushed_are_not_told_as_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, added_again: bool
) -> None:
    """With flush.messages the fetch offset says that records are on disk: none is sent until a flush succeeded.

    `added_again`: the leader epoch changes meanwhile, which usually means to fetch at once.
    """
    disk_full = True
    real = FlushJob.run
    attempts: list[bool] = []

    def flush(job: FlushJob) -> None:
        attempts.append(disk_full)
        if disk_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(job)

    monkeypatch.setattr(FlushJob, "run", flush)

    async def main() -> None:
        nonlocal disk_full
        partition = a_partition(tmp_path, 1)
        partition.log.configure(LogConfig(flush_messages=1))
        copying = Copying([(partition, told(partition, batch(leader_epoch=4)))])
        copying.fetcher.add(partition)
        await until(lambda: attempts)
        if added_again:
            copying.fetcher.add(partition)
        await until(lambda: len(attempts) > 3 or copying.asked > 1)
        assert partition.log.end_offset == 1
        assert copying.asked == 1, "it must not be fetched from its unflushed end"
        disk_full = False
        await until(lambda: copying.asked == 2)
        assert partition.log.recovery_point == 1
        await copying.fetcher.stop()
        await partition.stop()

    run("asyncio", main())


@pytest.mark.parametrize("elected_again", [False, True])
def test_a_log_is_not_cut_by_what_an_earlier_leader_said_of_its_own(tmp_path: Path, elected_again: bool) -> None:
    """Its next offset is out of the leader's range; while it asks for that, the leader may become another one's."""

    async def main() -> None:
        partition = a_partition(tmp_path, 1)
        out_of_range = [(partition, told(partition, error=1))]
        copying = Copying([(partition, told(partition, batch(3, leader_epoch=3)))], out_of_range)
        if elected_again:
            later = replace(STATE, leader_epoch=6, partition_epoch=9)
            copying.before_bounds = lambda: partition.assign(later, AROUND)
        copying.fetcher.add(partition)
        await until(lambda: copying.asked == 3)
        assert partition.log.end_offset == (3 if elected_again else 0)
        await copying.fetcher.stop()

    run("asyncio", main())


@pytest.mark.parametrize("out_of_range", [False, True])
def test_a_log_that_cannot_be_cut_because_it_is_damaged_is_to_be_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out_of_range: bool
) -> None:
    async def main() -> None:
        damaged, sound = a_partition(tmp_path / "a", 1), a_partition(tmp_path / "b", 2)

        def unreadable(*_: object) -> list[Path]:
            raise CorruptLogError("zeros")

        monkeypatch.setattr(Log, "truncate_to", unreadable)
        three = batch(3, leader_epoch=3)
        parts = told(damaged, diverging_epoch=EpochEndOffset(epoch=3, end_offset=1))
        copying = Copying(
            [(damaged, told(damaged, three))],
            [(damaged, told(damaged, error=1) if out_of_range else parts), (sound, told(sound, batch(leader_epoch=4)))],
        )
        damaged.owner = LeftOut(copying.fetcher)
        for each in (damaged, sound):
            copying.fetcher.add(each)
        await until(lambda: copying.asked == 3)
        assert damaged.standing.corrupt
        assert sound.log.end_offset == 1
        await copying.fetcher.stop()

    run("asyncio", main())
