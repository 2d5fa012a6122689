"""GroupShard: the groups and committed offsets of one partition of `__consumer_offsets`.

Tables map the type of request and the type of group to a handler in `classic`, `consumer` or `offsets`. Only `apply`
changes the state.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import NoneType
from typing import Any, Final, Protocol

from moldau.base.coordination import Caller, Decision, Record, Timer, TimerFired, TimerKey
from moldau.base.errors import WireError
from moldau.groups import records
from moldau.groups.classic import group as classic_group
from moldau.groups.classic import join as classic_join
from moldau.groups.classic import members as classic_members
from moldau.groups.classic import reads as classic_reads
from moldau.groups.classic import rebalance as classic_rebalance
from moldau.groups.classic import sync as classic_sync
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.consumer import classic_members as consumer_classic
from moldau.groups.consumer import heartbeat as consumer_heartbeat
from moldau.groups.consumer import reads as consumer_reads
from moldau.groups.consumer.builder import MEMBER_TIMERS, REGEX
from moldau.groups.consumer.group import (
    ConsumerGroup,
    Group,
    RegexProgressChanged,
    RejoinChanged,
    apply_change,
    is_consumer_group_key,
)
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics
from moldau.groups.offsets import commit as offsets_commit
from moldau.groups.offsets import expiration as offsets_expiration
from moldau.groups.offsets import fetch as offsets_fetch
from moldau.groups.offsets.packed import check_value, is_offset_key, tombstone
from moldau.groups.offsets.store import OffsetStore
from moldau.groups.records import GroupMetadataKey, GroupMetadataValue
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribedGroup
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.describe_groups import DescribedGroup
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest
from moldau.wire.messages.leave_group import LeaveGroupRequest
from moldau.wire.messages.list_groups import ListedGroup
from moldau.wire.messages.offset_commit import OffsetCommitRequest
from moldau.wire.messages.offset_delete import OffsetDeleteRequest
from moldau.wire.messages.offset_fetch import OffsetFetchGroup, OffsetFetchGroupResponse
from moldau.wire.messages.sync_group import SyncGroupRequest
from moldau.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

# Handlers by request and by type of group (NoneType: there is no group). The tables pair each handler with its types,
# which a signature cannot say.
Handler = Callable[[Any, Any, Caller, GroupEnvironment], Decision]


def _by_group_type(classic_or_none: Handler, consumer: Handler) -> dict[type, Handler]:
    return {NoneType: classic_or_none, ClassicGroup: classic_or_none, ConsumerGroup: consumer}


HANDLERS: Final[Mapping[type, Mapping[type, Handler]]] = {
    JoinGroupRequest: _by_group_type(classic_join.join, consumer_classic.join),
    SyncGroupRequest: _by_group_type(classic_sync.sync, consumer_classic.sync),
    HeartbeatRequest: _by_group_type(classic_members.heartbeat, consumer_classic.heartbeat),
    LeaveGroupRequest: _by_group_type(classic_members.leave, consumer_classic.leave),
    ConsumerGroupHeartbeatRequest: _by_group_type(consumer_heartbeat.heartbeat, consumer_heartbeat.heartbeat),
    OffsetCommitRequest: _by_group_type(offsets_commit.commit, offsets_commit.commit),
    TxnOffsetCommitRequest: _by_group_type(offsets_commit.commit_in_transaction, offsets_commit.commit_in_transaction),
}

# Handlers of timers by type of group and by purpose, the first part of a timer's key. The second part is the group id.
OnTimer = Callable[[Any, TimerKey, GroupEnvironment], Decision]
TIMERS: Final[Mapping[type, Mapping[str, OnTimer]]] = {
    ClassicGroup: {
        "session": classic_members.on_session_timeout,
        "join": classic_rebalance.on_join_timeout,
        "sync": classic_rebalance.on_sync_timeout,
    },
    ConsumerGroup: dict.fromkeys((*MEMBER_TIMERS, REGEX), consumer_heartbeat.on_timer),
}

# Functions that every type of group has.
LISTED: Final[Mapping[type, Callable[[Any], ListedGroup]]] = {
    ClassicGroup: classic_reads.listed,
    ConsumerGroup: consumer_reads.listed,
}
VALIDATE_DELETE: Final[Mapping[type, Callable[[Any], WireError]]] = {
    ClassicGroup: classic_reads.validate_delete,
    ConsumerGroup: consumer_reads.validate_delete,
}
TOMBSTONES: Final[Mapping[type, Callable[[Any], list[Record]]]] = {
    ClassicGroup: lambda group: [classic_group.tombstone(group.group_id)],
    ConsumerGroup: consumer_reads.tombstones,
}
LOADED: Final[Mapping[type, Callable[[Any, GroupEnvironment], Decision]]] = {
    ClassicGroup: classic_rebalance.loaded,
    ConsumerGroup: consumer_heartbeat.loaded,
}

TOPICS_TIMER: Final[TimerKey] = ("topics",)  # the timer of the whole shard: check the topics again
MAX_BATCH_BYTES: Final = 512 * 1024  # of keys in one batch; their values are tombstones, or small


class GroupRequest(Protocol):
    """A request for one group."""

    @property
    def group_id(self) -> str: ...


GroupCommand = GroupRequest | DeleteGroupsRequest


class GroupShard:
    """The groups and committed offsets of one partition of `__consumer_offsets`. Decides and applies; never waits."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()

    # -- decisions

    def decide(self, command: GroupCommand | TimerFired, caller: Caller, env: GroupEnvironment) -> Decision:
        if isinstance(command, TimerFired):
            return self._fire(command.key, env)
        if isinstance(command, DeleteGroupsRequest):
            return self._delete(command, caller)
        group = self.groups.get(command.group_id)
        if isinstance(command, OffsetDeleteRequest):
            return offsets_expiration.delete(self.offsets, group, command, caller, env)
        return HANDLERS[type(command)][type(group)](group, command, caller, env)

    def _fire(self, key: TimerKey, env: GroupEnvironment) -> Decision:
        """A timer may outlive its group."""
        if key == TOPICS_TIMER:
            return self.topics_changed(env)
        group = self.groups.get(key[1])
        on_timer = TIMERS[type(group)].get(key[0]) if group is not None else None
        return Decision() if on_timer is None else on_timer(group, key, env)

    def _delete(self, request: DeleteGroupsRequest, caller: Caller) -> Decision:
        """Delete groups without members, with their offsets."""
        decision = Decision()
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            group = self.groups.get(group_id)
            error = WireError.GROUP_ID_NOT_FOUND if group is None else VALIDATE_DELETE[type(group)](group)
            if error is WireError.NONE:
                decision.records += offsets_expiration.delete_all(self.offsets, group_id)
                decision.records += TOMBSTONES[type(group)](group)
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        decision.replies.append((caller.token, DeleteGroupsResponse(results=tuple(results))))
        return decision

    def loaded(self, env: GroupEnvironment) -> Decision:
        """After a load: start the session timers of all members."""
        decision = Decision()
        for group in self.groups.values():
            _merge(decision, LOADED[type(group)](group, env))
        decision.records += self._tombstones_of_deleted_topics(env)
        return _continue_if_more(decision, env)

    def topics_changed(self, env: GroupEnvironment) -> Decision:
        """Topics were created, deleted or got partitions. In classic groups the leader notices that."""
        decision = Decision(records=self._tombstones_of_deleted_topics(env))
        room = MAX_BATCH_BYTES - sum(map(_size, decision.records))
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup) and room > 0:
                more = consumer_heartbeat.topics_changed(group, env)
                _merge(decision, more)
                room -= sum(map(_size, more.records))
        return _continue_if_more(decision, env)

    def expire(self, env: GroupEnvironment) -> Decision:
        """Tombstones of expired offsets, and of empty groups without offsets. Call again until there are none."""
        tombstones = self._tombstones_of_deleted_topics(env)
        room = MAX_BATCH_BYTES - sum(map(_size, tombstones))
        for group_id, group in self.groups.items():
            expired, all_expired = offsets_expiration.expired(self.offsets, group, env)
            batch = _first_fitting((tombstone(group_id, packed) for packed in expired), room)
            if all_expired and len(batch) == len(expired) and VALIDATE_DELETE[type(group)](group) is WireError.NONE:
                batch += TOMBSTONES[type(group)](group)
            tombstones += batch
            room -= sum(map(_size, batch))
            if room <= 0 or len(batch) < len(expired):
                break
        return Decision(records=tombstones)

    def _tombstones_of_deleted_topics(self, env: GroupEnvironment) -> list[Record]:
        """Tombstones of offsets of deleted topics, as many as fit in a batch."""
        return _first_fitting(offsets_expiration.tombstones_of_deleted_topics(self.offsets, env.topics))

    # -- reads

    def describe_classic(self, group_id: str) -> DescribedGroup:
        """DescribeGroups; GROUP_ID_NOT_FOUND for a missing group or one of another type (KIP-1043)."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return classic_reads.describe(group)
        fault = "not found" if group is None else "is not a classic group"
        return DescribedGroup(
            error_code=WireError.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {fault}.",
            group_id=group_id,
            group_state=State.DEAD,
        )

    def describe_consumer(self, group_id: str, topics: Topics, config: GroupConfig) -> ConsumerGroupDescribedGroup:
        """ConsumerGroupDescribe; GROUP_ID_NOT_FOUND for a missing group or one of another type."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return consumer_reads.describe(group, topics, config)
        refusal = consumer_heartbeat.not_found(group_id, group)
        return ConsumerGroupDescribedGroup(error_code=refusal.error, error_message=refusal.message, group_id=group_id)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """ListGroups, filtered by states and types; empty: all. Case does not matter."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        every = (LISTED[type(group)](group) for group in self.groups.values())
        return [
            each
            for each in every
            if (not wanted_states or each.group_state.lower() in wanted_states)
            and (not wanted_types or each.group_type.lower() in wanted_types)
        ]

    def fetch_offsets(
        self, request: OffsetFetchGroup, require_stable: bool, version: int, topics: Topics
    ) -> OffsetFetchGroupResponse:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            error = consumer_reads.validate_fetch(group, request.member_id, request.member_epoch)
            if error is not WireError.NONE:
                return offsets_fetch.refused(request, error, version)
        return offsets_fetch.fetch(self.offsets, request, require_stable, version, topics)

    # -- state

    def gathers(self, command: object) -> bool:
        """Commits do not look at other commits, once their group is there: the first one creates a simple group."""
        return isinstance(command, OffsetCommitRequest) and command.group_id in self.groups

    def apply(self, change: object, producer_id: int = -1) -> None:
        """Apply a record that is in the log, or a transient change."""
        if isinstance(change, Record):
            self._apply_record(change, producer_id)
        elif isinstance(change, ClassicGroup):
            self.groups[change.group_id] = change
        elif isinstance(change, RejoinChanged | RegexProgressChanged):
            self._apply_consumer(change.group_id, change)

    def _apply_record(self, record: Record, producer_id: int) -> None:
        key, value = record
        if isinstance(key, bytes):
            assert value is None or isinstance(value, bytes)
            self._apply_offset(key, value, producer_id)
        elif is_consumer_group_key(key):
            self._apply_consumer(key.group_id, record)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._apply_classic(key.group, value)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply a marker: the producer's pending offsets are committed or dropped."""
        self.offsets.end_transaction(producer_id, commit)

    def _apply_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self.groups[group_id] = classic_group.from_record(group_id, value)
        elif isinstance(self.groups.get(group_id), ClassicGroup):
            del self.groups[group_id]

    def _apply_consumer(self, group_id: str, change: Record | RejoinChanged | RegexProgressChanged) -> None:
        before = self.groups.get(group_id)
        after = apply_change(before if isinstance(before, ConsumerGroup) else None, change)
        if after is not None:
            self.groups[group_id] = after
        elif isinstance(before, ConsumerGroup):
            del self.groups[group_id]

    def _apply_offset(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        group_id = self.offsets.apply(key, value, producer_id)
        if value is not None and group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id)  # a simple group: commits without members

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        key, value = record
        if isinstance(key, bytes) and (value is None or isinstance(value, bytes)):
            return key, value  # a committed offset is packed already
        return records.encode(record)

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        """Apply a record of the log, given as bytes."""
        if is_offset_key(key):
            if value is not None:
                check_value(value)
            self._apply_offset(key, value, producer_id)
            return
        record = records.decode(key, value)
        if record is not None:
            self.apply(record, producer_id)


def _merge(decision: Decision, more: Decision) -> None:
    """Add the decision about another group."""
    decision.records += more.records
    decision.transient += more.transient
    decision.timers += more.timers


def _continue_if_more(decision: Decision, env: GroupEnvironment) -> Decision:
    """Check the topics again while there are records to write: a batch is limited, and an append may fail."""
    if decision.records:
        decision.timers.append(Timer(TOPICS_TIMER, env.now))
    return decision


def _size(record: Record) -> int:
    return len(records.encode(record)[0])


def _first_fitting(tombstones: Iterable[Record], room: int = MAX_BATCH_BYTES) -> list[Record]:
    """The first tombstones, as many as fit."""
    batch = []
    for record in tombstones:
        room -= _size(record)
        if room < 0:
            break
        batch.append(record)
    return batch
