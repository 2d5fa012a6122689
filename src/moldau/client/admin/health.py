"""Health of a cluster: offline, under-min-ISR and under-replicated partitions, and brokers that are missing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster import Cluster
from moldau.client.admin.configs import read_topic_configs
from moldau.client.admin.layout import Layout

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Health:
    offline: tuple[TopicPartition, ...]  # no leader: no writes and no reads
    below_min_isr: tuple[TopicPartition, ...]  # acks=all is refused
    under_replicated: tuple[TopicPartition, ...]  # some replica is not in sync
    moving: tuple[TopicPartition, ...]  # being reassigned, which is healthy
    missing: tuple[int, ...]  # brokers that have replicas and are not alive

    @property
    def well(self) -> bool:
        return not (self.offline or self.below_min_isr or self.under_replicated or self.missing)

    def problems(self) -> Iterator[tuple[str, tuple[TopicPartition, ...]]]:
        """The worst first."""
        named = {
            "offline, without a leader": self.offline,
            "below min.insync.replicas": self.below_min_isr,
            "under-replicated": self.under_replicated,
        }
        return ((problem, partitions) for problem, partitions in named.items() if partitions)

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
    settings = read_topic_configs(cluster, layout.topics, (MIN_ISR,))
    least = {topic: int(values[MIN_ISR][0] or 1) for topic, values in settings.items() if MIN_ISR in values}
    return diagnose(layout, least)


def diagnose(layout: Layout, least_in_sync: dict[str, int]) -> Health:
    """Replicas that a reassignment is adding do not count as out of sync."""
    offline, below, under = [], [], []
    for tp, each in sorted(layout.partitions.items()):
        moving = layout.ongoing.get(tp)
        coming = set(moving.adding_replicas) if moving else set()
        if each.leader_id < 0:
            offline.append(tp)
        # As brokers count: no more than there are replicas.
        if len(each.isr_nodes) < min(least_in_sync.get(tp.topic, 1), len(each.replica_nodes)):
            below.append(tp)
        if set(each.replica_nodes) - coming - set(each.isr_nodes):
            under.append(tp)
    return Health(
        tuple(offline), tuple(below), tuple(under), tuple(sorted(layout.ongoing)), tuple(sorted(layout.missing))
    )


def _plain(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
