"""One group of the consumer protocol without a broker: commands in, responses out, a clock that the test moves.

Every record is encoded and decoded, so a test sees what replay of the log would give.
"""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from moldau.base.coordination import Caller, Decision, Record, TimerKey
from moldau.groups import records
from moldau.groups.consumer import heartbeat as consumer_heartbeat
from moldau.groups.consumer.group import ConsumerGroup, RegexProgressChanged, RejoinChanged, apply_change
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)

GROUP = "g"


def topic_id(name: str) -> UUID:
    return uuid5(NAMESPACE_OID, name)


def topics(version: int = 1, **partitions: int) -> Topics:
    views = [TopicView(topic_id(name), name, count) for name, count in partitions.items()]
    return Topics(version, {each.name: each for each in views}, {each.id: each for each in views})


def decoded(record: Record) -> Record:
    found = records.decode(*records.encode(record))
    assert found == record
    return found


@dataclass
class OneGroup:
    topics: Topics = field(default_factory=lambda: topics(t=4))
    config: GroupConfig = field(default_factory=GroupConfig)
    own: dict[str, dict[str, str]] = field(default_factory=dict)  # group configs, by group
    now: int = 1_000_000
    group: ConsumerGroup | None = None
    log: list[Record] = field(default_factory=list)
    timers: dict[TimerKey, int] = field(default_factory=dict)
    ids: int = 0

    @property
    def env(self) -> GroupEnvironment:
        return GroupEnvironment(self.now, self.config, self.new_id, self.topics, self.own)

    def new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"

    def take(self, decision: Decision) -> Any:
        """Apply a decision as the runtime does; return the last response, if any."""
        for record in decision.records:
            self.log.append(decoded(record))
            self.group = apply_change(self.group, record)
        for change in decision.transient:
            assert isinstance(change, RejoinChanged | RegexProgressChanged)
            self.group = apply_change(self.group, change)
        for timer in decision.timers:
            self.timers.pop(timer.key, None)
            if timer.at is not None:
                self.timers[timer.key] = timer.at
        return decision.replies[-1][1] if decision.replies else None

    def replayed(self) -> ConsumerGroup | None:
        group: ConsumerGroup | None = None
        for record in self.log:
            group = apply_change(group, record)
        return group

    def restart(self) -> None:
        self.group, self.timers = self.replayed(), {}
        if self.group is not None:
            self.take(consumer_heartbeat.loaded(self.group, self.env))

    def become(self, **partitions: int) -> None:
        """Replace the topics."""
        self.topics = topics(self.topics.version + 1, **partitions)
        if self.group is not None:
            self.take(consumer_heartbeat.topics_changed(self.group, self.env))

    def wait(self, ms: int) -> None:
        end = self.now + ms
        while self.timers:
            key = min(self.timers, key=self.timers.__getitem__)
            if self.timers[key] > end:
                break
            self.now = self.timers.pop(key)
            if self.group is not None:
                self.take(consumer_heartbeat.on_timer(self.group, key, self.env))
        self.now = end

    def beat(self, member: str, epoch: int, *, version: int = 1, **asked: Any) -> ConsumerGroupHeartbeatResponse:
        owned = asked.pop("owned", None)
        if owned is not None:
            asked["topic_partitions"] = tuple(
                ConsumerGroupTopicPartitions(topic_id=topic_id(name), partitions=tuple(each))
                for name, each in owned.items()
            )
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=epoch, **asked)
        caller = Caller("token", version, f"client-{member}", "/127.0.0.1")
        response: ConsumerGroupHeartbeatResponse = self.take(
            consumer_heartbeat.heartbeat(self.group, request, caller, self.env)
        )
        return response

    def join(self, member: str, *names: str, **asked: Any) -> ConsumerGroupHeartbeatResponse:
        defaults: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "owned": {},
            "subscribed_topic_names": names or ("t",),
        }
        return self.beat(member, 0, **defaults | asked)


@dataclass
class Client:
    """A consumer that accepts assignments and revocations at once."""

    world: OneGroup
    id: str
    epoch: int = 0
    owned: dict[str, set[int]] = field(default_factory=dict)

    def join(self, *names: str, **asked: Any) -> ConsumerGroupHeartbeatResponse:
        return self._take(self.world.join(self.id, *names, **asked))

    def beat(self, **asked: Any) -> ConsumerGroupHeartbeatResponse:
        return self._take(self.world.beat(self.id, self.epoch, **asked))

    def acknowledge(self) -> ConsumerGroupHeartbeatResponse:
        return self.beat(owned=self.owned)

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        if response.error_code == 0:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                names = {each.id: each.name for each in self.world.topics.by_name.values()}
                self.owned = {
                    names[each.topic_id]: set(each.partitions)
                    for each in response.assignment.topic_partitions
                    if each.topic_id in names
                }
        return response


def settle(clients: list[Client], rounds: int = 12) -> None:
    """Send heartbeats until every member owns its target assignment."""
    for _ in range(rounds):
        clients[0].world.now += 5000
        for client in clients:
            client.acknowledge()


def with_config(world: OneGroup, **changes: Any) -> None:
    world.config = replace(world.config, **changes)
