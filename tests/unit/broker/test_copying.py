"""The leader's side of a follower's fetch, and consumers that read from followers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later
from moldau.base.slices import FileSlice
from moldau.broker.apis.fetch import fetch
from moldau.broker.replica_selector import RACK_AWARE, Choice, preferred_replica
from moldau.metadata.elections import broker_failure_changes
from moldau.metadata.image import Broker
from moldau.net.reply import Parked
from moldau.replication.delayed_fetch import LOOK_AT_ALL_MS
from moldau.replication.isr import Progress
from moldau.replication.leader import ALL, Leader
from moldau.wire.codec import decode, encode
from moldau.wire.fetching import VERSION, Fetched, FetchLimits, Wanted, pack_fetch_request, read_fetch_response
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.brokers.calls import a_call
from support.log.logs import TOPIC_ID, batch, read
from support.net.loops import run, turns
from support.replication.replicated import Node, World

WAIT = FetchLimits(60_000, 1, 1 << 20)


class FetchingFollower:
    """A follower that asks the leader, by hand."""

    def __init__(self, leader: Node, broker: int) -> None:
        self.leader, self.broker = leader, broker
        self.context = leader.context()
        self.session = (0, 0)

    def ask(self, offset: int | None, epoch: int | None = None) -> Any:
        """An answer, or a `Parked` one; without an offset the follower has nothing new to say."""
        node = self.leader.world.nodes[self.broker]
        wanted = [] if offset is None else [(TOPIC_ID.bytes, [Wanted(0, 0, offset, -1, 0, 1 << 20)])]
        replica = (self.broker, node.epoch if epoch is None else epoch)
        body = pack_fetch_request(replica, WAIT, self.session, wanted, [])
        answer = fetch(self.context, memoryview(body), 0, a_call(VERSION))
        return answer if isinstance(answer, Parked) else self.read(answer)

    def read(self, parts: Any) -> Fetched | None:
        frame = b"".join(read(part) if isinstance(part, FileSlice) else bytes(part) for part in parts)[4:]
        fetched = read_fetch_response(memoryview(frame), 5)
        self.session = (fetched.session_id, self.session[1] + 1)
        return fetched.topics[0][1][0] if fetched.topics else None


def a_leader(directory: Path) -> tuple[World, Node]:
    world = World(directory, 0)
    world.trouble = 0
    world.start()
    return world, world.nodes[1]


def append(node: Node) -> None:
    node.partition.appender.produce(batch(), 12, node.world.clock)


def test_a_follower_hears_of_records_at_once_and_of_what_is_committed(tmp_path: Path) -> None:
    async def main() -> None:
        _, leader = a_leader(tmp_path)
        second, third = FetchingFollower(leader, 2), FetchingFollower(leader, 3)
        assert second.ask(0).high_watermark == 0
        assert third.ask(0).high_watermark == 0
        waiting = [second.ask(None), third.ask(None)]
        append(leader)
        await turns()
        for each, parked in zip((second, third), waiting, strict=True):
            assert isinstance(parked, Parked)
            got = each.read(parked.reply)
            assert got is not None
            assert got.stop > got.start
        parked = second.ask(1)
        assert isinstance(parked, Parked)
        news = third.ask(1)
        assert news.high_watermark == 1, "who commits it hears of it at once"
        await turns()
        told = second.read(parked.reply)
        assert told is not None
        assert (told.high_watermark, told.stop - told.start) == (1, 0)

    run("asyncio", main())


def test_a_follower_that_goes_on_is_not_forgotten_for_long(tmp_path: Path) -> None:
    """It left the in-sync replicas, which its leader took for a disk that failed. It has nothing new to say."""

    async def main() -> None:
        world, leader = a_leader(tmp_path)
        second, third = FetchingFollower(leader, 2), FetchingFollower(leader, 3)
        for each in (second, third):
            each.ask(0)
        role = leader.partition.role
        assert isinstance(role, Leader)
        left = replace(leader.state, isr=(1, 3), partition_epoch=leader.state.partition_epoch + 1)
        leader.partition.assign(left, leader.view)
        assert role.pending_isr is None
        world.clock += LOOK_AT_ALL_MS
        second.ask(None)
        pending = role.pending_isr
        assert pending is not None
        assert pending.isr == (1, 2, 3)

    run("asyncio", main())


def test_what_a_fetch_lets_commit_may_lead_to_more_which_is_news_too(tmp_path: Path) -> None:
    """A coordinator writes its markers in the turn in which the decision is committed."""

    async def main() -> None:
        _, leader = a_leader(tmp_path)
        second, third = FetchingFollower(leader, 2), FetchingFollower(leader, 3)
        for each in (second, third):
            each.ask(0)
        later = leader.partition.appender.produce(batch(), 12, leader.world.clock, acks=ALL)
        assert isinstance(later, Later)
        later.then(lambda _: append(leader))
        for each in (second, third):
            assert each.ask(None).stop
        assert isinstance(second.ask(1), Parked)
        got = third.ask(1)
        assert got.high_watermark == 1
        assert got.stop > got.start, "the record that was written because of the commit comes with the same answer"

    run("asyncio", main())


def test_a_fetch_does_not_wait_if_it_caused_news_itself(tmp_path: Path) -> None:
    async def main() -> None:
        _, leader = a_leader(tmp_path)
        second, third = FetchingFollower(leader, 2), FetchingFollower(leader, 3)
        append(leader)
        for each in (second, third):
            each.ask(0)
        role = leader.partition.role
        assert isinstance(role, Leader)
        role.when_low(0, lambda: append(leader))
        got = second.ask(1)
        assert not isinstance(got, Parked)
        assert got.stop > got.start

    run("asyncio", main())


def test_a_new_request_ends_the_wait_of_the_one_before(tmp_path: Path) -> None:
    async def main() -> None:
        _, leader = a_leader(tmp_path)
        second = FetchingFollower(leader, 2)
        second.ask(0)
        first = second.ask(None)
        assert isinstance(first, Parked)
        second.session = (second.session[0], second.session[1] + 1)
        another = second.ask(None)
        assert first.done
        assert isinstance(another, Parked)
        assert not another.done
        another.abandon()

    run("asyncio", main())


def test_who_registers_after_its_first_fetch_becomes_a_member(tmp_path: Path) -> None:
    async def main() -> None:
        world, leader = a_leader(tmp_path)
        await world.kill(world.nodes[3])
        world.notice_dead()
        leader.learn(world.image)
        assert leader.state.isr == (1, 2)
        third = FetchingFollower(leader, 3)
        assert third.ask(0, epoch=-1).error == 0
        world.register(world.nodes[3], trusted=True)
        leader.learn(world.image)
        assert leader.changes._due == {}, "it is not known with which epoch it has what it has"
        third.ask(None)
        assert list(leader.changes._due) == [leader.partition]

    run("asyncio", main())


def test_what_a_follower_had_in_an_earlier_broker_epoch_does_not_make_it_in_sync(tmp_path: Path) -> None:
    """Its machine lost power, and it what was not synced. The leader remembers the offsets of before."""

    async def main() -> None:
        world, leader = a_leader(tmp_path)
        for _ in range(3):
            append(leader)
        for each in (2, 3):
            before = FetchingFollower(leader, each)
            for offset in (0, 3):
                before.ask(offset)
        assert leader.partition.high_watermark == 3
        await world.kill(world.nodes[3])
        world.notice_dead()
        leader.learn(world.image)
        world.register(world.nodes[3], trusted=False)
        leader.learn(world.image)
        third = FetchingFollower(leader, 3)
        third.ask(1)
        world.clock += LOOK_AT_ALL_MS
        third.ask(None)
        assert leader.changes._due == {}, "it lacks two committed records"
        third.ask(3)
        assert list(leader.changes._due) == [leader.partition]

    run("asyncio", main())


def test_unknown_replicas_and_earlier_broker_epochs_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        world, leader = a_leader(tmp_path)
        assert FetchingFollower(leader, 2).ask(0, epoch=0).error == WireError.NOT_LEADER_OR_FOLLOWER
        world.nodes[9] = world.nodes[2]
        assert FetchingFollower(leader, 9).ask(0, epoch=5).error == WireError.NOT_LEADER_OR_FOLLOWER
        assert FetchingFollower(world.nodes[2], 3).ask(0).error == WireError.NOT_LEADER_OR_FOLLOWER

    run("asyncio", main())


def test_a_leader_that_is_throttled_holds_back_who_is_not_in_sync(tmp_path: Path) -> None:
    """As with reassignment: its replica is named, and not those that are being made."""

    async def main() -> None:
        _, leader = a_leader(tmp_path)
        append(leader)
        partition = leader.partition
        assert partition.state is not None
        partition.state = replace(partition.state, isr=(1, 2))
        partition.log.configure(replace(partition.log.config, leader_replication_throttled_replicas=("0:1",)))
        for broker, held_back in ((2, False), (3, True)):
            follower = FetchingFollower(leader, broker)
            follower.context.replicas.sending.rate = 1
            first = follower.ask(0)
            assert first.stop > first.start
            append(leader)
            got = follower.ask(1)
            assert (isinstance(got, Parked) or got.stop == got.start) == held_back

    run("asyncio", main())


def consume(node: Node, offset: int, version: int = 12, rack: str = "") -> Any:
    topic = FetchTopic(
        topic="topic", partitions=(FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20),)
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(topic,), rack_id=rack)
    parts = fetch(node.rack_aware(), memoryview(encode(request, version)), 0, a_call(version))
    frame = b"".join(read(part) if isinstance(part, FileSlice) else bytes(part) for part in parts)
    at = 8 + (version >= 12)
    return decode(FetchResponse, version, memoryview(frame), at).responses[0].partitions[0]


def test_consumers_read_from_a_follower_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    async def main() -> None:
        world, leader = a_leader(tmp_path)
        follower = world.nodes[2]
        append(leader)
        await follower.fetchers[1].step()
        assert follower.partition.log.end_offset == 1
        assert not consume(follower, 0).records, "it is not committed"
        assert consume(follower, 0, version=10).error_code == WireError.NOT_LEADER_OR_FOLLOWER
        assert consume(follower, 5).error_code == WireError.OFFSET_NOT_AVAILABLE
        for _ in range(3):
            for each in (2, 3):
                await world.nodes[each].fetchers[1].step()
        assert consume(leader, 5).error_code == WireError.OFFSET_OUT_OF_RANGE
        assert consume(follower, 0).records
        for node in world.alive:
            await node.kill()

    run("asyncio", main())


def test_a_leader_that_stood_still_sends_clients_to_look_for_another(tmp_path: Path) -> None:
    async def main() -> None:
        world, leader = a_leader(tmp_path)
        followers = [FetchingFollower(leader, each) for each in (2, 3)]

        def ask(each: FetchingFollower, offset: int | None = None) -> None:
            if isinstance(each.ask(offset), Parked):  # its next request ends the wait of this one
                each.session = (each.session[0], each.session[1] + 1)

        def errors() -> set[WireError]:
            gap = leader.partition.appender.produce(batch(producer_id=7, epoch=0, sequence=5), 12, world.clock)
            assert isinstance(gap, Refusal)
            return {gap.error, WireError(consume(leader, 5).error_code)}

        leader.partition.appender.produce(batch(producer_id=7, epoch=0, sequence=0), 12, world.clock)
        for offset in (0, 1):
            for each in followers:
                ask(each, offset)
        assert errors() == {WireError.OUT_OF_ORDER_SEQUENCE_NUMBER, WireError.OFFSET_OUT_OF_RANGE}
        world.clock += 3 * WAIT.wait_ms
        assert errors() == {WireError.NOT_LEADER_OR_FOLLOWER}
        for each in followers:
            ask(each)
        assert errors() == {WireError.NOT_LEADER_OR_FOLLOWER}, "they may have asked before that time"
        ask(followers[0])
        assert errors() == {WireError.NOT_LEADER_OR_FOLLOWER}, "the other one may lead"
        ask(followers[1])
        assert errors() == {WireError.OUT_OF_ORDER_SEQUENCE_NUMBER, WireError.OFFSET_OUT_OF_RANGE}
        for node in world.alive:
            await node.kill()

    run("asyncio", main())


def test_a_follower_without_a_session_leaves_no_doubt(tmp_path: Path) -> None:
    async def main() -> None:
        world, leader = a_leader(tmp_path)
        follower = FetchingFollower(leader, 2)
        follower.ask(0)
        assert consume(leader, 5).error_code == WireError.NOT_LEADER_OR_FOLLOWER
        follower.context.fetch_sessions.slots = 0
        follower.session = (0, 0)
        follower.ask(0)
        assert consume(leader, 5).error_code == WireError.OFFSET_OUT_OF_RANGE
        for node in world.alive:
            await node.kill()

    run("asyncio", main())


def test_a_consumer_is_sent_to_the_follower_in_its_rack(tmp_path: Path) -> None:
    async def main() -> None:
        world, leader = a_leader(tmp_path)
        append(leader)
        for _ in range(3):
            for each in (2, 3):
                await world.nodes[each].fetchers[1].step()
        for each, rack in ((1, "a"), (2, "b"), (3, "c")):
            broker = leader.image.brokers[each]
            leader.image.brokers[each] = Broker(each, {}, rack, broker.epoch)  # type: ignore[index]
        assert consume(leader, 0, rack="b").preferred_read_replica == 2
        assert consume(leader, 0, rack="c").preferred_read_replica == 3
        assert consume(leader, 0, rack="a").preferred_read_replica == -1
        assert consume(leader, 0, rack="elsewhere").records
        world.decide(*broker_failure_changes(world.image, [3], world.rules))
        leader.learn(replace(world.image, brokers=leader.image.brokers))
        assert consume(leader, 0, rack="b").preferred_read_replica == 2
        assert consume(leader, 0, rack="c").records, "who is not in sync may never get on"
        for node in world.alive:
            await node.kill()

    run("asyncio", main())


@pytest.mark.parametrize(("offset", "chosen"), [(5, 3), (8, 3), (9, -1), (2, -1)])
def test_the_one_that_is_furthest_is_chosen_of_those_that_have_the_offset(offset: int, chosen: int) -> None:
    followers = {2: Progress(0), 3: Progress(0)}
    followers[2].fetched(6, 3, 1, 10, 0)
    followers[3].fetched(8, 4, 1, 10, 0)
    brokers = {1: Broker(1, {}, "a"), 2: Broker(2, {}, "b"), 3: Broker(3, {}, "b")}
    assert preferred_replica(Choice(1, followers, brokers), "b", offset) == chosen
    assert RACK_AWARE.endswith("RackAwareReplicaSelector")
