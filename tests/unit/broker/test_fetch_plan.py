"""The plans of Fetch change nothing: made twice, they are the same, and the leader knows as much as before."""

from dataclasses import replace
from pathlib import Path

from moldau.base.session import Session
from moldau.broker.apis.fetch import plan_fetch
from moldau.broker.call import Call
from moldau.broker.fetch_plan import Plan
from moldau.broker.follower_fetch import NOTHING, UNTHROTTLED, plan_copies
from moldau.log.settings import LogConfig
from moldau.replication.leader import Leader
from moldau.wire.hot.fetch import FetchBody, FetchPartition
from support.log.logs import TOPIC_ID, batch
from support.net.loops import run
from support.replication.replicated import World

ASKED = [(TOPIC_ID.bytes, FetchPartition(0, -1, 0, -1, 1 << 20, 0))]
VERSION = 17


def body(replica_id: int, replica_epoch: int = -1) -> FetchBody:
    return FetchBody(replica_id, 0, 1, 1 << 20, 0, 0, 0, [], [], replica_epoch=replica_epoch)


def told(plan: Plan) -> list[tuple[object, ...]]:
    """What a plan answers with."""
    return [
        (
            token,
            row.partition,
            row.error,
            row.high_watermark,
            row.records and (row.records.position, row.records.length),
        )
        for token, row in plan.results
    ] + [(plan.partitions, plan.size, plan.ready, plan.throttled_bytes)]


def test_plans_change_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, 0)
        world.start()
        leader = world.nodes[1]
        leader.partition.appender.produce(batch(3), 12, world.clock)
        role = leader.partition.role
        assert isinstance(role, Leader)
        before = {each: known.end_offset for each, known in role.isr.followers.items()}
        ctx, follower = leader.context(), body(2, world.nodes[2].epoch)
        copies = [plan_copies(ctx, follower, ASKED, NOTHING, UNTHROTTLED, by_id=True) for _ in range(10)]
        assert all(told(plan) == told(copies[0]) for plan in copies)
        assert copies[0].size > 0
        reads = [plan_fetch(ctx, body(-1), Call(Session("", ""), VERSION, 0), ASKED) for _ in range(2)]
        assert told(reads[0]) == told(reads[1])
        assert reads[0].size == 0, "nothing is committed"
        assert {each: known.end_offset for each, known in role.isr.followers.items()} == before

    run("asyncio", main())


def test_throttled_followers_get_what_is_allowed_and_the_plan_says_how_much(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, 0)
        world.config = LogConfig(min_insync_replicas=1, leader_replication_throttled_replicas=("*",))
        world.start()
        leader = world.nodes[1]
        leader.partition.appender.produce(batch(3), 12, world.clock)
        ctx, follower = leader.context(), body(2, world.nodes[2].epoch)
        in_sync = plan_copies(ctx, follower, ASKED, NOTHING, -1.0, by_id=True)
        assert (in_sync.size > 0, in_sync.throttled_bytes) == (True, 0)
        leader.partition.state = replace(leader.state, isr=(1, 3))
        allowed = plan_copies(ctx, follower, ASKED, NOTHING, 0.0, by_id=True)
        assert allowed.throttled_bytes == allowed.size > 0
        held = plan_copies(ctx, follower, ASKED, NOTHING, -1.0, by_id=True)
        assert (held.size, held.throttled_bytes) == (0, 0)

    run("asyncio", main())
