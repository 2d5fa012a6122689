"""Simulated consumers and a coordinator without a broker: requests, assignments and lost responses.

`Coordinator` executes decisions as a broker does. A client has at most one request in flight. If the response is lost
it sends its full state again, as real clients do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from moldau.base.coordination import INTERNAL_CALLER, Caller, Decision, TimerFired, TimerKey
from moldau.base.errors import WireError
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView
from moldau.groups.shard import GroupShard
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupTopicPartitions
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest
from moldau.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest

GROUP = "g"
Owned = dict[str, frozenset[int]]


def topic_id(name: str) -> UUID:
    return uuid5(NAMESPACE_OID, name)


class Coordinator:
    """A shard, its log, its timers and its clock."""

    def __init__(self, config: GroupConfig, counts: dict[str, int]) -> None:
        self.config = config
        self.shard = GroupShard()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.now = 1_000_000
        self.ids = 0
        self.append_fails = False
        self.topics = Topics()
        self.set_topics(counts)

    def set_topics(self, counts: dict[str, int]) -> None:
        views = [TopicView(topic_id(name), name, count) for name, count in counts.items()]
        by_name, by_id = {each.name: each for each in views}, {each.id: each for each in views}
        self.topics = Topics(self.topics.version + 1, by_name, by_id)
        self.execute(self.shard.topics_changed(self.env()))

    def env(self) -> GroupEnvironment:
        return GroupEnvironment(self.now, self.config, self._new_id, self.topics)

    def _new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def ask(self, command: Any, version: int, client_id: str, reply: Callable[[Any], None]) -> None:
        before = dict(self.shard.groups)
        decision = self.shard.decide(command, Caller(reply, version, client_id, "/127.0.0.1"), self.env())
        assert self.shard.groups == before, "deciding changed something"
        self.execute(decision)

    def execute(self, decision: Decision) -> None:
        if self.append_fails and decision.records:
            self.append_fails = False
            return  # to the client this is a lost response
        for record in decision.records:
            self.log.append(self.shard.encode(record))
            self.shard.apply(record)
        for change in decision.transient:
            self.shard.apply(change)
        for timer in decision.timers:
            self.timers.pop(timer.key, None)
            if timer.at is not None:
                self.timers[timer.key] = timer.at
        for reply, response in decision.replies:
            assert callable(reply)
            reply(response)

    def wait(self, ms: int) -> None:
        until = self.now + ms
        while due := min(((at, key) for key, at in self.timers.items() if at <= until), default=None):
            self.now, key = max(self.now, due[0]), due[1]
            del self.timers[key]
            self.execute(self.shard.decide(TimerFired(key), INTERNAL_CALLER, self.env()))
        self.now = until

    def restart(self) -> None:
        self.shard = self.replayed()
        self.timers = {}
        self.execute(self.shard.loaded(self.env()))

    def replayed(self) -> GroupShard:
        shard = GroupShard()
        for key, value in self.log:
            shard.replay(key, value)
        return shard


@dataclass(eq=False)
class ConsumerClient:
    """Uses the consumer protocol."""

    coordinator: Coordinator
    id: str
    topics: tuple[str, ...] = ("t",)
    regex: str = ""
    instance: str | None = None
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    told: Owned | None = None  # its target assignment, which it adopts in one of its next steps
    busy: bool = False
    says_all: bool = True
    lose_reply: bool = False
    gone: bool = False

    @property
    def member_id(self) -> str:
        return self.id

    def step(self) -> None:
        if self.told is not None and not self.busy:
            self.owned, self.told = self.told, None
        joins = self.epoch == 0
        whole = joins or self.says_all
        owned = tuple(
            ConsumerGroupTopicPartitions(topic_id=topic_id(name), partitions=tuple(sorted(each)))
            for name, each in self.owned.items()
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=30_000 if whole else -1,
            subscribed_topic_names=self.topics if whole else None,
            subscribed_topic_regex=self.regex if whole else None,
            topic_partitions=owned,
        )
        self.says_all = True  # until a response arrives
        self.coordinator.ask(request, 1, self.id, self._heard)

    def _heard(self, response: Any) -> None:
        if self.lose_reply:
            return
        if response.error_code in (WireError.UNKNOWN_MEMBER_ID, WireError.FENCED_MEMBER_EPOCH):
            self.epoch, self.owned, self.told = 0, {}, None
        elif response.error_code == WireError.NONE:
            self.epoch, self.says_all = response.member_epoch, False
            if response.assignment is not None:
                names = {each.id: each.name for each in self.coordinator.topics.by_name.values()}
                self.told = {
                    names[each.topic_id]: frozenset(each.partitions)
                    for each in response.assignment.topic_partitions
                    if each.topic_id in names
                }

    def leave(self, epoch: int = -1) -> None:
        self.owned, self.gone = {}, True
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.id, member_epoch=epoch, instance_id=self.instance
        )
        self.coordinator.ask(request, 1, self.id, lambda response: None)


@dataclass(eq=False)
class ClassicClient:
    """Uses the classic protocol with eager rebalancing: it revokes everything before it joins."""

    coordinator: Coordinator
    id: str
    topics: tuple[str, ...] = ("t",)
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: Owned = field(default_factory=dict)
    joined_topics: tuple[str, ...] = ()  # the subscription of its last JoinGroup
    next: str = "join"
    assignments: tuple[SyncGroupAssignment, ...] = ()  # if it is the group leader
    asked: int = 0  # requests so far: responses to earlier ones are ignored
    waiting: bool = False
    busy: bool = False
    lose_reply: bool = False
    gone: bool = False

    def step(self) -> None:
        if self.waiting:
            return
        getattr(self, f"_{self.next}")()

    def give_up_waiting(self) -> None:
        self.waiting, self.next = False, "join"
        self.asked += 1

    def _ask(self, command: Any, version: int, heard: Callable[[Any], None]) -> None:
        self.asked += 1
        number, self.waiting = self.asked, True

        def reply(response: Any) -> None:
            if number != self.asked or self.gone:
                return
            self.waiting = False
            if self.lose_reply:
                self.next = "join" if self.next == "sync" else self.next
            else:
                heard(response)

        self.coordinator.ask(command, version, self.id, reply)

    def _join(self) -> None:
        self.owned = {}
        self.joined_topics = self.topics
        metadata = write_subscription(ConsumerProtocolSubscription(topics=self.topics))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=metadata),),
        )
        self._ask(request, 9, self._joined)

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == WireError.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == WireError.NONE:
            self.member_id, self.generation, self.next = response.member_id, response.generation_id, "sync"
            self.assignments = self._assign(response) if response.leader == self.member_id else ()
        else:
            self._failed(response.error_code)

    def _assign(self, response: JoinGroupResponse) -> tuple[SyncGroupAssignment, ...]:
        """Assign partitions round robin to the members that subscribe to their topic."""
        counts = {name: view.partitions for name, view in self.coordinator.topics.by_name.items()}
        wanted = {each.member_id: read_subscription(each.metadata).topics for each in response.members}
        parts: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in wanted}
        for topic, count in counts.items():
            takers = [member_id for member_id, topics in wanted.items() if topic in topics]
            for partition in range(count if takers else 0):
                parts[takers[partition % len(takers)]].setdefault(topic, []).append(partition)
        return tuple(
            SyncGroupAssignment(
                member_id=member_id,
                assignment=write_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=tuple(
                            ConsumerProtocolTopic(topic=topic, partitions=tuple(each)) for topic, each in part.items()
                        )
                    )
                ),
            )
            for member_id, part in parts.items()
        )

    def _sync(self) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self.assignments,
        )
        self._ask(request, 5, self._synced)

    def _synced(self, response: Any) -> None:
        if response.error_code != WireError.NONE:
            self._failed(response.error_code)
            return
        self.next = "heartbeat" if self.topics == self.joined_topics else "join"  # as Java's consumer does
        assigned = read_assignment(response.assignment).assigned_partitions if response.assignment else ()
        self.owned = {each.topic: frozenset(each.partitions) for each in assigned}

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        self._ask(request, 4, lambda response: self._failed(response.error_code))

    def _failed(self, error: int) -> None:
        if error == WireError.NONE:
            return
        self.next = "join"
        if error == WireError.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error != WireError.REBALANCE_IN_PROGRESS:
            self.owned = {}

    def leave(self) -> None:
        self.owned, self.gone = {}, True
        members = (LeaveGroupMember(member_id=self.member_id, group_instance_id=self.instance),)
        self.coordinator.ask(LeaveGroupRequest(group_id=GROUP, members=members), 5, self.id, lambda response: None)


Client = ConsumerClient | ClassicClient
