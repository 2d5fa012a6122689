"""Any sequence of commands to classic groups: the log has the state, every request is answered, no group gets stuck."""

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moldau.base.coordination import INTERNAL_CALLER, Caller, Decision, TimerFired, TimerKey
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics
from moldau.groups.shard import GroupShard
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from moldau.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest
from moldau.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest

RETRY_MS = 500  # when a timer's decision could not be written
GROUPS = st.sampled_from(("g", "g", "g", "h"))
INSTANCES = st.sampled_from((None, "one", "two"))
FAILS = st.sampled_from((False, False, False, False, False, True))
PROTOCOLS = st.sampled_from((("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)))
VERSIONS = st.sampled_from((0, 3, 4, 8, 9))


def durable(group: ClassicGroup) -> ClassicGroup:
    """What a restart must bring back of a stable or an empty group."""
    members = {
        member_id: replace(
            member,
            protocols=tuple(each for each in member.protocols if each.name == group.protocol_name),
            joining=None,
            syncing=None,
            is_new=False,
        )
        for member_id, member in group.members.items()
    }
    return replace(group, members=members, pending=frozenset(), unsynced=frozenset())


class ClassicGroups(RuleBasedStateMachine):
    """A shard under faults: lost connections, passing time and, now and then, a lost log."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = GroupShard()
        self.now = 0
        self.ids = 0
        self.tokens = 0
        self.waiting: set[int] = set()  # asked, and neither answered nor gone
        self.failed: set[int] = set()  # were told that nothing could be written
        self.timers: dict[TimerKey, int] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.expected: dict[str, ClassicGroup] = {}  # as a restart would find them
        self.generations: dict[str, int] = {}
        self.config = GroupConfig()

    @initialize(
        max_size=st.sampled_from((100, 100, 3, 2)),
        delay=st.sampled_from((0, 3000)),
        members=st.lists(st.sampled_from((None, None, "one", "two")), max_size=4),
        settled=st.booleans(),
    )
    def begin(self, max_size: int, delay: int, members: list[str | None], settled: bool) -> None:
        """Most of what can go wrong needs a group that works."""
        self.config = GroupConfig(max_size=max_size, initial_rebalance_delay_ms=delay)
        for instance in members:
            self.join("g", "", instance, ("range", "sticky"), 9 if instance else 3)
        self.wait(delay * len(members) + 1, False)
        if settled:
            self.settle("g")

    # -- what a broker does

    def env(self) -> GroupEnvironment:
        return GroupEnvironment(self.now, self.config, self.new_id, Topics())

    def new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    def ask(self, command: Any, version: int, append_fails: bool = False) -> None:
        self.tokens += 1
        self.waiting.add(self.tokens)
        caller = Caller(self.tokens, version, "client", "/127.0.0.1")
        if not self.execute(self.decide(command, caller), append_fails) and self.tokens in self.waiting:
            self.waiting.remove(self.tokens)  # it would have waited, and fails instead

    def decide(self, command: Any, caller: Caller) -> Decision:
        before = dict(self.shard.groups)
        decision = self.shard.decide(command, caller, self.env())
        assert self.shard.groups == before, "deciding changed something"
        return decision

    def execute(self, decision: Decision, append_fails: bool = False) -> bool:
        if append_fails and decision.records:
            for token, _ in decision.replies:
                self.answered(token)
                self.failed.add(token)  # a group may still have it: the broker answers a request once
            return False
        for record in decision.records:
            self.log.append(self.shard.encode(record))
            self.shard.apply(record)
        for change in decision.transient:
            self.shard.apply(change)
        for timer in decision.timers:
            self.timers.pop(timer.key, None)
            if timer.at is not None:
                assert timer.at >= self.now
                self.timers[timer.key] = timer.at
        for token, _ in decision.replies:
            self.answered(token)
        self.remember()
        return True

    def answered(self, token: Any) -> None:
        if token not in self.failed:
            self.waiting.remove(token)  # fails if it was answered before

    def remember(self) -> None:
        for group_id in self.expected.keys() - self.shard.groups.keys():
            del self.expected[group_id]
            self.generations.pop(group_id, None)
        for group_id, group in self.shard.groups.items():
            if group.state in (State.STABLE, State.EMPTY):
                self.expected[group_id] = durable(group)
            elif group_id not in self.expected:
                self.expected[group_id] = ClassicGroup(group_id, since=self.now)
            assert group.generation >= self.generations.get(group_id, 0)
            self.generations[group_id] = group.generation

    def fire_next(self, until: float, append_fails: bool = False) -> bool:
        due = min(((at, key) for key, at in self.timers.items() if at <= until), default=None)
        if due is None:
            return False
        self.now, key = max(self.now, due[0]), due[1]
        del self.timers[key]
        if not self.execute(self.decide(TimerFired(key), INTERNAL_CALLER), append_fails):
            self.timers[key] = self.now + RETRY_MS
        return True

    # -- what happens to it

    @rule(group=GROUPS, instance=INSTANCES, protocols=PROTOCOLS, version=VERSIONS, append_fails=FAILS)
    def join_anew(
        self, group: str, instance: str | None, protocols: tuple[str, ...], version: int, append_fails: bool
    ) -> None:
        self.join(group, "", instance if version >= 5 else None, protocols, version, append_fails)

    @rule(data=st.data(), group=GROUPS, protocols=PROTOCOLS, append_fails=FAILS)
    def static_member_comes_back(
        self, data: st.DataObject, group: str, protocols: tuple[str, ...], append_fails: bool
    ) -> None:
        members = self.shard.groups.get(group, ClassicGroup(group)).members.values()
        instances = sorted(member.instance_id for member in members if member.instance_id)
        if instances:
            self.join(group, "", data.draw(st.sampled_from(instances)), protocols, 9, append_fails)

    @rule(data=st.data(), group=GROUPS, protocols=PROTOCOLS, metadata=st.sampled_from((b"m", b"n")))
    def join_again(self, data: st.DataObject, group: str, protocols: tuple[str, ...], metadata: bytes) -> None:
        member_id, instance = self.pick(data, group)
        self.join(group, member_id, instance, protocols, 9, metadata=metadata)

    def join(
        self,
        group: str,
        member_id: str,
        instance: str | None,
        protocols: tuple[str, ...],
        version: int,
        append_fails: bool = False,
        metadata: bytes = b"m",
    ) -> None:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=tuple(JoinGroupProtocol(name=name, metadata=metadata) for name in protocols),
        )
        self.ask(request, version, append_fails)

    def pick(self, data: st.DataObject, group_id: str) -> tuple[str, str | None]:
        """A present, former or possible member, and its instance id."""
        group = self.shard.groups.get(group_id)
        members = sorted(group.members) + sorted(group.pending) if group else []
        member_id = data.draw(st.sampled_from([*members, *members, *members, "nobody"]))
        member = group.members.get(member_id) if group else None
        return member_id, member.instance_id if member else None

    @rule(data=st.data(), group=GROUPS, stale=st.sampled_from((0, 0, 0, 1)), append_fails=FAILS)
    def sync(self, data: st.DataObject, group: str, stale: int, append_fails: bool) -> None:
        member_id, instance = self.pick(data, group)
        self.sync_as(group, member_id, instance, stale, append_fails)

    @rule(group=GROUPS)
    def leader_syncs(self, group: str) -> None:
        there = self.shard.groups.get(group)
        if there is not None and there.leader is not None:
            self.sync_as(group, there.leader, None, 0, False)

    def sync_as(self, group_id: str, member_id: str, instance: str | None, stale: int, append_fails: bool) -> None:
        group = self.shard.groups.get(group_id, ClassicGroup(group_id))
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=group.generation - stale,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=group.protocol_name or "range",
            assignments=tuple(SyncGroupAssignment(member_id=each, assignment=each.encode()) for each in group.members),
        )
        self.ask(request, 5, append_fails)

    @rule(group=GROUPS, followers_sync=st.booleans())
    def settle(self, group: str, followers_sync: bool = True) -> None:
        """All that are in the group join, and the leader assigns, last: what most groups do most of the time."""
        there = self.shard.groups.get(group)
        for member_id in sorted(there.pending) if there else []:
            self.join(group, member_id, None, ("range", "sticky"), 9)
        self.all_join_again(group)
        self.wait(6000, False)
        there = self.shard.groups.get(group, ClassicGroup(group))
        for member_id in sorted(there.members, key=lambda each: each == there.leader):
            if followers_sync or member_id == there.leader:
                self.sync_as(group, member_id, None, 0, False)

    @rule(group=GROUPS)
    def all_join_again(self, group: str) -> None:
        there = self.shard.groups.get(group)
        for member in list(there.members.values()) if there else []:
            self.join(group, member.member_id, member.instance_id, ("range", "sticky"), 9)

    @rule(group=GROUPS, ms=st.sampled_from((5000, 9999)))
    def all_send_heartbeats(self, group: str, ms: int) -> None:
        self.wait(ms, False)
        there = self.shard.groups.get(group, ClassicGroup(group))
        for member_id in list(there.members):
            self.ask(HeartbeatRequest(group_id=group, generation_id=there.generation, member_id=member_id), 4)

    @rule(data=st.data(), group=GROUPS)
    def heartbeat(self, data: st.DataObject, group: str) -> None:
        member_id, instance = self.pick(data, group)
        generation = self.generations.get(group, 0)
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.ask(request, 4)

    @rule(data=st.data(), group=GROUPS, by_instance=st.booleans(), append_fails=FAILS)
    def leave(self, data: st.DataObject, group: str, by_instance: bool, append_fails: bool) -> None:
        member_id, instance = self.pick(data, group)
        leaving = LeaveGroupMember(member_id="" if by_instance and instance else member_id, group_instance_id=instance)
        self.ask(LeaveGroupRequest(group_id=group, members=(leaving,)), 5, append_fails)

    @rule(append_fails=FAILS)
    def delete(self, append_fails: bool) -> None:
        self.ask(DeleteGroupsRequest(groups_names=("g", "h")), 2, append_fails)

    @rule(ms=st.sampled_from((1, 1000, 3000, 9999, 9999, 30_000)), append_fails=FAILS)
    def wait(self, ms: int, append_fails: bool) -> None:
        until = self.now + ms
        while self.fire_next(until, append_fails):
            append_fails = False
        self.now = max(self.now, until)

    @rule(max_size=st.sampled_from((1, 100, 100, 100)))
    def restart(self, max_size: int) -> None:
        """Pending requests have lost their connections."""
        self.config = replace(self.config, max_size=max_size)
        self.shard = self.replayed()
        self.timers.clear()
        self.waiting.clear()
        self.generations = {group_id: group.generation for group_id, group in self.shard.groups.items()}
        self.execute(self.shard.loaded(self.env()))

    # -- what holds

    def replayed(self) -> GroupShard:
        shard = GroupShard()
        for key, value in self.log:
            shard.replay(key, value)
        return shard

    @invariant()
    def a_restart_finds_what_counts(self) -> None:
        assert self.replayed().groups == self.expected

    @invariant()
    def groups_make_sense(self) -> None:
        for group in self.shard.groups.values():
            assert (group.leader in group.members) if group.members else group.leader is None
            assert not group.pending & group.members.keys()
            assert group.unsynced <= group.members.keys()
            assert group.members or group.state in (State.EMPTY, State.PREPARING)
            assert not group.members or group.state is not State.EMPTY
            instances = [member.instance_id for member in group.members.values() if member.instance_id]
            assert len(instances) == len(set(instances))

    @invariant()
    def who_waits_is_known_to_the_group(self) -> None:
        kept = [
            caller.token
            for group in self.shard.groups.values()
            for member in group.members.values()
            for caller in (member.joining, member.syncing)
            if caller is not None
        ]
        assert len(kept) == len(set(kept))
        assert set(kept) - self.failed == self.waiting

    @invariant()
    def nothing_happens_without_reason(self) -> None:
        """Only a session's timer may outlive what it was set for: a member id is never given twice."""
        for kind, group_id, *_ in self.timers:
            group = self.shard.groups.get(group_id, ClassicGroup(group_id))
            assert kind != "join" or group.state is State.PREPARING
            assert kind != "sync" or group.unsynced

    @invariant()
    def something_will_happen(self) -> None:
        """A group that waits for members has a timer that ends the wait."""
        for group in self.shard.groups.values():
            if group.state is State.PREPARING:
                assert ("join", group.group_id) in self.timers
            if group.unsynced:
                assert ("sync", group.group_id) in self.timers
            for member in group.members.values():
                waits = member.joining is not None or member.syncing is not None
                assert ("session", group.group_id, member.member_id) in self.timers or (waits and not member.is_new)
            for member_id in group.pending:
                assert ("session", group.group_id, member_id) in self.timers

    def teardown(self) -> None:
        """Without requests, all pending ones are answered in the end, and no group has members."""
        turns = 0
        while self.fire_next(float("inf")):
            turns += 1
            assert turns < 10_000, "timers go on for ever"
        assert not self.waiting
        assert all(group.state is State.EMPTY for group in self.shard.groups.values())
        assert self.replayed().groups == self.expected


ClassicGroups.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestClassicGroups: type = ClassicGroups.TestCase
