"""Plans of who should have which replica: pure arithmetic over what a cluster has now. Asks nobody, moves nothing.

Every plan moves as little as it can: a replica stays where it is unless the plan is about it. New places are chosen so
that a partition's replicas spread over racks first, and every broker has as many replicas and leads as many second.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from moldau.tools.places import Place

Racks = Mapping[int, str | None]  # of every broker that takes replicas
Replicas = tuple[int, ...]
Assignment = Mapping[Place, Replicas]


class Impossible(Exception):
    """There are not enough brokers; the text is one clear line."""


@dataclass(slots=True)
class _Load:
    """A plan in the making: who has what, and how much."""

    racks: Racks
    replicas: dict[Place, Replicas]
    held: Counter[int] = field(default_factory=Counter)
    led: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for replicas in self.replicas.values():
            self._count(replicas, 1)

    def become(self, place: Place, replicas: Replicas) -> None:
        self._count(self.replicas[place], -1)
        self._count(replicas, 1)
        self.replicas[place] = replicas

    def _count(self, replicas: Replicas, sign: int) -> None:
        for broker in replicas:
            self.held[broker] += sign
        for broker in replicas[:1]:
            self.led[broker] += sign

    def crowding(self, rack: str | None, others: Iterable[int]) -> int:
        """How many of the others are in this rack. Brokers that name no rack are each in one of their own."""
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


def plan_decommission(racks: Racks, now: Assignment, leaving: int) -> dict[Place, Replicas]:
    """Everything that this broker has goes to others; what it preferably led, its successor preferably leads."""
    return _replace(racks, now, now, {leaving}, set(racks) - {leaving})


def plan_move(
    racks: Racks, now: Assignment, places: Collection[Place], allowed: Collection[int]
) -> dict[Place, Replicas]:
    """These partitions are on these brokers alone afterwards."""
    unwanted = {broker for place in places for broker in now[place]} - set(allowed)
    return _replace(racks, now, places, unwanted, allowed)


def _replace(
    racks: Racks, now: Assignment, places: Iterable[Place], unwanted: Collection[int], allowed: Collection[int]
) -> dict[Place, Replicas]:
    load = _Load(racks, dict(now))
    for place in sorted(places):
        for at, broker in enumerate(now[place]):
            if broker not in unwanted:
                continue
            replicas = load.replicas[place]
            others = [*replicas[:at], *replicas[at + 1 :]]
            found = load.best(others, sorted(allowed), leads=at == 0)
            if found is None:
                raise Impossible(
                    f"{place} has {len(replicas)} replicas, and there are {len(allowed)} brokers to have them: "
                    f"{_listed(allowed)}"
                )
            load.become(place, (*replicas[:at], found, *replicas[at + 1 :]))
    return _changed(now, load.replicas)


def plan_replication(racks: Racks, now: Assignment, places: Iterable[Place], factor: int) -> dict[Place, Replicas]:
    """These partitions have so many replicas afterwards. Who preferably leads stays."""
    if not 1 <= factor <= len(racks):
        raise Impossible(f"{factor} replicas need {factor} brokers, and there are {len(racks)}: {_listed(racks)}")
    load = _Load(racks, dict(now))
    for place in sorted(places):
        while len(load.replicas[place]) < factor:
            replicas = load.replicas[place]
            found = load.best(replicas, sorted(racks))
            if found is None:  # some of its replicas are on brokers that are gone
                raise Impossible(f"{place} has replicas on brokers that are down; there is no {factor}th broker for it")
            load.become(place, (*replicas, found))
        while len(load.replicas[place]) > factor:
            replicas = load.replicas[place]
            load.become(place, tuple(each for each in replicas if each != _least_needed(load, replicas)))
    return _changed(now, load.replicas)


def _least_needed(load: _Load, replicas: Replicas) -> int:
    """Of all but the first: one that is gone, else one whose rack has another, else the one with most to do."""
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
    racks: Racks, now: Assignment, places: Iterable[Place] | None = None, allowed: Collection[int] | None = None
) -> dict[Place, Replicas]:
    """Equally many replicas for every broker, give or take one, as far as racks allow; then equally many to lead.

    Only these partitions move, and only between these brokers: all of them if none are named.
    """
    movable = sorted(now if places is None else places)
    brokers = sorted(racks if allowed is None else allowed)
    load = _Load(racks, dict(now))
    # Counted over the movable partitions alone, a topic is spread evenly even where others are not.
    share = _Load(racks, {place: load.replicas[place] for place in movable})
    while _move_one(share, brokers):
        continue
    while _lead_one(share, brokers):
        continue
    return _changed(now, {**load.replicas, **share.replicas})


def _move_one(load: _Load, brokers: list[int]) -> bool:
    """Moves one replica to a broker that has at least two fewer: the sum of their squares falls, so this ends."""
    for source in sorted(brokers, key=lambda each: (-load.held[each], each)):
        for target in sorted(brokers, key=lambda each: (load.held[each], each)):
            if load.held[source] - load.held[target] < 2:
                break
            place = _movable(load, source, target)
            if place is not None:
                replicas = load.replicas[place]
                load.become(place, tuple(target if each == source else each for each in replicas))
                return True
    return False


def _movable(load: _Load, source: int, target: int) -> Place | None:
    """A partition that may move so without its replicas crowding a rack; rather one that the source does not lead."""
    found = None
    for place, replicas in load.replicas.items():
        if source not in replicas or target in replicas:
            continue
        others = [each for each in replicas if each != source]
        before, after = load.crowding(load.racks[source], others), load.crowding(load.racks[target], others)
        if after > before:
            continue
        if replicas[0] != source:
            return place
        found = found or place
    return found


def _lead_one(load: _Load, brokers: list[int]) -> bool:
    """Has one partition preferably led by another of its replicas. No records move."""
    for place, replicas in load.replicas.items():
        first = replicas[0]
        for other in replicas[1:]:
            if first in brokers and other in brokers and load.led[first] - load.led[other] >= 2:
                load.become(place, (other, *(each for each in replicas if each != other)))
                return True
    return False


def _changed(now: Assignment, planned: Mapping[Place, Replicas]) -> dict[Place, Replicas]:
    return {place: replicas for place, replicas in sorted(planned.items()) if replicas != now[place]}


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"
