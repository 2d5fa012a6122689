"""What the group machines are told from outside: the time, the settings, fresh ids, and which topics there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID


class TopicView(NamedTuple):
    """As much of a topic as a group has to know."""

    id: UUID
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()  # of the replicas, by partition; empty where no broker has a rack


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics at one moment; `version` is another whenever they are."""

    version: int = 0
    by_name: Mapping[str, TopicView] = field(default_factory=dict)
    by_id: Mapping[UUID, TopicView] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of group.* and offsets.* that the machines use, by their names; defaults are Kafka's."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    consumer_enabled: bool = True  # "consumer" is among group.coordinator.rebalance.protocols, group.version ≥ 1
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_assignment_interval_ms: int = 1_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Env:
    now: int  # milliseconds since the Unix epoch
    config: GroupConfig
    new_id: Callable[[], str]  # 22 letters, like Kafka's random ids
    topics: Topics
