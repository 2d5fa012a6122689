"""Log directories whose disks do not work, as a whole broker meets them: at its start, and as one of a cluster."""

import asyncio
import errno
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from moldau.broker.node import Node
from moldau.log.directory import DirectoryRefused
from moldau.log.log import Log
from moldau.metadata.changes import TopicCreated
from moldau.metadata.image import PartitionState
from moldau.testing import ZooKeeper
from support.brokers.nodes import a_node
from support.net import loops

ALONE = ""  # no ZooKeeper
STORE = "moldau-metadata.sqlite"


def node_in(*paths: Path, connect: str = ALONE, **settings: object) -> Node:
    """A node with these directories."""
    return a_node(paths[0], connect, asyncio.Event(), log_dirs=",".join(map(str, paths)), **settings)


async def started_and_stopped(*paths: Path) -> None:
    node = node_in(*paths)
    await node.start(time.monotonic())
    await node.stop()


async def refusal(*paths: Path, **settings: object) -> str:
    with pytest.raises(DirectoryRefused) as refused:
        await node_in(*paths, **settings).start(time.monotonic())
    return str(refused.value)


def break_(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}-hidden"))
    path.touch()


def mend(path: Path) -> None:
    path.unlink()
    path.with_name(f"{path.name}-hidden").rename(path)


def test_a_node_starts_without_a_directory_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        await started_and_stopped(one, two)
        break_(two)
        node = node_in(one, two)
        await node.start(time.monotonic())
        assert [each.offline for each in node._directories] == [False, True]
        refused = f"cannot use the log directory {two}: it is a file"
        assert f"are offline until the broker is restarted: {refused}" in caplog.text
        await node.stop()
        mend(two)
        await started_and_stopped(one, two)

    loops.run("uvloop", scenario())


def test_without_any_directory_a_start_fails_in_one_sentence(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        for path in (one, two):
            path.touch()
        told = await refusal(one, two)
        assert (
            told
            == f"cannot use the log directory {one}: it is a file; cannot use the log directory {two}: it is a file"
        )
        assert await refusal(one) == f"cannot use the log directory {one}: it is a file"

    loops.run("uvloop", scenario())


def test_metadata_that_cannot_be_read_is_not_begun_anew(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        await started_and_stopped(one, two)
        break_(one)
        for _ in range(2):
            told = await refusal(one, two)
            assert f"the directory {one} cannot be used, and this node's metadata may be in it" in told
        assert not (two / STORE).exists()
        mend(one)
        await started_and_stopped(one, two)

    loops.run("uvloop", scenario())


def test_a_wrong_setting_is_no_disk_that_failed(tmp_path: Path) -> None:
    one, two, other = tmp_path / "one", tmp_path / "two", tmp_path / "other"

    async def scenario() -> None:
        await started_and_stopped(one)
        await started_and_stopped(other)
        assert "metadata of two nodes" in await refusal(one, other)
        (other / STORE).unlink()
        assert "belongs to cluster" in await refusal(one, other)
        assert "belongs to node 1" in await refusal(one, node_id=7)
        two.touch()
        for path in (one, two):
            link = path.with_name("link")
            link.symlink_to(path)
            assert "named twice" in await refusal(one, two, link)
            link.unlink()
        await started_and_stopped(one)

    loops.run("uvloop", scenario())


def test_a_new_cluster_is_not_founded_without_what_a_node_may_have_had(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        await started_and_stopped(one, two)
        break_(one)
        connect = f"{zookeeper.connect}/{uuid4().hex}"
        assert "this node's metadata may be in it" in await refusal(one, two, connect=connect)
        mend(one)
        node = node_in(one, two, connect=connect)
        await node.start(time.monotonic())
        await node.stop()

    loops.run("uvloop", scenario())


def test_nobody_waits_for_a_broker_whose_disk_failed(
    tmp_path: Path, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a follower, as one that is to lead and cannot, and as one that starts: the other broker is enough."""
    paths = [tmp_path / name for name in ("one", "two")]
    real = Log.open

    def fails(directory: Path, *rest: Any, **named: Any) -> Log:
        if Path(directory).name == "led-0" and Path(directory).parent in paths:
            raise OSError(errno.EIO, "the disk says no")
        return real(directory, *rest, **named)

    monkeypatch.setattr(Log, "open", fails)

    async def scenario() -> None:
        connect = f"{zookeeper.connect}/{uuid4().hex}"
        first = a_node(tmp_path / "first", connect, asyncio.Event(), replica_lag_time_max_ms=600_000)
        second = node_in(*paths, connect=connect, node_id=2)
        for node in (first, second):
            await node.start(time.monotonic())

        def state(topic: str, index: int = 0) -> PartitionState:
            found = first._controller.image.partition(topic, index)
            assert found is not None
            return found

        async def create(topic: str, number: int, leader: int, partitions: int = 1) -> None:
            states = [PartitionState(index, (1, 2), (1, 2), leader) for index in range(partitions)]
            created = await first._controller.submit(lambda _: TopicCreated(topic, UUID(int=number), tuple(states), {}))
            assert isinstance(created, TopicCreated)

        await create("led", 1, leader=2)
        await loops.until(lambda: (state("led").leader, state("led").isr) == (1, (1,)))
        await create("followed", 2, leader=1, partitions=2)
        await loops.until(lambda: len(list(second._replicas)) == 2)
        broken, working = second._directories
        (lost,) = (each.index for each in second._replicas.directories.partitions_in(broken))
        (kept,) = (each.index for each in second._replicas.directories.partitions_in(working))
        second._replicas.fail(broken, OSError(errno.EIO, "the disk says no"))
        await loops.until(lambda: state("followed", lost).isr == (1,))
        assert state("followed", kept).isr == (1, 2)
        await second.stop()

        break_(broken.path)
        again = node_in(*paths, connect=connect, node_id=2)
        await again.start(time.monotonic())
        await loops.until(lambda: state("followed", kept).isr == (1, 2))
        assert again._replicas.offline == {("followed", lost), ("led", 0)}
        assert state("followed", lost).isr == (1,)
        await again.stop()
        await first.stop()

    loops.run("uvloop", scenario())
