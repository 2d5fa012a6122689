"""A group of the classic protocol as a value: its members, its state, and the states that may follow each other.

A group is never changed: who decides makes another. How a group moves is in `rebalance`, what members ask for
in `join`, `sync` and `members`. A group that is gone, which Kafka calls Dead, is no value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from moldau.base.coordination import Caller, Record
from moldau.base.errors import WireError
from moldau.groups.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from moldau.wire.messages.join_group import JoinGroupProtocol

Protocols = tuple[JoinGroupProtocol, ...]  # what a member can do, best first


class State(StrEnum):
    """Where a group is; the values are Kafka's names, as clients see them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members are joining
    COMPLETING = "CompletingRebalance"  # all have joined, the leader has not handed in the assignment
    STABLE = "Stable"
    DEAD = "Dead"  # there is no such group


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING}),
    State.STABLE: frozenset({State.PREPARING}),
    State.DEAD: frozenset({State.EMPTY}),
}


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member, and whom to answer if it waits."""

    member_id: str
    instance_id: str | None  # a static member has one (KIP-345)
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Caller | None = None  # its JoinGroup is answered when all have joined
    syncing: Caller | None = None  # its SyncGroup is answered when the leader has assigned
    is_new: bool = False  # it never had an answer: it cannot send heartbeats, and may be gone
    protocol_names: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol_names", frozenset(protocol.name for protocol in self.protocols))

    def metadata(self, protocol_name: str | None) -> bytes | None:
        """What the member says in this protocol; None if it does not speak it."""
        return next((each.metadata for each in self.protocols if each.name == protocol_name), None)


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    group_id: str
    state: State = State.EMPTY
    since: int = -1  # when it came into this state
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()  # were given a member id, and have not joined with it (KIP-394)
    unsynced: frozenset[str] = frozenset()  # have joined this generation and not asked for their assignment
    initial_delay: tuple[int, int] | None = None
    new_member_added: bool = False  # somebody joined during the present stretch of the initial delay

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
        """Whether a member with these may be in the group beside the others."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(tuple(protocols))
        return protocol_type == self.protocol_type and any(self._all_speak(protocol.name) for protocol in protocols)

    def _all_speak(self, protocol_name: str) -> bool:
        return all(protocol_name in member.protocol_names for member in self.members.values())

    def chosen_protocol(self) -> str:
        """Of the protocols that all speak, the one that most like best."""
        members = tuple(self.members.values())
        common = frozenset.intersection(*(member.protocol_names for member in members))
        votes: dict[str, int] = {}
        for member in members:
            favourite = next(each.name for each in member.protocols if each.name in common)
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=votes.__getitem__)

    def check_member(self, member_id: str, instance_id: str | None) -> WireError:
        """Whether this is a member; a static one under the member id that its instance id has now."""
        if instance_id is not None:
            holder = self.static_member(instance_id)
            if holder is None:
                return WireError.UNKNOWN_MEMBER_ID
            if holder.member_id != member_id:
                return WireError.FENCED_INSTANCE_ID
        return WireError.NONE if member_id in self.members else WireError.UNKNOWN_MEMBER_ID

    # -- another group

    def transition_to(self, state: State, now: int) -> "ClassicGroup":
        assert state in TRANSITIONS[self.state], f"a group cannot go from {self.state} to {state}"
        return replace(self, state=state, since=now)

    def with_member(self, member: ClassicMember) -> "ClassicGroup":
        """The member is there, as it is now: added, or in the place of what it was."""
        return replace(
            self,
            members={**self.members, member.member_id: member},
            leader=self.leader if self.leader is not None else member.member_id,
            pending=self.pending - {member.member_id},
        )

    def without(self, gone: Iterable[str]) -> "ClassicGroup":
        """These members, joined or pending, are not there; if one led the group, another does."""
        away = frozenset(gone)
        members = {member_id: member for member_id, member in self.members.items() if member_id not in away}
        leader = next(iter(members), None) if self.leader in away else self.leader
        return replace(self, members=members, leader=leader, pending=self.pending - away, unsynced=self.unsynced - away)


def validate_commit(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, transactional: bool, version: int
) -> WireError:
    """Whether this member may commit offsets in this generation; no member at all may while the group is empty."""
    if generation < 0 and group.state is State.EMPTY:
        return WireError.NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = group.check_member(member_id, instance_id)
        if error is not WireError.NONE:
            return error
        if generation != group.generation:
            return WireError.ILLEGAL_GENERATION
    elif not transactional:  # TxnOffsetCommit did not say before version 3 who commits (KIP-447)
        return WireError.UNKNOWN_MEMBER_ID
    if group.state is State.COMPLETING and not transactional:
        return WireError.REBALANCE_IN_PROGRESS
    return WireError.NONE


# -- the group in the log


def to_record(group: ClassicGroup) -> Record:
    """What is written of a group: who is in it, and what each was assigned; nothing of who waits."""
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
    """The group as its record has it: stable, if it has members, and each speaks the group's protocol alone.

    Without a leader nobody has assigned what its members have, and it is to rebalance.
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
