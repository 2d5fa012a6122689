"""Requests about groups while their coordinator is being loaded, waits for replicas, or moves: what clients hear.

Clients know few errors of each answer, and end with others. What follows is what those in use live with.
"""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.broker.apis.heartbeat import heartbeat
from moldau.broker.apis.list_groups import list_groups
from moldau.broker.apis.list_transactions import list_transactions
from moldau.broker.apis.offset_commit import offset_commit
from moldau.broker.apis.offset_fetch import offset_fetch
from moldau.broker.apis.sync_group import sync_group
from moldau.broker.call import Call
from moldau.broker.coordinators.group_coordinator import GroupCoordinator
from moldau.broker.coordinators.partitioning import partition_of
from moldau.broker.settings import load
from moldau.broker.waiting import awaited
from moldau.groups.consumer.group import ConsumerGroup
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.transactions.state import Transaction
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from moldau.wire.messages.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from moldau.wire.messages.sync_group import SyncGroupRequest
from support.brokers.calls import a_call
from support.replication.replicas import ReplicatedPartition

CALL = a_call(1)
OFFSETS = "__consumer_offsets"
NOW = 1_700_000_000_000
CONFIG, _ = load({})


class Refusing:
    """A coordinator that cannot be asked."""

    def __init__(self, error: WireError) -> None:
        self.error = error
        self.groups = self

    def env(self) -> SimpleNamespace:
        return SimpleNamespace(topics=None)

    def ask(self, group_id: str, request: Any, call: Call, refused: Callable[[WireError], Any]) -> Any:
        return refused(self.error)

    def read(self, group_id: str, look: Callable[[Any], Any], refused: Callable[[WireError], Any]) -> Any:
        return refused(self.error)


LOADING = WireError.COORDINATOR_LOAD_IN_PROGRESS
WAITING = WireError.COORDINATOR_NOT_AVAILABLE
MOVED = WireError.NOT_COORDINATOR


@pytest.mark.parametrize(("error", "told"), [(LOADING, WireError.NONE), (WAITING, WAITING), (MOVED, MOVED)])
def test_a_heartbeat_is_not_told_of_loading(error: WireError, told: WireError) -> None:
    """As in Kafka. aiokafka's consumers would end."""
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert heartbeat(Refusing(error), request, CALL).error_code == told  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "told"), [(LOADING, WireError.REBALANCE_IN_PROGRESS), (WAITING, WAITING), (MOVED, MOVED)]
)
def test_a_pending_sync_group_rejoins_when_the_leadership_is_lost(error: WireError, told: WireError) -> None:
    """Java's and aiokafka's consumers would end with what JoinGroup may be told."""
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=())
    assert sync_group(Refusing(error), request, CALL).error_code == told  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [1, 8])
@pytest.mark.parametrize(("error", "told"), [(LOADING, LOADING), (WAITING, MOVED), (MOVED, MOVED)])
def test_offset_fetch_looks_up_the_coordinator_again(version: int, error: WireError, told: WireError) -> None:
    """As in Kafka: Java's consumers before 3.9 would end, and aiokafka's do."""
    group = OffsetFetchGroup(group_id="g", topics=(OffsetFetchTopic(name="t", partition_indexes=(0,)),))
    request = OffsetFetchRequest(groups=(group,))
    response = offset_fetch(Refusing(error), request, a_call(version))  # type: ignore[arg-type]
    (found,) = response.groups
    assert found.error_code == told
    assert [each.error_code for topic in found.topics for each in topic.partitions] == [told] * (version < 2)


@pytest.mark.parametrize(("error", "told"), [(LOADING, LOADING), (WAITING, WAITING), (MOVED, WireError.NONE)])
def test_a_list_with_gaps_is_no_list(error: WireError, told: WireError) -> None:
    """But what another broker has by now, that one lists."""
    groups = [ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")]
    transactions = [Transaction("tx", 1, 0, 60_000, NOW)]

    class Shards:
        """One that is loaded, and one that is refused."""

        def list_groups(self, *_: object) -> list[ListedGroup]:
            return groups

        def listed(self, *_: object) -> list[Transaction]:
            return transactions

        def read_all(self, look: Callable[[Any], Any], refused: Callable[[WireError], Any]) -> list[Any]:
            return [look(self), refused(error)]

    of_groups = SimpleNamespace(groups=Shards())
    of_transactions = SimpleNamespace(transactions=Shards(), now=lambda: NOW)
    listed = list_groups(of_groups, ListGroupsRequest(), CALL)  # type: ignore[arg-type]
    assert (listed.error_code, len(listed.groups)) == (told, told is WireError.NONE)
    found = list_transactions(of_transactions, ListTransactionsRequest(), CALL)  # type: ignore[arg-type]
    assert (found.error_code, len(found.transaction_states)) == (told, told is WireError.NONE)


class Cluster:
    """A broker that leads two partitions of the offsets topic, and the image that says what else there is."""

    def __init__(self) -> None:
        self.row = [ReplicatedPartition(), ReplicatedPartition()]
        self.image = self.with_orders(1)
        self.groups = GroupCoordinator(self, lambda: CONFIG, lambda: self.image, lambda: NOW)  # type: ignore[arg-type]
        self.groups.start()

    def with_orders(self, partitions: int) -> ClusterImage:
        topics = [
            Topic(name, UUID(int=number), tuple(PartitionState(each, (1,), (1,), 1) for each in range(count)), {})
            for number, (name, count) in enumerate({OFFSETS: 2, "orders": partitions}.items(), 1)
        ]
        return ClusterImage(
            version=partitions,
            topics={each.name: each for each in topics},
            topics_by_id={each.id: each for each in topics},
            features={"group.version": 1},
        )

    @property
    def by_name(self) -> dict[bytes, list[ReplicatedPartition]]:
        return {OFFSETS.encode(): self.row}

    def find(self, topics: dict[bytes, list[ReplicatedPartition]], token: bytes, index: int) -> ReplicatedPartition:
        return topics[token][index]

    async def settled(self) -> None:
        """Nothing is being opened."""

    def group(self, index: int, group_id: str) -> ConsumerGroup:
        shard = self.groups.shard_at(index)
        assert not isinstance(shard, WireError)
        found = shard.machine.groups[group_id]
        assert isinstance(found, ConsumerGroup)
        return found


def test_groups_hear_of_topics_though_others_move_at_the_same_time() -> None:
    """A request that fails with a lost leadership reads the newest topics; groups must still get the change."""

    async def main() -> None:
        cluster = Cluster()
        stays, moves = (next(f"g{n}" for n in range(9) if partition_of(f"g{n}", 2) == index) for index in (0, 1))
        joins = ConsumerGroupHeartbeatRequest(
            group_id=stays,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )
        cluster.groups.ask(stays, joins, CALL, lambda error: error)
        cluster.row[0].commit()
        before = cluster.group(0, stays).epoch
        offset = OffsetCommitPartition(partition_index=0, committed_offset=1, committed_metadata=None)
        commit = OffsetCommitRequest(group_id=moves, topics=(OffsetCommitTopic(name="orders", partitions=(offset,)),))
        committed = offset_commit(cluster, commit, a_call(9))  # type: ignore[arg-type]
        assert isinstance(committed, Later)
        old, cluster.image = cluster.image, cluster.with_orders(2)
        cluster.row[1].lose()
        cluster.groups.follow(old, cluster.image)
        assert (await awaited(committed)).topics[0].partitions[0].error_code == MOVED
        assert cluster.group(0, stays).epoch == before + 1
        await cluster.groups.stop()

    asyncio.run(main())
