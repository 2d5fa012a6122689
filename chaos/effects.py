"""What a fault does to a cluster, as those brokers tell it whom it leaves alone.

A fault that does nothing proves nothing.
"""

from typing import Any, NamedTuple, Protocol

from moldau.testing.broker import BrokerFailed

Place = tuple[str, int]


class Asked(Protocol):
    """What is asked of a cluster: `MetadataResponse`, of somebody who can be expected to know."""

    def metadata(self) -> Any: ...


class View(NamedTuple):
    """Of partitions of the topics in question: who leads each, who is in sync."""

    leaders: dict[Place, int]
    in_sync: dict[Place, frozenset[int]]


class Witness:
    """Compares what is with what was when the fault began, whenever it is told to look."""

    def __init__(self, cluster: Asked, topics: dict[str, int], brokers: list[int]) -> None:
        self._cluster = cluster
        self._topics = topics
        self._brokers = frozenset(brokers)
        self._before = self._view()
        self.moved: set[Place] = set()  # partitions that got another leader
        self.behind: set[Place] = set()  # those that had a replica out of sync
        self.silent = False  # there was nobody to ask

    @property
    def struck(self) -> bool:
        return bool(self.moved or self.behind or self.silent)

    def look(self) -> bool:
        """Whether the fault has done anything yet."""
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
