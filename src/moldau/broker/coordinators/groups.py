"""The group coordinator: the group machines of groups/ on the runtime. Handlers and chores come here."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from moldau.base.coordination import Caller, Decision
from moldau.base.errors import WireError
from moldau.base.later import NowOrLater
from moldau.base.uuids import text_of
from moldau.broker.call import Call
from moldau.broker.coordinators.placing import partition_of
from moldau.broker.coordinators.runtime import Runtime
from moldau.broker.coordinators.shard import Shard
from moldau.broker.fresh import fresh_id
from moldau.broker.internal_topics import OFFSETS
from moldau.broker.settings import BrokerConfig
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView
from moldau.groups.shard import TOPICS_TIMER, GroupShard
from moldau.metadata.features import GROUP_VERSION, level
from moldau.metadata.image import ClusterImage, Topic
from moldau.replication.partition import Outcome
from moldau.replication.replicas import Replicas

MINUTE_MS = 60_000

R = TypeVar("R")


class Groups:
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
        self._seen = ClusterImage()  # the image that the topics below are of
        self._topics = Topics()
        self._told = self._topics  # those that groups were last told of
        self._settings: tuple[object, object, GroupConfig] = (None, None, GroupConfig())
        self._runtime = Runtime(OFFSETS, replicas, GroupShard, self._decide, self._loaded, now)
        self._runtime.patience_ms = lambda: config().offsets_commit_timeout_ms

    # ── for handlers ──

    def ask(self, group_id: str, command: Any, call: Call, refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """The reply to a command for a group, now or later."""
        return self._runtime.ask(group_id, command, call.caller(), refused)

    def read(self, group_id: str, look: Callable[[GroupShard], R], refused: Callable[[WireError], R]) -> NowOrLater[R]:
        """A view of the shard of a group, now or later."""
        return self._runtime.read(group_id, look, refused)

    def read_all(self, look: Callable[[GroupShard], R], refused: Callable[[WireError], R]) -> list[NowOrLater[R]]:
        """A view of each shard of this broker, now or later; refused for each that is still loading."""
        return self._runtime.read_all(look, refused)

    def env(self) -> GroupEnvironment:
        return self._env(self._now())

    # ── for transactions ──

    def partition_of(self, group_id: str) -> int | None:
        """The partition of the offsets topic that a group's commits go to; None before there is one."""
        count = self._runtime.partitions
        return partition_of(group_id, count) if count else None

    def takes_markers(self, index: int) -> bool:
        """Whether this partition's shard is loaded: a marker that is written before could be missed, or seen twice."""
        return not isinstance(self._runtime.at(index), WireError)

    def shard_at(self, index: int) -> Shard[GroupShard] | WireError:
        """The shard of a partition of the offsets topic, or why it cannot be asked now."""
        return self._runtime.at(index)

    def marker_written(
        self,
        index: int,
        producer_id: int,
        commit: bool,
        outcome: NowOrLater[Outcome],
        told: Callable[[WireError], None],
    ) -> None:
        """A transaction that commits offsets has ended: its marker was appended to this partition just now."""
        shard = self._runtime.at(index)
        if isinstance(shard, WireError):
            told(WireError.NOT_LEADER_OR_FOLLOWER)
        else:
            self._runtime.marked(shard, producer_id, commit, outcome, told)

    # ── for the node ──

    def start(self) -> None:
        self._runtime.start()

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._runtime.follow(old, new)
        topics = self._topics_of(new)  # they may be known already: whoever was sent away meanwhile was answered by them
        if topics is not self._told:
            self._told = topics
            for shard in self._runtime.opened():
                self._runtime.wake(shard, TOPICS_TIMER, self._now())

    async def expire(self) -> None:
        """Forget offsets and groups whose time is over: a batch of them at a time, and others come in between."""
        for shard in self._runtime.opened():
            while self._runtime.has(shard):
                decision = shard.machine.expire(self.env())
                if not decision.records or not self._runtime.carry_out(shard, decision):
                    break
                await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def stop(self) -> None:
        await self._runtime.stop()

    # ── what the machines are told ──

    def _decide(self, machine: GroupShard, command: Any, caller: Caller, now: int) -> Decision:
        return machine.decide(command, caller, self._env(now))

    def _loaded(self, machine: GroupShard, now: int) -> Decision:
        return machine.loaded(self._env(now))

    def _env(self, now: int) -> GroupEnvironment:
        image, config = self._image(), self._config()
        if config is not self._settings[0] or image.features is not self._settings[1]:
            self._settings = config, image.features, group_config(config, level(image, GROUP_VERSION))
        return GroupEnvironment(now, self._settings[2], _new_id, self._topics_of(image), image.group_configs)

    def _topics_of(self, image: ClusterImage) -> Topics:
        """Leaders and replicas in sync come and go all the time. Groups hear of what concerns them alone."""
        if image.topics is not self._seen.topics or image.brokers is not self._seen.brokers:
            self._topics = topics_of(image, self._seen, self._topics)
            self._seen = image
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
    """The topics of an image; the same as before if to groups they are. `known` are those of the image `seen`."""
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
    places: tuple[frozenset[str], ...] = ()
    if racks:
        places = tuple(
            frozenset(racks[replica] for replica in partition.replicas if replica in racks)
            for partition in topic.partitions
        )
    return TopicView(topic.id, topic.name, len(topic.partitions), places)
