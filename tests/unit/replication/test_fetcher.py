"""A follower whose log parts from its leader's: what is cut off is gone for everyone, and does not come back."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.log.flush import FlushJob
from moldau.replication.leader import Leader
from support.log.logs import NOW, append, batch, flush
from support.net.loops import run, turns, until
from support.replication.replicated import Node, World, values


class Working:
    """Somebody who works on a partition's log, and takes some turns to stop."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.end_then = -1

    async def stop(self) -> None:
        await turns(3)
        self.end_then = self.node.partition.log.end_offset
        self.node.partition.cleaning = None


def parted(directory: Path, ahead: int) -> tuple[World, Node, Node]:
    """A leader, and a follower with records that the leader has not."""
    world = World(directory, 0)
    world.trouble = 0
    world.start()
    leader, follower = world.nodes[1], world.nodes[2]
    for _ in range(4):
        world.produce(leader)
    for header, data in leader.partition.log.read_batches(0):
        follower.partition.log.append(header, data, 0, NOW)
    for _ in range(ahead):
        append(follower.partition.log, batch(value=b"lost"))
    return world, leader, follower


async def same(leader: Node, follower: Node) -> None:
    for _ in range(20):
        await follower.fetchers[1].step()
    assert values(follower) == values(leader)


def test_a_checkpoint_tells_of_a_cut_before_anything_is_appended_behind_it(tmp_path: Path) -> None:
    """After a power cut a start would trust the new records as it trusted those that were synced there."""

    async def main() -> None:
        world, leader, follower = parted(tmp_path, 9)
        flush(follower.partition.log)
        follower.write_checkpoint()
        _, synced = follower.checkpointed
        assert synced == follower.partition.log.end_offset > leader.partition.log.end_offset
        await follower.fetchers[1].step()
        world.produce(leader)
        assert follower.checkpointed[1] <= follower.partition.log.end_offset < synced
        await same(leader, follower)

    run("asyncio", main())


def test_nobody_works_on_a_log_that_is_cut(tmp_path: Path) -> None:
    """A cleaner that has compacted segments ready would bring back what is cut off, if the broker crashed then."""

    async def main() -> None:
        _, leader, follower = parted(tmp_path, 9)
        end = follower.partition.log.end_offset
        working = follower.partition.cleaning = Working(follower)
        await asyncio.wait_for(same(leader, follower), 30)
        assert working.end_then == end, "it stopped before the log was cut"

    run("asyncio", main())


def test_flush_messages_holds_for_followers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the leader counts as copied is on the follower's disk."""
    go_on = threading.Event()
    real = FlushJob.run
    monkeypatch.setattr(FlushJob, "run", lambda job: go_on.wait(30) and real(job))

    async def main() -> None:
        world = World(tmp_path, 0)
        world.trouble, world.config = 0, replace(world.config, flush_messages=1)
        world.start()
        leader, follower = world.nodes[1], world.nodes[2]
        append(leader.partition.log, batch())
        fetcher = follower.fetchers[1]
        for _ in range(5):
            fetcher._end_rests()
            if len(fetcher._partitions) > len(fetcher._resting):
                await fetcher._round()
        assert follower.partition.log.end_offset == 1
        assert follower.partition.log.recovery_point == 0
        assert fetched_to(leader, 2) == 0
        go_on.set()
        await until(lambda: follower.partition.log.recovery_point == 1)
        await same(leader, follower)
        assert fetched_to(leader, 2) == 1

    run("asyncio", main())


def fetched_to(leader: Node, broker: int) -> int:
    """What the leader knows a follower to have."""
    role = leader.partition.role
    assert isinstance(role, Leader)
    known = role.isr.followers.get(broker)
    return 0 if known is None else known.end_offset
