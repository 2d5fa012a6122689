"""ClassicDecisionBuilder: collects a decision about a classic group: the new group, records, replies and timers."""

from dataclasses import replace

from moldau.base.coordination import Caller, Decision, Timer
from moldau.base.errors import WireError
from moldau.groups.classic.group import ClassicGroup, ClassicMember, to_record
from moldau.groups.environment import GroupEnvironment
from moldau.wire.messages.join_group import JoinGroupMember, JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

NULL_PROTOCOL_NAME = 7  # JoinGroup version from which the protocol name may be null


def join_error(caller: Caller, error: WireError, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error, member_id=member_id, protocol_name=None if caller.version >= NULL_PROTOCOL_NAME else ""
    )


class ClassicDecisionBuilder:
    """`group` is replaced as the decision grows; the group that was decided on is not changed."""

    __slots__ = ("_before", "decision", "env", "group")

    def __init__(self, group: ClassicGroup, env: GroupEnvironment) -> None:
        self._before: ClassicGroup | None = group
        self.group = group
        self.env = env
        self.decision = Decision()

    @classmethod
    def for_new_group(cls, group_id: str, env: GroupEnvironment) -> "ClassicDecisionBuilder":
        builder = cls(ClassicGroup(group_id, since=env.now), env)
        builder._before = None
        return builder

    def build(self) -> Decision:
        if self._before is None and not self.decision.records:
            # As in Kafka a new group is written without members, and listed from then on.
            self.decision.records.append(to_record(ClassicGroup(self.group.group_id, since=self.env.now)))
        if self.group is not self._before:
            self.decision.transient.append(self.group)
        return self.decision

    def reply(self, caller: Caller, response: object) -> None:
        self.decision.replies.append((caller.token, response))

    def write_group(self) -> None:
        """Write the group as it is now."""
        self.decision.records.append(to_record(self.group))

    # -- timers

    def schedule(self, kind: str, after_ms: int, member_id: str | None = None) -> None:
        self.decision.timers.append(Timer(self._key(kind, member_id), self.env.now + after_ms))

    def cancel_timer(self, kind: str, member_id: str | None = None) -> None:
        self.decision.timers.append(Timer(self._key(kind, member_id), None))

    def _key(self, kind: str, member_id: str | None) -> tuple[str, ...]:
        return (kind, self.group.group_id) if member_id is None else (kind, self.group.group_id, member_id)

    def reset_session_timer(self, member: ClassicMember) -> None:
        self.schedule("session", member.session_timeout_ms, member.member_id)

    # -- members and their pending requests

    def put_member(self, member: ClassicMember) -> None:
        self.group = self.group.with_member(member)

    def remove_member(self, member_id: str) -> None:
        """Remove a member. Its pending requests fail with UNKNOWN_MEMBER_ID, so that it joins again if it is alive."""
        self.fail_pending(self.group.members[member_id], WireError.UNKNOWN_MEMBER_ID, "")
        self.cancel_timer("session", member_id)
        self.group = self.group.without((member_id,))

    def fail_pending(self, member: ClassicMember, error: WireError, member_id: str) -> None:
        """Fail the member's pending requests. The caller puts or removes the member next."""
        if member.joining is not None:
            self.reply(member.joining, join_error(member.joining, error, member_id))
        if member.syncing is not None:
            self.reply(member.syncing, SyncGroupResponse(error_code=error))

    def reply_joined(self, caller: Caller, member_id: str, *, skip_assignment: bool = False) -> None:
        """Answer a JoinGroup with the current generation; the leader gets the members, too."""
        group = self.group
        members: tuple[JoinGroupMember, ...] = ()
        if member_id == group.leader:
            members = tuple(
                JoinGroupMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.metadata(group.protocol_name) or b"",
                )
                for each in group.members.values()
            )
        self.reply(
            caller,
            JoinGroupResponse(
                generation_id=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=group.leader or "",
                skip_assignment=skip_assignment,
                member_id=member_id,
                members=members,
            ),
        )

    def reply_synced(self, caller: Caller, member: ClassicMember) -> None:
        self.reply(
            caller,
            SyncGroupResponse(
                protocol_type=self.group.protocol_type,
                protocol_name=self.group.protocol_name,
                assignment=member.assignment,
            ),
        )


def without_pending_requests(member: ClassicMember) -> ClassicMember:
    if member.joining is None and member.syncing is None and not member.is_new:
        return member
    return replace(member, joining=None, syncing=None, is_new=False)
