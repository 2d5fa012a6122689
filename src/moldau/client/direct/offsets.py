"""Offsets by timestamp (ListOffsets) and committed offsets of groups (OffsetFetch, OffsetCommit).

Each call covers many partitions with as few requests as possible, and has a result for each partition.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct.failure import Failure, failure_of
from moldau.client.direct.metadata import GROUP, NETWORK, Cluster, Leader, network_failure
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
BY_NAME: Final = 9  # the last versions of OffsetCommit and OffsetFetch with topic names


class OffsetAndTimestamp(NamedTuple):
    """An offset and the timestamp of its record; -1 and -1 if no record is that late, timestamp -1 for a log end."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class OffsetAndMetadata(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


ListedOffsets: TypeAlias = dict[TopicPartition, OffsetAndTimestamp | Failure]


def list_offsets(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    *,
    isolation: int = READ_UNCOMMITTED,
    await_topics: bool = True,
) -> ListedOffsets:
    """The first offset at or after each partition's time (ms), or EARLIEST, LATEST, MAX_TIMESTAMP.

    Under READ_COMMITTED the latest is the last stable offset. As in Kafka's clients, a missing topic or partition is
    waited for; without `await_topics` it fails at once.
    """
    retries = cluster.retries()
    listed: ListedOffsets = {}
    left = dict(times)
    while left:
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in left:
            leader = cluster.leader(tp, retries)
            if isinstance(leader, Leader):
                by_node.setdefault(leader.node_id, []).append(tp)
            else:
                listed[tp] = leader
        for node_id, partitions in by_node.items():
            listed |= _ask_leader(cluster, node_id, {tp: left[tp] for tp in partitions}, isolation)
        left = {tp: times[tp] for tp in left if _should_retry(listed[tp], await_topics)}
        if left:
            cluster.forget(*{tp.topic for tp in left})
            if not retries.again():
                break
    return listed


def _should_retry(response: OffsetAndTimestamp | Failure, await_topics: bool) -> bool:
    if not isinstance(response, Failure) or not response.retriable:
        return False
    return await_topics or response.code != WireError.UNKNOWN_TOPIC_OR_PARTITION


def _ask_leader(cluster: Cluster, node_id: int, times: Mapping[TopicPartition, int], isolation: int) -> ListedOffsets:
    topics = tuple(
        ListOffsetsTopic(
            name=name,
            partitions=tuple(
                ListOffsetsPartition(partition_index=tp.partition, timestamp=times[tp]) for tp in partitions
            ),
        )
        for name, partitions in by_topic(times)
    )
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=int(cluster.timeout_s * 1000)
    )
    since = 7 if MAX_TIMESTAMP in times.values() else 2 if isolation else 1
    try:
        response = cluster.broker(node_id).ask(request, ListOffsetsResponse, since=since)
    except NETWORK as error:
        return dict.fromkeys(times, network_failure(f"broker {node_id}", error))
    silent = failure_of(WireError.UNKNOWN_SERVER_ERROR, "the leader's response lacks the partition")
    return dict.fromkeys(times, silent) | {
        TopicPartition(topic.name, part.partition_index): failure_of(
            part.error_code, f"ListOffsets of {topic.name}-{part.partition_index}"
        )
        if part.error_code
        else OffsetAndTimestamp(part.offset, part.timestamp, part.leader_epoch)
        for topic in response.topics
        for part in topic.partitions
    }


def committed(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = True
) -> dict[TopicPartition, OffsetAndMetadata | Failure] | Failure:
    """Committed offsets of a group, for these partitions or all. Partitions without one are left out.

    `require_stable` waits while an open transaction may still change an offset (KIP-447).
    """
    topics = None
    if partitions is not None:
        topics = tuple(
            OffsetFetchTopic(name=name, partition_indexes=tuple(tp.partition for tp in listed))
            for name, listed in by_topic(partitions)
        )
    request = OffsetFetchRequest(
        groups=(OffsetFetchGroup(group_id=group, topics=topics),), require_stable=require_stable
    )
    response = cluster.ask_coordinator(
        GROUP, group, request, OffsetFetchResponse, _fetch_error, since=7 if require_stable else 2, until=BY_NAME
    )
    if isinstance(response, Failure):
        return response
    return {
        TopicPartition(topic.name, part.partition_index): failure_of(
            part.error_code, f"OffsetFetch of {topic.name}-{part.partition_index} for {group!r}"
        )
        if part.error_code
        else OffsetAndMetadata(part.committed_offset, part.metadata or "", part.committed_leader_epoch)
        for topic in response.groups[0].topics
        for part in topic.partitions
        if part.error_code or part.committed_offset >= 0
    }


def _fetch_error(response: OffsetFetchResponse) -> int:
    """The error to retry on: the group's, or UNSTABLE_OFFSET_COMMIT of any partition."""
    group = response.groups[0]
    if group.error_code:
        return group.error_code
    codes = {part.error_code for topic in group.topics for part in topic.partitions}
    return WireError.UNSTABLE_OFFSET_COMMIT if WireError.UNSTABLE_OFFSET_COMMIT in codes else WireError.NONE


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Failure | None:
    """Commit offsets of a group without members; returns the first error of any partition."""
    request = OffsetCommitRequest(
        group_id=group,
        topics=tuple(
            OffsetCommitTopic(
                name=name,
                partitions=tuple(
                    OffsetCommitPartition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp].offset,
                        committed_leader_epoch=offsets[tp].leader_epoch,
                        committed_metadata=offsets[tp].metadata,
                    )
                    for tp in partitions
                ),
            )
            for name, partitions in by_topic(offsets)
        ),
    )
    response = cluster.ask_coordinator(GROUP, group, request, OffsetCommitResponse, _commit_error, until=BY_NAME)
    return response if isinstance(response, Failure) else None


def _commit_error(response: OffsetCommitResponse) -> int:
    return next((part.error_code for topic in response.topics for part in topic.partitions if part.error_code), 0)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Partitions grouped by topic, as requests list them."""
    return [(name, list(listed)) for name, listed in groupby(sorted(partitions), key=lambda tp: tp.topic)]
