"""OffsetDelete, which librdkafka's Python binding lacks: makes a group forget what it has committed."""

from moldau.base.errors import WireError
from moldau.tools.common.failure import CommandError
from moldau.tools.connect import Target
from moldau.tools.group_admin import no_such_group, still_live
from moldau.tools.places import Place
from moldau.tools.requests import GROUP, await_passing, open_cluster, refusal
from moldau.wire.messages.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)


def forget_offsets(target: Target, group: str, places: list[Place]) -> dict[tuple[str, int], CommandError | None]:
    """What became of each partition: None for done."""
    topics = tuple(
        OffsetDeleteTopic(
            name=topic,
            partitions=tuple(
                OffsetDeletePartition(partition_index=place.partition) for place in places if place.topic == topic
            ),
        )
        for topic in sorted({place.topic for place in places})
    )
    request = OffsetDeleteRequest(group_id=group, topics=topics)
    with open_cluster(target) as cluster:
        answer = await_passing(
            lambda: cluster.broker(cluster.coordinator(GROUP, group)).ask(request, OffsetDeleteResponse),
            lambda response: response.error_code,
        )
    if answer.error_code:
        raise _refused_group(answer.error_code, group)
    return {
        (topic.name, row.partition_index): _refused_place(row.error_code, group, topic.name, row.partition_index)
        for topic in answer.topics
        for row in topic.partitions
    }


def _refused_group(code: int, group: str) -> CommandError:
    if code == WireError.GROUP_ID_NOT_FOUND:
        return no_such_group(group)
    if code == WireError.NON_EMPTY_GROUP:
        return still_live(group)
    return refusal(code, f"offsets of group {group!r} cannot be deleted")


def _refused_place(code: int, group: str, topic: str, partition: int) -> CommandError | None:
    if not code:
        return None
    if code == WireError.GROUP_SUBSCRIBED_TO_TOPIC:
        return CommandError(
            f"live members of group {group!r} are subscribed to {topic!r}",
            remedy=f"Stop them first; see them with: moldau group describe {group}",
        )
    return refusal(code, f"the offset of {Place(topic, partition)} cannot be deleted")
