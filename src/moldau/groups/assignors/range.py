"""The range assignor: each member gets a contiguous range of every topic, in the same order of members for all topics.

So topics with the same number of partitions and the same subscribers are co-partitioned. Static members come first,
sorted by instance id, and keep their ranges over restarts. Otherwise it is not sticky.
"""

from collections.abc import Mapping
from uuid import UUID

from moldau.groups.assignors.assignor import Assignment, MemberSubscription, PartitionCounts


def assign(members: Mapping[str, MemberSubscription], counts: PartitionCounts) -> dict[str, Assignment]:
    subscribers: dict[UUID, list[str]] = {}
    for member_id in sorted(members, key=lambda each: _order(each, members[each])):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers.items():
        for member_id, run in zip(member_ids, _ranges(counts[topic_id], len(member_ids)), strict=False):
            assigned[member_id][topic_id] = frozenset(run)
    return dict(assigned)


def _order(member_id: str, member: MemberSubscription) -> tuple[bool, str]:
    return (member.instance_id is None, member_id if member.instance_id is None else member.instance_id)


def _ranges(partitions: int, members: int) -> list[range]:
    """Non-empty ranges, longer ones first; fewer than members if there are fewer partitions."""
    least, extra = divmod(partitions, members)
    ends = [least * (number + 1) + min(number + 1, extra) for number in range(min(members, partitions))]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
