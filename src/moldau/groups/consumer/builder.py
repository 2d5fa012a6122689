"""ConsumerDecisionBuilder: collects a decision about a consumer group and applies each record to its copy of the group.

So the next step of a decision sees the group with the records so far, exactly as applying or loading them will.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from moldau.base.coordination import Caller, Decision, Record, Timer, TimerKey
from moldau.base.ids import Epoch
from moldau.groups.consumer.group import (
    AssignedPartitions,
    Assignment,
    ConsumerGroup,
    ConsumerGroupKey,
    Member,
    RegexProgress,
    RegexProgressChanged,
    RejoinChanged,
    ResolvedRegex,
    TransientChange,
    apply_change,
)
from moldau.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)

# Purposes of timers. A key is the purpose, the group id and, for timers of members, the member id.
SESSION: Final = "session"  # no heartbeat
REBALANCE: Final = "rebalance"  # partitions are not revoked
JOIN: Final = "join"  # a classic member does not rejoin
SYNC: Final = "sync"  # a classic member joined and sends no SyncGroup
MEMBER_TIMERS: Final = (SESSION, REBALANCE, JOIN, SYNC)
REGEX: Final = "regex"  # regular expressions are due for resolution


def timer_key(purpose: str, group_id: str, member_id: str | None) -> TimerKey:
    return (purpose, group_id) if member_id is None else (purpose, group_id, member_id)


class ConsumerDecisionBuilder:
    """The group with the records so far, and the decision."""

    def __init__(self, group: ConsumerGroup | None, group_id: str) -> None:
        self.group = group or ConsumerGroup(group_id)
        self.decision = Decision()

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def write(self, key: ConsumerGroupKey, value: object) -> None:
        record = Record(key, value)
        self.decision.records.append(record)
        self.group = apply_change(self.group, record) or ConsumerGroup(self.group_id)

    def reply(self, caller: Caller, response: object) -> Decision:
        """The finished decision, with its response."""
        self.decision.replies.append((caller.token, response))
        return self.decision

    def set_timer(self, purpose: str, member_id: str | None, at: int | None) -> None:
        self.decision.timers.append(Timer(timer_key(purpose, self.group_id, member_id), at))

    def cancel_timers(self, member_id: str) -> None:
        for purpose in MEMBER_TIMERS:
            self.set_timer(purpose, member_id, None)

    def ask_to_rejoin(self, member: Member, now: int) -> None:
        """Have a classic member rejoin within its rebalance timeout, counted from the first request to do so."""
        if member.id not in self.group.rejoining:
            self._apply_transient(RejoinChanged(self.group_id, member.id, waiting=True))
            self.set_timer(JOIN, member.id, now + member.rebalance_timeout_ms)

    def has_rejoined(self, member_id: str) -> None:
        if member_id in self.group.rejoining:
            self._apply_transient(RejoinChanged(self.group_id, member_id, waiting=False))
        self.set_timer(JOIN, member_id, None)

    def set_regex_progress(self, progress: RegexProgress | None) -> None:
        if progress != self.group.regex_progress:
            self._apply_transient(RegexProgressChanged(self.group_id, progress))

    def _apply_transient(self, change: TransientChange) -> None:
        self.decision.transient.append(change)
        self.group = apply_change(self.group, change) or self.group

    # Records

    def write_epoch(self, epoch: Epoch, metadata_hash: int) -> None:
        self.write(
            ConsumerGroupMetadataKey(group_id=self.group_id),
            ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
        )

    def write_member(self, member: Member) -> None:
        self.write(
            ConsumerGroupMemberMetadataKey(group_id=self.group_id, member_id=member.id),
            ConsumerGroupMemberMetadataValue(
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=tuple(sorted(member.topics)),
                subscribed_topic_regex=member.regex,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                server_assignor=member.assignor,
                classic_member_metadata=member.classic,
            ),
        )

    def write_current(self, member: Member) -> None:
        self.write(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=member.id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=member.epoch,
                previous_member_epoch=member.previous_epoch,
                state=member.state,
                assigned_partitions=_current(member.assigned),
                partitions_pending_revocation=_current(member.pending_revocation),
            ),
        )

    def write_target(self, member_id: str, target: Assignment) -> None:
        self.write(
            ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id),
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=tuple(
                    TargetTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
                    for topic_id, partitions in target.items()
                )
            ),
        )

    def write_target_metadata(self, epoch: Epoch, now: int) -> None:
        self.write(
            ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now),
        )

    def write_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        self.write(
            ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex),
            ConsumerGroupRegularExpressionValue(
                topics=tuple(sorted(resolved.topics)), version=resolved.version, timestamp=resolved.at
            ),
        )

    # Tombstones

    def delete_regex(self, regex: str) -> None:
        self.write(ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex), None)

    def delete_partition_metadata(self) -> None:
        self.write(ConsumerGroupPartitionMetadataKey(group_id=self.group_id), None)

    def delete_member(self, member_id: str) -> None:
        """Kafka cannot load a member's tombstone before those of its assignments: keep this order."""
        self._delete_currents((member_id,))
        self._delete_targets((member_id,))
        self._delete_members((member_id,))
        self.cancel_timers(member_id)

    def delete_group(self) -> None:
        """Write tombstones of all records of the group, in an order that Kafka can load."""
        member_ids = tuple(self.group.members)
        self._delete_currents(member_ids)
        self._delete_targets(member_ids)
        self.write(ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), None)
        self._delete_members(member_ids)
        for regex in tuple(self.group.regexes):
            self.delete_regex(regex)
        self.delete_partition_metadata()
        self.write(ConsumerGroupMetadataKey(group_id=self.group_id), None)
        for member_id in member_ids:
            self.cancel_timers(member_id)

    def _delete_currents(self, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self.write(ConsumerGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=member_id), None)

    def _delete_targets(self, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self.write(ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id), None)

    def _delete_members(self, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self.write(ConsumerGroupMemberMetadataKey(group_id=self.group_id, member_id=member_id), None)


def _current(assigned: AssignedPartitions) -> tuple[CurrentTopicPartitions, ...]:
    return tuple(_current_topic(topic_id, partitions) for topic_id, partitions in assigned.items())


def _current_topic(topic_id: UUID, partitions: Mapping[int, int]) -> CurrentTopicPartitions:
    order = sorted(partitions)
    return CurrentTopicPartitions(
        topic_id=topic_id, partitions=tuple(order), assignment_epochs=tuple(partitions[each] for each in order)
    )
