"""All groups of one partition of `__consumer_offsets`: who answers what, and how records become state.

Which function answers is a matter of two tables: of the request's type, and of the kind of group it is about. Rules of
groups are in `classic*` and `consumer*`, those of committed offsets in `offsets`; only `apply` changes anything here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import NoneType
from typing import Any, Final

from moldau.base.coordination import Caller, Decision, Fired, Record, Timer, TimerKey
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

Group = ClassicGroup | ConsumerGroup

# What members ask: request, then kind of group (NoneType: there is none), then who decides.
Handler = Callable[[Any, Any, Caller, GroupEnvironment], Decision]


def _by_group_type(classic_or_none: Handler, of_consumers: Handler) -> dict[type, Handler]:
    return {NoneType: classic_or_none, ClassicGroup: classic_or_none, ConsumerGroup: of_consumers}


HANDLERS: Final[Mapping[type, Mapping[type, Handler]]] = {
    JoinGroupRequest: _by_group_type(classic_join.join, consumer_classic.join),
    SyncGroupRequest: _by_group_type(classic_sync.sync, consumer_classic.sync),
    HeartbeatRequest: _by_group_type(classic_members.heartbeat, consumer_classic.heartbeat),
    LeaveGroupRequest: _by_group_type(classic_members.leave, consumer_classic.leave),
    ConsumerGroupHeartbeatRequest: _by_group_type(consumer_heartbeat.heartbeat, consumer_heartbeat.heartbeat),
    OffsetCommitRequest: _by_group_type(offsets_commit.commit, offsets_commit.commit),
    TxnOffsetCommitRequest: _by_group_type(offsets_commit.commit_in_transaction, offsets_commit.commit_in_transaction),
}

# Timers: kind of group, then kind of timer (the first word of its key), then who decides. The second word is the group.
OnTimer = Callable[[Any, TimerKey, GroupEnvironment], Decision]
TIMERS: Final[Mapping[type, Mapping[str, OnTimer]]] = {
    ClassicGroup: {
        "session": classic_members.on_session_timeout,
        "join": classic_rebalance.on_join_timeout,
        "sync": classic_rebalance.on_sync_timeout,
    },
    ConsumerGroup: dict.fromkeys((*MEMBER_TIMERS, REGEX), consumer_heartbeat.on_timer),
}

# What is asked of any group: kind of group, then who answers.
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

TOPICS_TIMER: Final[TimerKey] = ("topics",)  # the one timer that is of no group: look at the topics again
MAX_BATCH_BYTES: Final = 512 * 1024  # bytes of the keys that are written at once; values are tombstones, or small


class GroupShard:
    """Decides and applies. It neither waits nor writes: its owner does, between the two."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()

    # -- decisions

    def decide(self, command: Any, caller: Caller, env: GroupEnvironment) -> Decision:
        """What a request, or a timer that is due, leads to."""
        by_group = HANDLERS.get(type(command))
        if by_group is not None:
            group = self.groups.get(command.group_id)
            return by_group[type(group)](group, command, caller, env)
        if isinstance(command, Fired):
            return self._fire(command.key, env)
        if isinstance(command, OffsetDeleteRequest):
            return offsets_expiration.delete(self.offsets, self.groups.get(command.group_id), command, caller, env)
        if isinstance(command, DeleteGroupsRequest):
            return self._delete(command, caller)
        raise TypeError(f"a group shard does not know {type(command).__name__}")

    def _fire(self, key: TimerKey, env: GroupEnvironment) -> Decision:
        """A timer may outlive what it was set for."""
        if key == TOPICS_TIMER:
            return self.topics_changed(env)
        group = self.groups.get(key[1])
        on_timer = TIMERS[type(group)].get(key[0]) if group is not None else None
        return Decision() if on_timer is None else on_timer(group, key, env)

    def _delete(self, request: DeleteGroupsRequest, caller: Caller) -> Decision:
        """Groups of this shard that have no members go, with their offsets."""
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
        """After a replay: members have a session's time to be heard of again."""
        decision = Decision()
        for group in self.groups.values():
            _merge(decision, LOADED[type(group)](group, env))
        decision.records += self._tombstones_of_deleted_topics(env)
        return _continue_if_more(decision, env)

    def topics_changed(self, env: GroupEnvironment) -> Decision:
        """Topics came, went or grew. Classic groups leave that to their leaders."""
        decision = Decision(records=self._tombstones_of_deleted_topics(env))
        room = MAX_BATCH_BYTES - sum(map(_size, decision.records))
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup) and room > 0:
                more = consumer_heartbeat.topics_changed(group, env)
                _merge(decision, more)
                room -= sum(map(_size, more.records))
        return _continue_if_more(decision, env)

    def expire(self, env: GroupEnvironment) -> Decision:
        """Offsets that nobody needs any more go, and empty groups that have none left.

        As much as fits in a batch: whoever calls this comes again until nothing is left to do.
        """
        tombstones = self._tombstones_of_deleted_topics(env)
        room = MAX_BATCH_BYTES - sum(map(_size, tombstones))
        for group_id, group in self.groups.items():
            expired, all_gone = offsets_expiration.expired(self.offsets, group, env)
            gone = _first_fitting((tombstone(group_id, packed) for packed in expired), room)
            if all_gone and len(gone) == len(expired) and VALIDATE_DELETE[type(group)](group) is WireError.NONE:
                gone += TOMBSTONES[type(group)](group)
            tombstones += gone
            room -= sum(map(_size, gone))
            if room <= 0 or len(gone) < len(expired):
                break
        return Decision(records=tombstones)

    def _tombstones_of_deleted_topics(self, env: GroupEnvironment) -> list[Record]:
        """Tombstones of offsets whose topic is gone, as many as fit in a batch."""
        return _first_fitting(offsets_expiration.tombstones_of_deleted_topics(self.offsets, env.topics))

    # -- reads

    def describe_classic(self, group_id: str) -> DescribedGroup:
        """A group that is not there, or of another type, is GROUP_ID_NOT_FOUND: what version 6 says (KIP-1043)."""
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
        """A group that is not there, or of another type, is GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return consumer_reads.describe(group, topics, config)
        refusal = consumer_heartbeat.not_found(group_id, group)
        return ConsumerGroupDescribedGroup(error_code=refusal.error, error_message=refusal.message, group_id=group_id)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """The groups in one of these states and of one of these types; empty: any. Case does not matter."""
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

    def apply(self, change: Any, producer_id: int = -1) -> None:
        """A record that is in the log, or a change that lives in memory only."""
        if isinstance(change, Record) and isinstance(change.key, bytes):
            self._apply_offset(change.key, change.value, producer_id)
        elif isinstance(change, ClassicGroup):
            self.groups[change.group_id] = change
        elif isinstance(change, RejoinChanged | RegexProgressChanged):
            self._apply_consumer(change.group_id, change)
        elif is_consumer_group_key(change.key):
            self._apply_consumer(change.key.group_id, change)
        elif isinstance(change.key, GroupMetadataKey):
            self._apply_classic(change.key.group, change.value)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A marker is in the log: what this producer's transaction committed holds, or never was."""
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
            self.groups[group_id] = ClassicGroup(group_id)  # a simple group: whoever commits is no member of it

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return records.encode(record)

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        """A record of the log, as it lies there."""
        if is_offset_key(key):
            if value is not None:
                check_value(value)
            self._apply_offset(key, value, producer_id)
            return
        record = records.decode(key, value)
        if record is not None:
            self.apply(record, producer_id)


def _merge(decision: Decision, more: Decision) -> None:
    """Decisions about different groups are one."""
    decision.records += more.records
    decision.passing += more.passing
    decision.timers += more.timers


def _continue_if_more(decision: Decision, env: GroupEnvironment) -> Decision:
    """Topics are looked at until there is nothing left to write: a batch has an end, and a disk may be full."""
    if decision.records:
        decision.timers.append(Timer(TOPICS_TIMER, env.now))
    return decision


def _size(record: Record) -> int:
    return len(records.encode(record)[0])


def _first_fitting(tombstones: Iterable[Record], room: int = MAX_BATCH_BYTES) -> list[Record]:
    """The first ones, as many as there is room for."""
    batch = []
    for record in tombstones:
        room -= _size(record)
        if room < 0:
            break
        batch.append(record)
    return batch
