"""The range assignor: of every topic each member gets a run of partitions, in the same order of members for all topics.

So topics with equally many partitions and the same subscribers are co-partitioned: who reads partition 3 of one reads
partition 3 of the other. Static members come first, by their instance ids, which keeps their runs over restarts. It is
not sticky otherwise.
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
        for member_id, run in zip(member_ids, _runs(counts[topic_id], len(member_ids)), strict=False):
            assigned[member_id][topic_id] = frozenset(run)
    return dict(assigned)


def _order(member_id: str, member: MemberSubscription) -> tuple[bool, str]:
    return (member.instance_id is None, member_id if member.instance_id is None else member.instance_id)


def _runs(partitions: int, members: int) -> list[range]:
    """Runs that are not empty, the longer ones first; with more members than partitions there are fewer runs."""
    least, extra = divmod(partitions, members)
    ends = [least * (number + 1) + min(number + 1, extra) for number in range(min(members, partitions))]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
