"""Reads of a classic group: describe, list, subscribed topics, and whether the group or its offsets may be deleted."""

from moldau.base.errors import WireError
from moldau.groups.classic.group import TRANSITIONS, ClassicGroup, State
from moldau.wire.codec import MalformedMessage
from moldau.wire.messages.consumer_protocol import PROTOCOL_TYPE, read_subscription
from moldau.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from moldau.wire.messages.list_groups import ListedGroup


def validate_offset_delete(group: ClassicGroup) -> WireError:
    """Offsets of a group with members may be deleted only if its subscription is known (KIP-496)."""
    if group.state is State.EMPTY or group.protocol_type == PROTOCOL_TYPE:
        return WireError.NONE
    return WireError.NON_EMPTY_GROUP


def validate_delete(group: ClassicGroup) -> WireError:
    return WireError.NONE if State.DEAD in TRANSITIONS[group.state] else WireError.NON_EMPTY_GROUP


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that members subscribe to; None if unknown."""
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        metadata = member.metadata(group.protocol_name)
        if metadata is None:
            return None
        try:
            topics.update(read_subscription(metadata).topics)
        except MalformedMessage:
            return None
    return frozenset(topics)


def is_subscribed(group: ClassicGroup, topic: str) -> bool:
    """Consumers with an unknown subscription may read any topic."""
    topics = subscribed_topics(group)
    return group.protocol_type == PROTOCOL_TYPE if topics is None else topic in topics


def describe(group: ClassicGroup) -> DescribedGroup:
    """Members' metadata is shown for a stable group only, as in Kafka."""
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=(member.metadata(group.protocol_name) or b"") if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state,
        group_type="classic",
    )
