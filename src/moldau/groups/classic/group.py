"""ClassicGroup: a group of the classic protocol as an immutable value, its states and their transitions, its record.

Rebalances are in `rebalance`, requests of members in `join`, `sync` and `members`. A Dead group has no value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from moldau.base.coordination import Caller, Record
from moldau.base.errors import WireError
from moldau.groups.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from moldau.wire.messages.join_group import JoinGroupProtocol

Protocols = tuple[JoinGroupProtocol, ...]  # of a member, by preference


class State(StrEnum):
    """States of a group; the values are the names in Kafka's responses."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members are joining
    COMPLETING = "CompletingRebalance"  # all have joined; the leader's assignment is awaited
    STABLE = "Stable"
    DEAD = "Dead"  # the group does not exist


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING}),
    State.STABLE: frozenset({State.PREPARING}),
    State.DEAD: frozenset({State.EMPTY}),
}


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member, with its pending requests."""

    member_id: str
    instance_id: str | None  # of a static member (KIP-345)
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Caller | None = None  # a pending JoinGroup, answered when all have joined
    syncing: Caller | None = None  # a pending SyncGroup, answered when the leader has assigned
    is_new: bool = False  # its first JoinGroup is pending: it cannot send heartbeats yet
    protocol_names: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol_names", frozenset(protocol.name for protocol in self.protocols))

    def metadata(self, protocol_name: str | None) -> bytes | None:
        """The member's metadata for this protocol; None if it does not support it."""
        return next((each.metadata for each in self.protocols if each.name == protocol_name), None)


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    group_id: str
    state: State = State.EMPTY
    since: int = -1  # of this state
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()  # member ids that have not joined yet (KIP-394)
    unsynced: frozenset[str] = frozenset()  # members of this generation without a SyncGroup yet
    initial_delay: tuple[int, int] | None = None  # group.initial.rebalance.delay.ms: this round's, and the rest
    new_member_added: bool = False  # during this round of the initial delay

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.joining for member in self.members.values())

    def static_member(self, instance_id: str | None) -> ClassicMember | None:
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def supports(self, protocol_type: str, protocols: Iterable[JoinGroupProtocol]) -> bool:
        """Whether the group accepts a member with these protocols."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(tuple(protocols))
        return protocol_type == self.protocol_type and any(self._all_speak(protocol.name) for protocol in protocols)

    def _all_speak(self, protocol_name: str) -> bool:
        return all(protocol_name in member.protocol_names for member in self.members.values())

    def chosen_protocol(self) -> str:
        """Of the protocols that all members support, the one that most prefer."""
        members = tuple(self.members.values())
        common = frozenset.intersection(*(member.protocol_names for member in members))
        votes: dict[str, int] = {}
        for member in members:
            favourite = next(each.name for each in member.protocols if each.name in common)
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=votes.__getitem__)

    def check_member(self, member_id: str, instance_id: str | None) -> WireError:
        """Whether this is a member. A static member must have the current member id of its instance id."""
        if instance_id is not None:
            holder = self.static_member(instance_id)
            if holder is None:
                return WireError.UNKNOWN_MEMBER_ID
            if holder.member_id != member_id:
                return WireError.FENCED_INSTANCE_ID
        return WireError.NONE if member_id in self.members else WireError.UNKNOWN_MEMBER_ID

    # -- changed copies

    def transition_to(self, state: State, now: int) -> "ClassicGroup":
        assert state in TRANSITIONS[self.state], f"Invalid transition of a group from {self.state} to {state}."
        return replace(self, state=state, since=now)

    def with_member(self, member: ClassicMember) -> "ClassicGroup":
        """Add or replace a member."""
        return replace(
            self,
            members={**self.members, member.member_id: member},
            leader=self.leader if self.leader is not None else member.member_id,
            pending=self.pending - {member.member_id},
        )

    def without(self, member_ids: Iterable[str]) -> "ClassicGroup":
        """Remove members, joined or pending; elect another leader if it was one of them."""
        removed = frozenset(member_ids)
        members = {member_id: member for member_id, member in self.members.items() if member_id not in removed}
        leader = next(iter(members), None) if self.leader in removed else self.leader
        return replace(
            self, members=members, leader=leader, pending=self.pending - removed, unsynced=self.unsynced - removed
        )


def validate_commit(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, transactional: bool, version: int
) -> WireError:
    """Whether this member may commit offsets in this generation. Without a member id only while the group is empty."""
    if generation < 0 and group.state is State.EMPTY:
        return WireError.NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = group.check_member(member_id, instance_id)
        if error is not WireError.NONE:
            return error
        if generation != group.generation:
            return WireError.ILLEGAL_GENERATION
    elif not transactional:  # TxnOffsetCommit has no member id before version 3 (KIP-447)
        return WireError.UNKNOWN_MEMBER_ID
    if group.state is State.COMPLETING and not transactional:
        return WireError.REBALANCE_IN_PROGRESS
    return WireError.NONE


# -- records


def to_record(group: ClassicGroup) -> Record:
    """The group's record: members and assignments, without pending requests."""
    members = tuple(
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name) or b"",
            assignment=member.assignment,
        )
        for member in group.members.values()
    )
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.since,
        members=members,
    )
    return Record(GroupMetadataKey(group=group.group_id), value)


def tombstone(group_id: str) -> Record:
    return Record(GroupMetadataKey(group=group_id), None)


def from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group of a record: Stable if it has members, each with the group's protocol only.

    A record without a leader is of a group that has to rebalance.
    """
    members = {
        each.member_id: ClassicMember(
            member_id=each.member_id,
            instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout,
            session_timeout_ms=each.session_timeout,
            protocols=(JoinGroupProtocol(name=value.protocol or "", metadata=each.subscription),),
            assignment=each.assignment,
        )
        for each in value.members
    }
    return ClassicGroup(
        group_id=group_id,
        state=State.STABLE if members else State.EMPTY,
        since=value.current_state_timestamp,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader=value.leader if value.leader is None or value.leader in members else next(iter(members), None),
        members=members,
    )
