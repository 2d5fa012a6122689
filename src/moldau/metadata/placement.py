"""Replica placement for new partitions, over brokers and racks. Pure: the random start is an argument.

Leaders go round the brokers: partition i starts at broker (start + i) mod N, so that no broker leads more than one
partition more than another. Followers are the brokers after it, (i + j) mod N, shifted by one with every full round,
so that a failed broker's load is spread. A rack gets a second replica only when every rack has one. Brokers of
different racks alternate in this order: otherwise the first broker of a rack would follow all brokers of the rack
before it, and get many times the replicas of its neighbours.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest

from moldau.metadata.image import Broker


def place(
    brokers: Iterable[Broker], partitions: int, replication: int, *, start: int = 0, first_index: int = 0
) -> list[tuple[int, ...]]:
    """Replicas of the partitions `first_index` to `first_index + partitions - 1`; a partition's first one leads.

    `replication` must be between 1 and the number of brokers.
    """
    ordered = _alternating(sorted(brokers, key=lambda broker: broker.id))
    if not 1 <= replication <= len(ordered):
        raise ValueError(f"{replication} replicas on {len(ordered)} brokers")
    indexes = range(first_index, first_index + partitions)
    return [_replicas(ordered, start + index, replication) for index in indexes]


def _alternating(brokers: Sequence[Broker]) -> list[Broker]:
    racks: dict[str | None, list[Broker]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker)
    return [broker for broker in chain.from_iterable(zip_longest(*racks.values())) if broker is not None]


def _replicas(brokers: Sequence[Broker], turn: int, replication: int) -> tuple[int, ...]:
    rounds, first = divmod(turn, len(brokers))
    followers = [*brokers[first + 1 :], *brokers[:first]]
    shift = rounds % len(followers) if followers else 0
    candidates = [brokers[first], *followers[shift:], *followers[:shift]]
    return tuple(broker.id for broker in _spread_over_racks(candidates, replication))


def _spread_over_racks(candidates: Sequence[Broker], count: int) -> list[Broker]:
    """The first candidate, then always the next one of a rack with the fewest replicas."""
    chosen: list[Broker] = []
    used: dict[str | None, int] = {}
    remaining = list(candidates)
    while len(chosen) < count:
        broker = min(remaining, key=lambda each: used.get(each.rack, 0))  # min takes the first among equals
        remaining.remove(broker)
        chosen.append(broker)
        used[broker.rack] = used.get(broker.rack, 0) + 1
    return chosen
