"""Plans of replica assignments: pure arithmetic over the assignment of now. Sends no request.

Every plan moves as little as it can: a replica stays where it is unless the plan is about it. New brokers are chosen so
that a partition's replicas spread over racks first, and brokers have equally many replicas and leaders second.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from moldau.base.ids import TopicPartition
from moldau.client.admin.errors import ImpossibleAssignment

Racks = Mapping[int, str | None]  # of every broker that takes replicas
Replicas = tuple[int, ...]
Assignment = Mapping[TopicPartition, Replicas]


@dataclass(slots=True)
class _Load:
    """A plan in the making: the replicas of each partition, and the load of each broker."""

    racks: Racks
    replicas: dict[TopicPartition, Replicas]
    held: Counter[int] = field(default_factory=Counter)
    led: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for replicas in self.replicas.values():
            self._count(replicas, 1)

    def assign(self, tp: TopicPartition, replicas: Replicas) -> None:
        self._count(self.replicas[tp], -1)
        self._count(replicas, 1)
        self.replicas[tp] = replicas

    def _count(self, replicas: Replicas, sign: int) -> None:
        for broker in replicas:
            self.held[broker] += sign
        for broker in replicas[:1]:
            self.led[broker] += sign

    def crowding(self, rack: str | None, others: Iterable[int]) -> int:
        """How many of the others are in this rack. A broker without a rack is in one of its own."""
        return 0 if rack is None else sum(self.racks.get(each) == rack for each in others)

    def best(self, others: Collection[int], allowed: Iterable[int], *, leads: bool = False) -> int | None:
        """The broker that should join these others in a partition."""
        candidates = [each for each in allowed if each not in others]
        return min(
            candidates,
            key=lambda each: (
                self.crowding(self.racks[each], others),
                self.led[each] if leads else 0,
                self.held[each],
                self.led[each],
                each,
            ),
            default=None,
        )


def plan_decommission(racks: Racks, now: Assignment, leaving: int) -> dict[TopicPartition, Replicas]:
    """All replicas of this broker go to others; the one that replaces a preferred leader becomes preferred leader."""
    return _replace(racks, now, now, {leaving}, set(racks) - {leaving})


def plan_move(
    racks: Racks, now: Assignment, partitions: Collection[TopicPartition], allowed: Collection[int]
) -> dict[TopicPartition, Replicas]:
    """These partitions have replicas on these brokers only."""
    unwanted = {broker for tp in partitions for broker in now[tp]} - set(allowed)
    return _replace(racks, now, partitions, unwanted, allowed)


def _replace(
    racks: Racks,
    now: Assignment,
    partitions: Iterable[TopicPartition],
    unwanted: Collection[int],
    allowed: Collection[int],
) -> dict[TopicPartition, Replicas]:
    load = _Load(racks, dict(now))
    for tp in sorted(partitions):
        for at, broker in enumerate(now[tp]):
            if broker not in unwanted:
                continue
            replicas = load.replicas[tp]
            others = [*replicas[:at], *replicas[at + 1 :]]
            found = load.best(others, sorted(allowed), leads=at == 0)
            if found is None:
                raise ImpossibleAssignment(
                    f"{tp} has {len(replicas)} replicas, and there are {len(allowed)} brokers for them: "
                    f"{_listed(allowed)}"
                )
            load.assign(tp, (*replicas[:at], found, *replicas[at + 1 :]))
    return _changed(now, load.replicas)


def plan_replication(
    racks: Racks, now: Assignment, partitions: Iterable[TopicPartition], factor: int
) -> dict[TopicPartition, Replicas]:
    """These partitions get so many replicas. Preferred leaders stay."""
    if not 1 <= factor <= len(racks):
        raise ImpossibleAssignment(
            f"{factor} replicas need {factor} brokers, and there are {len(racks)}: {_listed(racks)}"
        )
    load = _Load(racks, dict(now))
    for tp in sorted(partitions):
        while len(load.replicas[tp]) < factor:
            replicas = load.replicas[tp]
            found = load.best(replicas, sorted(racks))
            if found is None:  # some of its replicas are on brokers that are down
                raise ImpossibleAssignment(
                    f"{tp} has replicas on brokers that are down; there is no {factor}th broker for it"
                )
            load.assign(tp, (*replicas, found))
        while len(load.replicas[tp]) > factor:
            replicas = load.replicas[tp]
            load.assign(tp, tuple(each for each in replicas if each != _least_needed(load, replicas)))
    return _changed(now, load.replicas)


def _least_needed(load: _Load, replicas: Replicas) -> int:
    """Of all but the first: a dead broker, else one in a shared rack, else the one with most replicas."""
    return max(
        replicas[1:],
        key=lambda each: (
            each not in load.racks,
            load.crowding(load.racks.get(each), [other for other in replicas if other != each]),
            load.held[each],
            each,
        ),
    )


def plan_rebalance(
    racks: Racks,
    now: Assignment,
    partitions: Iterable[TopicPartition] | None = None,
    allowed: Collection[int] | None = None,
) -> dict[TopicPartition, Replicas]:
    """Equally many replicas for every broker, give or take one, as far as racks allow; then equally many leaders.

    Only these partitions move, and only between these brokers: all of them if none are named.
    """
    movable = sorted(now if partitions is None else partitions)
    brokers = sorted(racks if allowed is None else allowed)
    load = _Load(racks, dict(now))
    # Counted over the movable partitions alone, a topic is spread evenly even where others are not.
    share = _Load(racks, {tp: load.replicas[tp] for tp in movable})
    while _move_one(share, brokers):
        continue
    while _lead_one(share, brokers):
        continue
    return _changed(now, {**load.replicas, **share.replicas})


def _move_one(load: _Load, brokers: list[int]) -> bool:
    """Move one replica to a broker that has at least two fewer: the sum of their squares falls, so this ends."""
    for source in sorted(brokers, key=lambda each: (-load.held[each], each)):
        for target in sorted(brokers, key=lambda each: (load.held[each], each)):
            if load.held[source] - load.held[target] < 2:
                break
            tp = _movable(load, source, target)
            if tp is not None:
                replicas = load.replicas[tp]
                load.assign(tp, tuple(target if each == source else each for each in replicas))
                return True
    return False


def _movable(load: _Load, source: int, target: int) -> TopicPartition | None:
    """A partition that may move so without its replicas crowding a rack; rather one that the source does not lead."""
    found = None
    for tp, replicas in load.replicas.items():
        if source not in replicas or target in replicas:
            continue
        others = [each for each in replicas if each != source]
        before, after = load.crowding(load.racks[source], others), load.crowding(load.racks[target], others)
        if after > before:
            continue
        if replicas[0] != source:
            return tp
        found = found or tp
    return found


def _lead_one(load: _Load, brokers: list[int]) -> bool:
    """Make another replica of one partition its preferred leader. No records move."""
    for tp, replicas in load.replicas.items():
        first = replicas[0]
        for other in replicas[1:]:
            if first in brokers and other in brokers and load.led[first] - load.led[other] >= 2:
                load.assign(tp, (other, *(each for each in replicas if each != other)))
                return True
    return False


def _changed(now: Assignment, planned: Mapping[TopicPartition, Replicas]) -> dict[TopicPartition, Replicas]:
    return {tp: replicas for tp, replicas in sorted(planned.items()) if replicas != now[tp]}


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"
