"""Assigns partitions to fetchers: `num.replica.fetchers` for each leader."""

import asyncio
from collections.abc import Callable
from typing import Any

from moldau.replication.fetcher import Bounds, Fetcher, FetcherOwner, LeaderConnection
from moldau.replication.follower import Follower
from moldau.replication.partition import Partition
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LIST_OFFSETS_VERSION = 7
LATEST, EARLIEST = -1, -2
PURPOSE = "copying"  # of the connections, with a number where there are several


class Fetchers:
    def __init__(self, link: Callable[[int, str], LeaderConnection], owner: FetcherOwner, per_leader: int) -> None:
        self._link = link
        self._owner = owner
        self._per_leader = per_leader
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._of: dict[Partition, Fetcher] = {}

    def assign(self, partition: Partition) -> None:
        """The role changed: copy the partition from its leader, or not at all."""
        role = partition.role
        wanted: Fetcher | None = None
        if isinstance(role, Follower) and role.leader >= 0 and not partition.offline:
            wanted = self._fetcher(role.leader, hash((partition.topic, partition.index)) % self._per_leader)
        known = self._of.get(partition)
        if known is not None and known is not wanted:
            known.remove(partition)
            del self._of[partition]
        if wanted is not None:
            self._of[partition] = wanted
            wanted.add(partition)

    def dismiss(self, partition: Partition) -> None:
        known = self._of.pop(partition, None)
        if known is not None:
            known.remove(partition)

    def _fetcher(self, leader: int, number: int) -> Fetcher:
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            link = self._link(leader, PURPOSE if number == 0 else f"{PURPOSE}-{number}")
            fetcher = self._fetchers[leader, number] = Fetcher(leader, link, self._owner)
        return fetcher

    async def stop(self) -> None:
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._of.clear()
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))


async def ask_bounds(link: LeaderConnection, partitions: list[Partition], replica_id: int) -> dict[Partition, Bounds]:
    """The log start and end offsets on the leader. Partitions without an answer are left out."""
    starts = await _ask(link, partitions, replica_id, EARLIEST)
    ends = await _ask(link, partitions, replica_id, LATEST)
    return {each: Bounds(starts[each], ends[each]) for each in partitions if each in starts and each in ends}


async def _ask(
    link: LeaderConnection, partitions: list[Partition], replica_id: int, timestamp: int
) -> dict[Partition, int]:
    by_name = {(each.topic, each.index): each for each in partitions}
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for each in partitions:
        row = ListOffsetsPartition(
            partition_index=each.index, current_leader_epoch=each.leader_epoch, timestamp=timestamp
        )
        topics.setdefault(each.topic, []).append(row)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=0,
        topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(rows)) for name, rows in topics.items()),
    )
    response: Any = await link.ask(request, LIST_OFFSETS_VERSION)
    return {
        by_name[topic.name, row.partition_index]: row.offset
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code and (topic.name, row.partition_index) in by_name
    }
