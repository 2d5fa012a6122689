"""GroupCoordinator: the state machines of groups/ on the runtime, for request handlers and periodic tasks."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from moldau.base.coordination import Caller, Decision, TimerFired
from moldau.base.errors import WireError
from moldau.base.later import NowOrLater
from moldau.base.uuids import text_of
from moldau.broker.call import Call
from moldau.broker.coordinators.partitioning import partition_of
from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.coordinators.shard import Shard
from moldau.broker.fresh import fresh_id
from moldau.broker.internal_topics import OFFSETS
from moldau.broker.settings import BrokerConfig
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView
from moldau.groups.shard import TOPICS_TIMER, GroupCommand, GroupShard
from moldau.metadata.features import GROUP_VERSION, level
from moldau.metadata.image import ClusterImage, Topic
from moldau.replication.appender import Outcome
from moldau.replication.replicas import Replicas

MINUTE_MS = 60_000

R = TypeVar("R")


class GroupCoordinator:
    def __init__(
        self,
        replicas: Replicas,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        now: Callable[[], int],
    ) -> None:
        self._config = config
        self._image = image
        self._now = now
        self._topics_image = ClusterImage()  # the image of `_topics`
        self._topics = Topics()
        self._announced_topics = self._topics  # the topics that groups know
        self._settings: tuple[object, object, GroupConfig] = (None, None, GroupConfig())
        self._runtime = CoordinatorRuntime(OFFSETS, replicas, GroupShard, self._decide, self._loaded, now)
        self._runtime.append_timeout_ms = lambda: config().offsets_commit_timeout_ms

    # ── for handlers ──

    def ask(self, group_id: str, command: GroupCommand, call: Call, refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """The reply to a group's command, now or later."""
        return self._runtime.ask(group_id, command, call.caller(), refused)

    def read(self, group_id: str, query: Callable[[GroupShard], R], refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """A view of the shard of a group, now or later."""
        return self._runtime.read(group_id, query, refused)

    def read_all(self, query: Callable[[GroupShard], R], refused: Callable[[WireError], R]) -> list[NowOrLater[R]]:
        """A view of each shard of this broker, now or later; refused for each that is still loading."""
        return self._runtime.read_all(query, refused)

    def env(self) -> GroupEnvironment:
        return self._env(self._now())

    # ── for transactions ──

    def partition_of(self, group_id: str) -> int | None:
        """The partition of the offsets topic that has a group's commits; None before the topic is created."""
        count = self._runtime.partitions
        return partition_of(group_id, count) if count else None

    def takes_markers(self, index: int) -> bool:
        """Whether this partition's shard is loaded: an earlier marker could be missed, or applied twice."""
        return not isinstance(self._runtime.at(index), WireError)

    def shard_at(self, index: int) -> Shard[GroupShard] | WireError:
        """The shard of a partition of the offsets topic, or why there is none now."""
        return self._runtime.at(index)

    def marker_written(
        self,
        index: int,
        producer_id: int,
        commit: bool,
        outcome: NowOrLater[Outcome],
        done: Callable[[WireError], None],
    ) -> None:
        """Apply a marker that was just appended to this partition of the offsets topic."""
        shard = self._runtime.at(index)
        if isinstance(shard, WireError):
            done(WireError.NOT_LEADER_OR_FOLLOWER)
        else:
            self._runtime.marker_appended(shard, producer_id, commit, outcome, done)

    # ── for the node ──

    def start(self) -> None:
        self._runtime.start()

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._runtime.follow(old, new)
        topics = self._topics_of(new)  # a request since may have computed them
        if topics is not self._announced_topics:
            self._announced_topics = topics
            for shard in self._runtime.loaded_shards():
                self._runtime.fire(shard, TOPICS_TIMER, self._now())

    async def expire(self) -> None:
        """Delete expired offsets and groups, a batch at a time; requests are served in between."""
        for shard in self._runtime.loaded_shards():
            while self._runtime.is_open(shard):
                decision = self._runtime.run(shard, lambda machine: machine.expire(self.env()))
                if decision is None or not decision.records:
                    break
                await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def stop(self) -> None:
        await self._runtime.stop()

    # ── inputs of the state machines ──

    def _decide(self, machine: GroupShard, command: GroupCommand | TimerFired, caller: Caller, now: int) -> Decision:
        return machine.decide(command, caller, self._env(now))

    def _loaded(self, machine: GroupShard, now: int) -> Decision:
        return machine.loaded(self._env(now))

    def _env(self, now: int) -> GroupEnvironment:
        image, config = self._image(), self._config()
        if config is not self._settings[0] or image.features is not self._settings[1]:
            self._settings = config, image.features, group_config(config, level(image, GROUP_VERSION))
        return GroupEnvironment(now, self._settings[2], _new_id, self._topics_of(image), image.group_configs)

    def _topics_of(self, image: ClusterImage) -> Topics:
        """The topics as groups see them: changes of leaders and ISRs make no difference."""
        if image.topics is not self._topics_image.topics or image.brokers is not self._topics_image.brokers:
            self._topics = topics_of(image, self._topics_image, self._topics)
            self._topics_image = image
        return self._topics


def _new_id() -> str:
    return text_of(fresh_id())


def group_config(config: BrokerConfig, group_version: int) -> GroupConfig:
    return GroupConfig(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        consumer_enabled=group_version > 0 and "consumer" in config.group_coordinator_rebalance_protocols,
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_max_size=config.group_consumer_max_size,
        consumer_assignors=config.group_consumer_assignors,
        consumer_migration_policy=config.group_consumer_migration_policy.lower(),
        consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        consumer_min_session_timeout_ms=config.group_consumer_min_session_timeout_ms,
        consumer_max_session_timeout_ms=config.group_consumer_max_session_timeout_ms,
        consumer_min_heartbeat_interval_ms=config.group_consumer_min_heartbeat_interval_ms,
        consumer_max_heartbeat_interval_ms=config.group_consumer_max_heartbeat_interval_ms,
        consumer_min_assignment_interval_ms=config.group_consumer_min_assignment_interval_ms,
        consumer_max_assignment_interval_ms=config.group_consumer_max_assignment_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
    )


def topics_of(image: ClusterImage, seen: ClusterImage, known: Topics) -> Topics:
    """The topics of an image; `known`, those of the image `seen`, if nothing changed for groups."""
    racks, old_racks = _racks(image), _racks(seen)
    views: dict[str, TopicView] = {}
    for name, topic in image.topics.items():
        same = racks == old_racks and seen.topics.get(name) is topic
        view = known.by_name.get(name) if same else None
        views[name] = view or _view(topic, racks)
    if views == known.by_name and known.version:
        return known
    return Topics(image.version, views, {view.id: view for view in views.values()})


def _racks(image: ClusterImage) -> dict[int, str]:
    return {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}


def _view(topic: Topic, racks: dict[int, str]) -> TopicView:
    partition_racks: tuple[frozenset[str], ...] = ()
    if racks:
        partition_racks = tuple(
            frozenset(racks[replica] for replica in partition.replicas if replica in racks)
            for partition in topic.partitions
        )
    return TopicView(topic.id, topic.name, len(topic.partitions), partition_racks)
