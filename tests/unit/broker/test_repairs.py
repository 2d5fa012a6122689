"""Damaged replicas, and such as only seem to be: what is thrown away of them, and what is not."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.broker import replica_manager
from moldau.broker.replica_manager import ReplicaManager
from moldau.broker.settings import load
from moldau.log import repair
from moldau.log.directory import LogDirectory
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.follower import Follower
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from support.log.logs import NOW, batch
from support.net.loops import run, until

FOLLOWED = ClusterImage(topics={"t": Topic("t", UUID(int=7), (PartitionState(0, (2, 1), (2, 1), 2),), {})})


VALID_TO = repair.valid_to


class Unreachable:
    asked = 0

    async def ask_raw(self, *_: object) -> None:
        self.asked += 1
        await asyncio.Event().wait()


class Broker:
    """One that follows another, which does not answer, and has three records."""

    def __init__(self, directory: Path) -> None:
        settings, _ = load({"zookeeper.connect": "nowhere", "broker.id": "1"})
        self.directory = LogDirectory.open(directory)
        self.replicas = Replicas(1, [self.directory], lambda _: LogConfig(), lambda: NOW, 10**9)
        self.replicas.load(FOLLOWED, 1, lambda: False)
        self.link = Unreachable()
        peers: Any = SimpleNamespace(to=lambda *_: self.link)
        lifecycle: Any = SimpleNamespace(registration=SimpleNamespace(epoch=1))
        self.manager = ReplicaManager(
            self.replicas, peers, lifecycle, lambda: FOLLOWED, lambda: settings, lambda: NOW, pytest.fail
        )
        self.manager.start()
        assert isinstance(self.partition.role, Follower)
        self.partition.role.append(batch(3), 3, 0, NOW)

    @property
    def partition(self) -> Partition:
        found = self.replicas.get("t", 0)
        assert found is not None
        return found

    async def stop(self) -> None:
        await self.manager.stop()
        await self.replicas.stop()


def check(directory: Path, test: Callable[[Broker], Any]) -> None:
    async def main() -> None:
        broker = Broker(directory)
        await test(broker)
        await broker.stop()

    run("asyncio", main())


def test_a_replica_that_is_gone_when_it_is_repaired_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its topic was deleted meanwhile: its files are not there, which says nothing of them."""
    gone = threading.Event()
    monkeypatch.setattr(replica_manager, "valid_to", lambda log: gone.wait(30) and VALID_TO(log))

    async def test(broker: Broker) -> None:
        partition = broker.partition
        partition.cannot_read()
        broker.replicas.follow(FOLLOWED, ClusterImage())
        await broker.replicas.settled()
        gone.set()
        await until(lambda: not partition.standing.corrupt)
        assert "repairing the log of t-0 failed" not in caplog.text
        assert all(fetcher.idle for fetcher in broker.manager._fetchers._fetchers.values())

    check(tmp_path, test)


def test_nothing_is_thrown_away_because_there_are_too_many_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_many = OSError(errno.EMFILE, "Too many open files")
    looks: list[Log] = []

    def look(*_: object, **__: object) -> None:
        raise too_many

    def valid_to(log: Log) -> int:
        looks.append(log)
        with monkeypatch.context() as patch:
            if len(looks) == 1:
                patch.setattr(repair, "check", look)
            return VALID_TO(log)

    monkeypatch.setattr(replica_manager, "valid_to", valid_to)
    monkeypatch.setattr(replica_manager, "REPAIR_RETRY_S", 0.01)

    async def test(broker: Broker) -> None:
        broker.partition.cannot_read(too_many)
        assert not broker.partition.standing.corrupt
        broker.partition.cannot_read()  # for another reason, at a bad time
        await until(lambda: not broker.partition.standing.corrupt)
        assert len(looks) == 2
        assert broker.partition.log.end_offset == 3

    check(tmp_path, test)
