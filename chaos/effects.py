"""Effects of a fault on a cluster, by the metadata of the brokers that it does not hit.

A fault without effect proves nothing.
"""

from typing import Any, NamedTuple, Protocol

from moldau.testing.broker import BrokerFailed

Place = tuple[str, int]


class MetadataSource(Protocol):
    """A cluster that returns the `MetadataResponse` of a broker that should be up to date."""

    def metadata(self) -> Any: ...


class View(NamedTuple):
    """Leader and in-sync replicas of each partition of the watched topics."""

    leaders: dict[Place, int]
    in_sync: dict[Place, frozenset[int]]


class Witness:
    """Compares the metadata with that from before the fault."""

    def __init__(self, cluster: MetadataSource, topics: dict[str, int], brokers: list[int]) -> None:
        self._cluster = cluster
        self._topics = topics
        self._brokers = frozenset(brokers)
        self._before = self._view()
        self.moved: set[Place] = set()  # partitions with a new leader
        self.behind: set[Place] = set()  # partitions that had a replica out of sync
        self.silent = False  # no broker answered

    @property
    def struck(self) -> bool:
        return bool(self.moved or self.behind or self.silent)

    def look(self) -> bool:
        """Fetch metadata; return whether the fault has had any effect so far."""
        now, before = self._view(), self._before
        if now is None:
            self.silent = True
        elif before is not None:
            self.moved |= {place for place, leader in now.leaders.items() if leader != before.leaders.get(place)}
            self.behind |= {place for place, brokers in now.in_sync.items() if brokers != self._brokers}
        return self.struck

    def _view(self) -> View | None:
        try:
            told = self._cluster.metadata()
        except (OSError, BrokerFailed):
            return None
        rows = [(row.name, each) for row in told.topics for each in row.partitions if row.name in self._topics]
        return View(
            {(topic, each.partition_index): each.leader_id for topic, each in rows},
            {(topic, each.partition_index): frozenset(each.isr_nodes) for topic, each in rows},
        )
