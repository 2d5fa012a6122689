"""Whether a cluster is well: what is offline, behind, or one failure away from refusing writes. Prints nothing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from moldau.tools.places import Place
from moldau.tools.replica_admin import Layout, read_topic_settings
from moldau.tools.requests import Cluster

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Health:
    offline: tuple[Place, ...]  # no leader: nobody can write or read
    below_min_isr: tuple[Place, ...]  # acks=all is refused
    under_replicated: tuple[Place, ...]  # some replica is not in sync
    moving: tuple[Place, ...]  # being reassigned, which is no ailment
    missing: tuple[int, ...]  # brokers that have replicas and are not there

    @property
    def well(self) -> bool:
        return not (self.offline or self.below_min_isr or self.under_replicated or self.missing)

    def problems(self) -> Iterator[tuple[str, tuple[Place, ...]]]:
        """The worst first."""
        named = {
            "offline, without a leader": self.offline,
            "below min.insync.replicas": self.below_min_isr,
            "under-replicated": self.under_replicated,
        }
        return ((what, places) for what, places in named.items() if places)

    def document(self) -> dict[str, Any]:
        return {
            "well": self.well,
            "offline": _plain(self.offline),
            "below_min_isr": _plain(self.below_min_isr),
            "under_replicated": _plain(self.under_replicated),
            "moving": _plain(self.moving),
            "missing_brokers": list(self.missing),
        }


def examine(cluster: Cluster, layout: Layout) -> Health:
    settings = read_topic_settings(cluster, {place.topic for place in layout.partitions}, (MIN_ISR,))
    least = {topic: int(values[MIN_ISR][0] or 1) for topic, values in settings.items() if MIN_ISR in values}
    return diagnose(layout, least)


def diagnose(layout: Layout, least_in_sync: dict[str, int]) -> Health:
    """Replicas that a reassignment only just brings are not missed yet."""
    offline, below, under = [], [], []
    for place, each in sorted(layout.partitions.items()):
        moving = layout.ongoing.get(place)
        coming = set(moving.adding_replicas) if moving else set()
        if each.leader_id < 0:
            offline.append(place)
        # As brokers count: no more than there are replicas.
        if len(each.isr_nodes) < min(least_in_sync.get(place.topic, 1), len(each.replica_nodes)):
            below.append(place)
        if set(each.replica_nodes) - coming - set(each.isr_nodes):
            under.append(place)
    return Health(
        tuple(offline), tuple(below), tuple(under), tuple(sorted(layout.ongoing)), tuple(sorted(layout.missing))
    )


def _plain(places: Iterable[Place]) -> list[dict[str, Any]]:
    return [{"topic": place.topic, "partition": place.partition} for place in places]
