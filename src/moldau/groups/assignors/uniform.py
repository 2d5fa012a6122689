"""The uniform assignor: balanced and sticky. All members get the same number of partitions, give or take one.

If all members subscribe to the same topics, each has a quota: surplus partitions are taken, free ones fill up the
others. If subscriptions differ, free partitions go to the least loaded subscriber; then partitions move from the most
to the least loaded subscriber of their topic until no move helps. Racks are ignored, as in Kafka 4.3.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final
from uuid import UUID

from moldau.groups.assignors.assignor import Assignment, MemberSubscription, PartitionCounts, same_topics

ROUNDS: Final = 16  # of moves over all topics; usually the second has nothing to do

Parts = dict[UUID, set[int]]


def assign(members: Mapping[str, MemberSubscription], counts: PartitionCounts) -> dict[str, Assignment]:
    if not members:
        return {}
    if same_topics(members):
        return _by_quota(members, counts)
    return _Balance(members, counts).assignment()


# All members subscribe to the same topics


def _by_quota(members: Mapping[str, MemberSubscription], counts: PartitionCounts) -> dict[str, Assignment]:
    topics = next(iter(members.values())).topics
    least, extra = divmod(sum(counts[topic_id] for topic_id in topics), len(members))
    kept = {member_id: _valid(member, counts) for member_id, member in members.items()}
    sizes = {member_id: _size(assignment) for member_id, assignment in kept.items()}
    # The extra partitions go to members that have more already, so that nothing moves.
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
    """The part of its last target that a member may keep; the same object if it is all."""
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
        topic_id, partition = next(free)  # the quotas add up to all partitions
        more.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in more.items()}


# Subscriptions differ


class _Balance:
    """The assignment while partitions are given and moved. Members are numbers: their order in the group."""

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
        # Topics with least choice first: many partitions per subscriber, few subscribers.
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
        """Move partitions of a topic from the most to the least loaded subscribers; returns how many."""
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
