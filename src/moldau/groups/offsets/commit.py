"""OffsetCommit 2–10 and TxnOffsetCommit 0–5: validation, records and responses.

The checks of members and generations are in `classic` and `consumer`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final
from uuid import UUID

from moldau.base.coordination import Caller, Decision, Record, Timer
from moldau.base.errors import WireError
from moldau.groups.classic import group as classic_group
from moldau.groups.classic.builder import ClassicDecisionBuilder
from moldau.groups.classic.group import ClassicGroup, State
from moldau.groups.consumer import reads as consumer_reads
from moldau.groups.consumer.group import ConsumerGroup, Group
from moldau.groups.environment import GroupEnvironment, Topics, TopicView
from moldau.groups.offsets.packed import (
    group_prefix,
    pack_expiring_value,
    pack_partition,
    pack_topic,
    pack_value,
    value_suffix,
)
from moldau.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitPartitionResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopic,
    TxnOffsetCommitTopicResponse,
)
from moldau.wire.primitives import ZERO_UUID

BY_TOPIC_ID: Final = 10  # from this version on requests have topic ids
MEMBER_EPOCH_SINCE: Final = 9  # from this version on clients handle GROUP_ID_NOT_FOUND
DEFAULT_RETENTION: Final = -1  # in a request: offsets.retention.minutes
NO_EXPIRATION: Final = -1  # without an expire timestamp
MAX_TIMESTAMP: Final = 2**63 - 1  # old clients send it as retention time
RESULTS_CACHED: Final = 1024

VALIDATE: Final[Mapping[type, Callable[..., WireError]]] = {
    ClassicGroup: classic_group.validate_commit,
    ConsumerGroup: consumer_reads.validate_commit,
}

RequestedTopic = tuple[str, UUID]  # name and id as in the request
PartitionResults = list[tuple[int, WireError]]  # by partition
MissingPartitions = dict[RequestedTopic, PartitionResults]  # partitions that do not exist
TopicResults = list[tuple[RequestedTopic, PartitionResults]]


class ExistingTopic:
    """Partitions of a request that exist."""

    __slots__ = ("partitions", "topic", "view")

    def __init__(
        self,
        topic: RequestedTopic,
        view: TopicView,
        partitions: list[OffsetCommitPartition | TxnOffsetCommitPartition],
    ) -> None:
        self.topic = topic
        self.view = view
        self.partitions = partitions


class CommitOptions:
    """Common to all records of a request."""

    __slots__ = ("expires", "group_id", "max_metadata", "now", "with_topic_ids")

    def __init__(self, group_id: str, now: int, expires: int, with_topic_ids: bool, max_metadata: int) -> None:
        self.group_id = group_id
        self.now = now
        self.expires = expires  # expire timestamp, or NO_EXPIRATION
        self.with_topic_ids = with_topic_ids
        self.max_metadata = max_metadata


def commit(group: Group | None, request: OffsetCommitRequest, caller: Caller, env: GroupEnvironment) -> Decision:
    existing, missing = _existing_and_missing(request.topics, env.topics, caller.version >= BY_TOPIC_ID)
    # As in Kafka the group is not checked if no partition exists.
    error = _check(group, request, caller, existing) if existing else WireError.NONE
    retention = request.retention_time_ms
    expires = NO_EXPIRATION if retention == DEFAULT_RETENTION else min(env.now + retention, MAX_TIMESTAMP)
    options = CommitOptions(request.group_id, env.now, expires, True, env.config.offset_metadata_max_bytes)
    records, results = _records_and_results(existing, missing, error, options)
    decision = Decision(records=records, replies=[(caller.token, _response(results))])
    if existing and error is WireError.NONE and isinstance(group, ClassicGroup):
        decision.timers += _session_timers(group, request.member_id, env)
    return decision


def refuse(request: OffsetCommitRequest, error: WireError, version: int, topics: Topics) -> OffsetCommitResponse:
    """The response if the coordinator is not available."""
    existing, missing = _existing_and_missing(request.topics, topics, version >= BY_TOPIC_ID)
    return _response(_refuse(existing, missing, error))


def commit_in_transaction(
    group: Group | None, request: TxnOffsetCommitRequest, caller: Caller, env: GroupEnvironment
) -> Decision:
    existing, missing = _existing_and_missing(request.topics, env.topics)
    error = _check_in_transaction(group, request, caller, existing) if existing else WireError.NONE
    # As in Kafka without topic ids: the request has none.
    options = CommitOptions(request.group_id, env.now, NO_EXPIRATION, False, env.config.offset_metadata_max_bytes)
    records, results = _records_and_results(existing, missing, error, options)
    return Decision(
        records=records,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        replies=[(caller.token, _txn_response(results))],
    )


def refuse_in_transaction(request: TxnOffsetCommitRequest, error: WireError, topics: Topics) -> TxnOffsetCommitResponse:
    existing, missing = _existing_and_missing(request.topics, topics)
    return _txn_response(_refuse(existing, missing, error))


def has_existing_partition(request: TxnOffsetCommitRequest, topics: Topics) -> bool:
    """Whether a partition of the request exists; otherwise the transaction is not verified."""
    return bool(_existing_and_missing(request.topics, topics)[0])


# -- partitions of the request


def _existing_and_missing(
    requested: Iterable[OffsetCommitTopic | TxnOffsetCommitTopic], topics: Topics, by_id: bool = False
) -> tuple[list[ExistingTopic], MissingPartitions]:
    """The partitions that exist, and those that do not."""
    existing: list[ExistingTopic] = []
    missing: MissingPartitions = {}
    for each in requested:
        if by_id and isinstance(each, OffsetCommitTopic):
            topic, view = (each.name, each.topic_id), topics.by_id.get(each.topic_id)
        else:
            topic, view = (each.name, ZERO_UUID), topics.by_name.get(each.name)
        if view is None:
            error = WireError.UNKNOWN_TOPIC_ID if by_id else WireError.UNKNOWN_TOPIC_OR_PARTITION
            missing.setdefault(topic, []).extend([(one.partition_index, error) for one in each.partitions])
            continue
        count = view.partitions
        there = [one for one in each.partitions if 0 <= one.partition_index < count]
        if len(there) < len(each.partitions):
            absent = [one.partition_index for one in each.partitions if not 0 <= one.partition_index < count]
            error = WireError.UNKNOWN_TOPIC_OR_PARTITION
            missing.setdefault(topic, []).extend([(partition, error) for partition in absent])
        if there:
            existing.append(ExistingTopic(topic, view, there))
    return existing, missing


# -- validation


def _check(
    group: Group | None, request: OffsetCommitRequest, caller: Caller, existing: list[ExistingTopic]
) -> WireError:
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return WireError.NONE  # without members: the first commit creates a simple group
        too_old = caller.version < MEMBER_EPOCH_SINCE
        return WireError.ILLEGAL_GENERATION if too_old else WireError.GROUP_ID_NOT_FOUND
    return _validated(group, request.member_id, request.group_instance_id, generation, False, caller, existing)


def _check_in_transaction(
    group: Group | None, request: TxnOffsetCommitRequest, caller: Caller, existing: list[ExistingTopic]
) -> WireError:
    if not request.group_id:
        return WireError.INVALID_GROUP_ID
    generation = request.generation_id
    if group is None:
        return WireError.NONE if generation < 0 else WireError.ILLEGAL_GENERATION
    error = _validated(group, request.member_id, request.group_instance_id, generation, True, caller, existing)
    # Producers handle errors of generations only.
    return WireError.ILLEGAL_GENERATION if error is WireError.STALE_MEMBER_EPOCH else error


def _validated(
    group: Group | None,
    member_id: str,
    instance_id: str | None,
    generation: int,
    transactional: bool,
    caller: Caller,
    existing: list[ExistingTopic],
) -> WireError:
    error = VALIDATE[type(group)](group, member_id, instance_id, generation, transactional, caller.version)
    if error is WireError.NONE and isinstance(group, ConsumerGroup):
        partitions = ((topic.view.id, each.partition_index) for topic in existing for each in topic.partitions)
        return consumer_reads.validate_partitions(group, member_id, generation, partitions)
    return error


def _session_timers(group: ClassicGroup, member_id: str, env: GroupEnvironment) -> list[Timer]:
    """A commit of a classic member counts as a heartbeat."""
    member = group.members.get(member_id)
    if member is None or group.state not in (State.STABLE, State.PREPARING):
        return []
    builder = ClassicDecisionBuilder(group, env)
    builder.reset_session_timer(member)
    return builder.decision.timers


# -- records


def _records_and_results(
    existing: list[ExistingTopic], missing: MissingPartitions, error: WireError, options: CommitOptions
) -> tuple[list[Record], TopicResults]:
    """The records, and the results by partition."""
    if error is not WireError.NONE:
        return [], _refuse(existing, missing, error)
    now, expires = options.now, options.expires
    records: list[Record] = []
    results: TopicResults = list(missing.items())
    group = group_prefix(options.group_id)
    for topic in existing:
        view = topic.view
        topic_results = _results_of(topic.topic, missing, results)
        head = group + pack_topic(view.name)
        tail = value_suffix(now, view.id if options.with_topic_ids else ZERO_UUID)
        for each in topic.partitions:
            partition, metadata = each.partition_index, each.committed_metadata
            if metadata and _too_long(metadata, options.max_metadata):
                topic_results.append((partition, WireError.OFFSET_METADATA_TOO_LARGE))
                continue
            if expires == NO_EXPIRATION:
                value = pack_value(each.committed_offset, each.committed_leader_epoch, metadata, tail)
            else:
                value = pack_expiring_value(each.committed_offset, metadata, now, expires)
            records.append(Record(pack_partition(head, partition), value))
            topic_results.append((partition, WireError.NONE))
    return records, results


def _refuse(existing: list[ExistingTopic], missing: MissingPartitions, error: WireError) -> TopicResults:
    results: TopicResults = list(missing.items())
    for topic in existing:
        refused = [(each.partition_index, error) for each in topic.partitions]
        _results_of(topic.topic, missing, results).extend(refused)
    return results


def _results_of(topic: RequestedTopic, missing: MissingPartitions, results: TopicResults) -> PartitionResults:
    """The list for a topic's results, behind those of missing partitions, as in Kafka."""
    topic_results = missing.get(topic)
    if topic_results is None:
        topic_results = []
        results.append((topic, topic_results))
    return topic_results


def _too_long(metadata: str, limit: int) -> bool:
    """offset.metadata.max.bytes counts UTF-16 code units in Kafka."""
    return 2 * len(metadata) > limit and len(metadata.encode("utf-16-le")) // 2 > limit


# -- responses


@lru_cache(RESULTS_CACHED)
def _result(partition: int, error: WireError) -> OffsetCommitPartitionResponse:
    """Cached: nearly always the same few values."""
    return OffsetCommitPartitionResponse(partition_index=partition, error_code=error)


def _response(results: TopicResults) -> OffsetCommitResponse:
    topics = [
        OffsetCommitTopicResponse(
            name=name, topic_id=topic_id, partitions=tuple([_result(partition, error) for partition, error in outcomes])
        )
        for (name, topic_id), outcomes in results
    ]
    return OffsetCommitResponse(topics=tuple(topics))


def _txn_response(results: TopicResults) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitTopicResponse(
                name=name,
                partitions=tuple(
                    TxnOffsetCommitPartitionResponse(partition_index=partition, error_code=error)
                    for partition, error in outcomes
                ),
            )
            for (name, _), outcomes in results
        )
    )
