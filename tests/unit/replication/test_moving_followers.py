"""A follower moves to another directory while its log is cut: the copy is of what the log is, not of what it was."""

import threading
from pathlib import Path
from uuid import UUID

import pytest

from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.follower import Follower
from moldau.replication.move import Move
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from support.log.logs import NOW, batch
from support.net.loops import run, until

NODE = 1
STATE = PartitionState(0, (2, NODE), (2, NODE), 2, leader_epoch=4)
IMAGE = ClusterImage(topics={"t": Topic("t", UUID(int=7), (STATE,), {})})


def follower(partition: Partition) -> Follower:
    assert isinstance(partition.role, Follower)
    return partition.role


def copies(epoch: int, *offsets: int) -> memoryview:
    return memoryview(b"".join(bytes(batch(base_offset=each, leader_epoch=epoch)) for each in offsets))


def test_what_the_leader_never_had_is_not_in_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied, go_on = threading.Event(), threading.Event()
    real = Move._append

    def append(move: Move, *rest: object) -> None:
        real(move, *rest)  # type: ignore[arg-type]
        copied.set()
        go_on.wait(30)

    async def main() -> None:
        directories = [LogDirectory.open(tmp_path / name) for name in ("one", "two")]
        replicas = Replicas(NODE, directories, lambda _: LogConfig(), lambda: NOW, 10**9)
        replicas.load(IMAGE, 1, lambda: False)
        partition = replicas.get("t", 0)
        assert partition is not None
        follower(partition).append(copies(3, 0, 1, 2, 3), 2, 0, NOW)
        with monkeypatch.context() as patch:
            patch.setattr(Move, "_append", append)
            target = next(each for each in directories if replicas.directories.of(partition) is not each)
            await replicas.moves.begin(partition, target)
            await until(copied.is_set)
            follower(partition).truncate_to_divergence(3, 2, NOW)
            follower(partition).append(copies(4, 2, 3, 4), 5, 0, NOW)
            go_on.set()
            await until(lambda: not replicas.moves)
        assert Path(partition.log.directory).parent == target.path
        found = [(header.base_offset, header.leader_epoch) for header in partition.log.read_headers(0)]
        assert found == [(0, 3), (1, 3), (2, 4), (3, 4), (4, 4)]
        assert partition.log.epochs.entries() == [(3, 0), (4, 2)]
        assert partition.log.producer_state.unreplicated is not None, (
            "its markers count when they are committed, as before"
        )
        await replicas.stop()

    run("asyncio", main())
