"""Random histories of a replicated partition: elections, lost and late messages, crashes, power cuts. Nothing that was
committed is lost or changed, replicas agree below the high watermark, and at rest they are the same.
"""

import asyncio
from pathlib import Path

import pytest

from moldau.metadata.image import NO_BROKER
from support.replication.replicated import LAG_MS, Node, World, values

STEPS = 250


async def live(world: World) -> None:
    """A step of anything that can happen."""
    node = world.random.choice(list(world.nodes.values()))
    match world.random.choices(
        ("produce", "fetch", "learn", "alter", "time", "shrink", "checkpoint", "fault", "late", "controller"),
        (30, 40, 25, 15, 10, 5, 5, 4, 10, 10),
    )[0]:
        case "produce" if node.alive:
            world.produce(node)
        case "fetch" if node.alive:
            node.fetch_once()
        case "learn" if node.alive:
            node.learn(world.image)
        case "alter" if node.alive:
            world.alter(node)
        case "time":
            world.clock += world.random.choice((1, 50, 400, LAG_MS + 1))
        case "shrink" if node.alive and hasattr(node.partition.role, "shrink_isr"):
            node.partition.role.shrink_isr()  # type: ignore[union-attr]
        case "checkpoint" if node.alive:
            node.write_checkpoint()
        case "fault":
            await fault(world, node)
        case "late" if world.delayed:
            world.delayed.pop(world.random.randrange(len(world.delayed))).set()
        case "controller":
            world.random.choice((world.notice_dead, world.notice_dead, world.rebalance))()
    await asyncio.sleep(0)


async def fault(world: World, node: Node) -> None:
    if not node.alive:
        world.restart(node)
        return
    match world.random.choice(("kill", "restart", "power", "cut", "heal")):
        case "kill":
            await world.kill(node)
        case "restart":  # so fast that nobody notices
            await world.kill(node)
            world.restart(node)
        case "power":
            await world.kill(node, power=True)
            world.restart(node, trusted=False)
        case "cut":
            world.cut.add((node.id, world.random.choice([each for each in world.nodes if each != node.id])))
        case "heal":
            world.cut.clear()


async def come_to_rest(world: World) -> None:
    world.trouble = 0.0
    world.cut.clear()
    for node in world.nodes.values():
        if not node.alive:
            world.restart(node)
    for _ in range(60):
        while world.delayed:
            world.delayed.pop().set()
        world.notice_dead()
        for node in world.nodes.values():
            node.learn(world.image)
            node.fetch_once()
            world.alter(node)
            for _ in range(5):
                await asyncio.sleep(0)
        world.clock += 10
        world.check()


def same_everywhere(world: World) -> None:
    logs = [values(node) for node in world.nodes.values()]
    assert logs[0] == logs[1] == logs[2]
    for offset, value in world.acked:
        assert (offset, value) in logs[0]


async def history(world: World, steps: int) -> None:
    world.start()
    for _ in range(steps):
        await live(world)
        world.check()
    await come_to_rest(world)
    state = world.image.partition("topic", 0)
    assert state is not None
    if state.leader != NO_BROKER:  # else the last one that could lead may have lost records, in a power cut
        assert set(state.isr) == {1, 2, 3}
        same_everywhere(world)
    for node in world.alive:
        await node.kill()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("min_isr", [1, 2])
def test_nothing_committed_is_lost_or_changed(seed: int, min_isr: int, tmp_path: Path) -> None:
    asyncio.run(history(World(tmp_path, seed, min_isr=min_isr), STEPS))
