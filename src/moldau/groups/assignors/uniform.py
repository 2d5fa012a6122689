"""The uniform assignor: every member gets equally many partitions, give or take one, and keeps what it has if it can.

Where all members want the same topics, each has a quota: what exceeds it is taken, what is free fills those below it.
Where subscriptions differ, free partitions go to the least loaded subscriber, and then partitions move from the most to
the least loaded subscriber of their topic until none of these moves helps. Racks are not looked at, as in Kafka 4.3.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final
from uuid import UUID

from moldau.groups.assignors.assignor import Assignment, MemberSubscription, PartitionCounts, same_topics

ROUNDS: Final = 16  # of moves over all topics; usually the second one finds nothing left to do

Parts = dict[UUID, set[int]]


def assign(members: Mapping[str, MemberSubscription], counts: PartitionCounts) -> dict[str, Assignment]:
    if not members:
        return {}
    if same_topics(members):
        return _by_quota(members, counts)
    return _Balance(members, counts).assignment()


# All members want the same


def _by_quota(members: Mapping[str, MemberSubscription], counts: PartitionCounts) -> dict[str, Assignment]:
    topics = next(iter(members.values())).topics
    least, extra = divmod(sum(counts[topic_id] for topic_id in topics), len(members))
    kept = {member_id: _valid(member, counts) for member_id, member in members.items()}
    sizes = {member_id: _size(assignment) for member_id, assignment in kept.items()}
    # One more than the least: first for those that have it already, so that nothing moves, then in order.
    quotas = dict.fromkeys(members, least)
    eager = sorted(members, key=lambda member_id: sizes[member_id] <= least)
    for member_id in eager[:extra]:
        quotas[member_id] += 1
    for member_id, quota in quotas.items():
        if sizes[member_id] > quota:
            kept[member_id] = _first(kept[member_id], quota)
            sizes[member_id] = quota
    free = _free(topics, counts, kept.values())
    for member_id, quota in quotas.items():
        if sizes[member_id] < quota:
            kept[member_id] = _with(kept[member_id], free, quota - sizes[member_id])
    return kept


def _valid(member: MemberSubscription, counts: PartitionCounts) -> Assignment:
    """What the member has and may keep; the same object if that is all of it."""
    topics = member.topics
    if all(topic_id in topics and max(parts) < counts[topic_id] for topic_id, parts in member.current.items() if parts):
        return member.current
    left: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in member.current.items():
        if topic_id in topics:
            there = frozenset(each for each in partitions if each < counts[topic_id])
            if there:
                left[topic_id] = there
    return left


def _size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def _first(assignment: Assignment, quota: int) -> Assignment:
    shorter: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in assignment.items():
        if quota <= 0:
            break
        fits = partitions if len(partitions) <= quota else frozenset(sorted(partitions)[:quota])
        shorter[topic_id] = fits
        quota -= len(fits)
    return shorter


def _free(topics: Iterable[UUID], counts: PartitionCounts, kept: Iterable[Assignment]) -> Iterator[tuple[UUID, int]]:
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in topics}
    for assignment in kept:
        for topic_id, partitions in assignment.items():
            taken[topic_id] |= partitions
    for topic_id in sorted(taken):
        for partition in range(counts[topic_id]):
            if partition not in taken[topic_id]:
                yield topic_id, partition


def _with(assignment: Assignment, free: Iterator[tuple[UUID, int]], count: int) -> Assignment:
    more = {topic_id: set(partitions) for topic_id, partitions in assignment.items()}
    for _ in range(count):
        topic_id, partition = next(free)  # quotas add up to what there is
        more.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in more.items()}


# Subscriptions differ


class _Balance:
    """Who has what while partitions are being given and moved. Members are numbers: their places in the group."""

    def __init__(self, members: Mapping[str, MemberSubscription], counts: PartitionCounts) -> None:
        self._ids = list(members)
        self._counts = counts
        self._subscribers: dict[UUID, list[int]] = {}
        for number, member in enumerate(members.values()):
            for topic_id in member.topics:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owners: dict[UUID, list[int | None]] = {each: [None] * counts[each] for each in self._subscribers}
        self._loads = [0] * len(self._ids)
        for number, member in enumerate(members.values()):
            for topic_id, partitions in _valid(member, counts).items():
                for partition in partitions:
                    self._give(topic_id, partition, number)
        # The topics that leave least choice come first: many partitions for each subscriber, few subscribers.
        self._order = sorted(self._subscribers, key=self._scarcity)

    def assignment(self) -> dict[str, Assignment]:
        for topic_id in self._order:
            self._give_free(topic_id)
        self._move()
        parts: list[Parts] = [{} for _ in self._ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner is not None:
                    parts[owner].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in part.items()}
            for member_id, part in zip(self._ids, parts, strict=True)
        }

    def _scarcity(self, topic_id: UUID) -> tuple[float, int, UUID]:
        subscribers = len(self._subscribers[topic_id])
        return (-self._counts[topic_id] / subscribers, subscribers, topic_id)

    def _give(self, topic_id: UUID, partition: int, to: int) -> None:
        before = self._owners[topic_id][partition]
        if before is not None:
            self._loads[before] -= 1
        self._owners[topic_id][partition] = to
        self._loads[to] += 1

    def _by_load(self, topic_id: UUID) -> list[tuple[int, int]]:
        """A heap of the topic's subscribers, the least loaded first."""
        heap = [(self._loads[number], number) for number in self._subscribers[topic_id]]
        heapify(heap)
        return heap

    def _give_free(self, topic_id: UUID) -> None:
        free = [partition for partition, owner in enumerate(self._owners[topic_id]) if owner is None]
        if not free:
            return
        heap = self._by_load(topic_id)
        for partition in free:
            load, number = heap[0]
            self._give(topic_id, partition, number)
            heapreplace(heap, (load + 1, number))

    def _move(self) -> None:
        for _ in range(ROUNDS):
            moved = [self._move_within(topic_id) for topic_id in self._order if len(self._subscribers[topic_id]) > 1]
            if not any(moved):
                return

    def _move_within(self, topic_id: UUID) -> int:
        """Move partitions of one topic from those who have most to those who have least; answer how many."""
        loads = [self._loads[number] for number in self._subscribers[topic_id]]
        if max(loads) - min(loads) <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            if owner is not None:
                owned.setdefault(owner, []).append(partition)
        least = self._by_load(topic_id)
        most = [(-self._loads[number], number) for number in owned]
        heapify(most)
        moved = 0
        while most:
            load, giver = heappop(most)
            lowest, taker = least[0]
            if -load - lowest <= 1:
                break
            self._give(topic_id, owned[giver].pop(), taker)
            heapreplace(least, (lowest + 1, taker))
            moved += 1
            if owned[giver]:
                heappush(most, (load + 1, giver))
        return moved
