"""The inputs of a group decision besides the command: time, settings, new ids and topics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from moldau.groups.settings import GROUP, bounds_of


class TopicView(NamedTuple):
    """A topic as groups see it."""

    id: UUID
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()  # of the replicas, by partition; empty without racks


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics; `version` changes whenever they do."""

    version: int = 0
    by_name: Mapping[str, TopicView] = field(default_factory=dict)
    by_id: Mapping[UUID, TopicView] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings group.* and offsets.* that decisions use; defaults are Kafka's."""

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
    consumer_min_session_timeout_ms: int = 45_000  # bounds of the settings of a single group
    consumer_max_session_timeout_ms: int = 60_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_min_assignment_interval_ms: int = 0
    consumer_max_assignment_interval_ms: int = 15_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000

    def with_overrides(self, overrides: Mapping[str, str]) -> "GroupConfig":
        """The config of a group with these settings; values outside the broker's bounds are clamped, as in Kafka."""
        chosen: dict[str, int] = {}
        for setting in GROUP:
            value = setting.parse(overrides[setting.name]) if setting.name in overrides else None
            if isinstance(value, int):
                low, high = (getattr(self, _field(bound.removeprefix("group."))) for bound in bounds_of(setting.name))
                chosen[_field(setting.name)] = max(low, min(value, high))
        return replace(self, **chosen)  # type: ignore[arg-type]  # all are integers; a test sets each


@dataclass(frozen=True, slots=True)
class GroupEnvironment:
    now: int  # milliseconds since the Unix epoch
    config: GroupConfig
    new_id: Callable[[], str]  # base64 of a random UUID, as in Kafka
    topics: Topics
    overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # settings of groups, by group id

    def config_of(self, group_id: str) -> GroupConfig:
        overrides = self.overrides.get(group_id)
        return self.config.with_overrides(overrides) if overrides else self.config


def _field(name: str) -> str:
    return name.replace(".", "_")
