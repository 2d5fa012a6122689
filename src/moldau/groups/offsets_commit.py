"""Committing offsets, plainly or within a transaction: who may, for which partitions, and what is written.

OffsetCommit 2–10 and TxnOffsetCommit 0–5. The checks of members and generations are the group's own.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from moldau.base.coordination import Caller, Decision, Record, Timer
from moldau.base.errors import WireError
from moldau.groups import classic, consumer_reads
from moldau.groups.classic import ClassicGroup, State
from moldau.groups.classic_draft import Draft
from moldau.groups.consumer_state import ConsumerGroup
from moldau.groups.env import Env, Topics, TopicView
from moldau.groups.offsets_packed import group_head, pack_expiring_value, pack_value, place_of, topic_head
from moldau.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitPartitionResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopicResponse,
)
from moldau.wire.primitives import ZERO_UUID

BY_TOPIC_ID: Final = 10  # from this version on requests name topics by their ids
MEMBERS_OF_BOTH_KINDS: Final = 9  # from this version on clients know GROUP_ID_NOT_FOUND
AS_CONFIGURED: Final = -1  # a retention time

VALIDATE: Final[Mapping[type, Callable[..., WireError]]] = {
    ClassicGroup: classic.validate_commit,
    ConsumerGroup: consumer_reads.validate_commit,
}

Partition = OffsetCommitPartition | TxnOffsetCommitPartition
TopicName = tuple[str, UUID]  # a topic as the request has it
Outcomes = list[tuple[int, WireError]]  # by partition
Refused = dict[TopicName, Outcomes]  # partitions that do not exist
Answers = list[tuple[TopicName, Outcomes]]


class Known(NamedTuple):
    """Partitions of a topic that exist."""

    topic: TopicName
    view: TopicView
    partitions: list[Any]


def commit(group: Any, request: OffsetCommitRequest, caller: Caller, env: Env) -> Decision:
    known, refused = _sorted_out(request, caller.version, env.topics)
    # As in Kafka the group is not asked where there is nothing to commit.
    error = _check(group, request, caller, known) if known else WireError.NONE
    now, retention = env.now, request.retention_time_ms

    def value(view: TopicView, partition: Partition) -> bytes:
        metadata = partition.committed_metadata or ""
        if retention != AS_CONFIGURED:
            return pack_expiring_value(partition.committed_offset, metadata, now, now + retention)
        return pack_value(partition.committed_offset, partition.committed_leader_epoch, metadata, now, view.id)

    records, answers = _settle(known, refused, error, request.group_id, value, env.config.offset_metadata_max_bytes)
    decision = Decision(records=records, replies=[(caller.token, _response(answers))])
    if known and error is WireError.NONE and isinstance(group, ClassicGroup):
        decision.timers += _heard_of(group, request.member_id, env)
    return decision


def refuse(request: OffsetCommitRequest, error: WireError, version: int, topics: Topics) -> OffsetCommitResponse:
    """The answer where the group cannot be asked."""
    known, refused = _sorted_out(request, version, topics)
    return _response(_settle(known, refused, error, request.group_id)[1])


def commit_in_transaction(group: Any, request: TxnOffsetCommitRequest, caller: Caller, env: Env) -> Decision:
    known, refused = _txn_sorted_out(request, env.topics)
    error = _check_in_transaction(group, request, caller, known) if known else WireError.NONE

    def value(_view: TopicView, partition: Partition) -> bytes:
        # Kafka writes no topic id here: the request has none.
        metadata = partition.committed_metadata or ""
        return pack_value(partition.committed_offset, partition.committed_leader_epoch, metadata, env.now, ZERO_UUID)

    records, answers = _settle(known, refused, error, request.group_id, value, env.config.offset_metadata_max_bytes)
    return Decision(
        records=records,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        replies=[(caller.token, _txn_response(answers))],
    )


def refuse_in_transaction(request: TxnOffsetCommitRequest, error: WireError, topics: Topics) -> TxnOffsetCommitResponse:
    known, refused = _txn_sorted_out(request, topics)
    return _txn_response(_settle(known, refused, error, request.group_id)[1])


def has_something(request: TxnOffsetCommitRequest, topics: Topics) -> bool:
    """Whether any partition of the request exists: if not, nobody is asked about the transaction either."""
    return bool(_txn_sorted_out(request, topics)[0])


# -- which partitions


def _sorted_out(request: OffsetCommitRequest, version: int, topics: Topics) -> tuple[list[Known], Refused]:
    asked: Iterable[tuple[TopicName, TopicView | None, Any]]
    if version >= BY_TOPIC_ID:
        asked = (((each.name, each.topic_id), topics.by_id.get(each.topic_id), each) for each in request.topics)
        return _known(asked, WireError.UNKNOWN_TOPIC_ID)
    asked = (((each.name, ZERO_UUID), topics.by_name.get(each.name), each) for each in request.topics)
    return _known(asked, WireError.UNKNOWN_TOPIC_OR_PARTITION)


def _txn_sorted_out(request: TxnOffsetCommitRequest, topics: Topics) -> tuple[list[Known], Refused]:
    asked = (((each.name, ZERO_UUID), topics.by_name.get(each.name), each) for each in request.topics)
    return _known(asked, WireError.UNKNOWN_TOPIC_OR_PARTITION)


def _known(asked: Iterable[tuple[TopicName, TopicView | None, Any]], absent: WireError) -> tuple[list[Known], Refused]:
    """The partitions that exist, and those that do not."""
    known: list[Known] = []
    refused: Refused = {}
    for topic, view, each in asked:
        if view is None:
            refused.setdefault(topic, []).extend((one.partition_index, absent) for one in each.partitions)
            continue
        there: list[Any] = []
        missing: list[Any] = []
        for one in each.partitions:
            (there if 0 <= one.partition_index < view.partitions else missing).append(one)
        if missing:
            wrong = WireError.UNKNOWN_TOPIC_OR_PARTITION
            refused.setdefault(topic, []).extend((one.partition_index, wrong) for one in missing)
        if there:
            known.append(Known(topic, view, there))
    return known, refused


# -- who may


def _check(group: Any, request: OffsetCommitRequest, caller: Caller, known: list[Known]) -> WireError:
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return WireError.NONE  # no member of any group: the first commit makes a simple one
        too_old = caller.version < MEMBERS_OF_BOTH_KINDS
        return WireError.ILLEGAL_GENERATION if too_old else WireError.GROUP_ID_NOT_FOUND
    return _validated(group, request.member_id, request.group_instance_id, generation, False, caller, known)


def _check_in_transaction(group: Any, request: TxnOffsetCommitRequest, caller: Caller, known: list[Known]) -> WireError:
    if not request.group_id:
        return WireError.INVALID_GROUP_ID
    generation = request.generation_id
    if group is None:
        return WireError.NONE if generation < 0 else WireError.ILLEGAL_GENERATION
    error = _validated(group, request.member_id, request.group_instance_id, generation, True, caller, known)
    # Producers know of generations alone.
    return WireError.ILLEGAL_GENERATION if error is WireError.STALE_MEMBER_EPOCH else error


def _validated(
    group: Any,
    member_id: str,
    instance_id: str | None,
    generation: int,
    transactional: bool,
    caller: Caller,
    known: list[Known],
) -> WireError:
    error = VALIDATE[type(group)](group, member_id, instance_id, generation, transactional, caller.version)
    if error is WireError.NONE and isinstance(group, ConsumerGroup):
        partitions = ((topic.view.id, each.partition_index) for topic in known for each in topic.partitions)
        return consumer_reads.validate_partitions(group, member_id, generation, partitions)
    return error


def _heard_of(group: ClassicGroup, member_id: str, env: Env) -> list[Timer]:
    """A classic member that commits is alive, as if it had sent a heartbeat."""
    member = group.members.get(member_id)
    if member is None or group.state not in (State.STABLE, State.PREPARING):
        return []
    draft = Draft(group, env)
    draft.expect_heartbeat(member)
    return draft.decision.timers


# -- what is written


def _settle(
    known: list[Known],
    refused: Refused,
    error: WireError,
    group_id: str,
    value: Callable[[TopicView, Any], bytes] = lambda view, partition: b"",
    limit: int = 0,
) -> tuple[list[Record], Answers]:
    """The records, and what became of each partition: what is refused comes first, as in Kafka."""
    records: list[Record] = []
    answers: Answers = list(refused.items())
    group = group_head(group_id)
    for topic, view, partitions in known:
        answer = refused.get(topic)
        if answer is None:
            answer = []
            answers.append((topic, answer))
        if error is not WireError.NONE:
            answer.extend((each.partition_index, error) for each in partitions)
            continue
        head = group + topic_head(view.name)
        for each in partitions:
            if _too_long(each.committed_metadata, limit):
                answer.append((each.partition_index, WireError.OFFSET_METADATA_TOO_LARGE))
                continue
            records.append(Record(place_of(head, each.partition_index), value(view, each)))
            answer.append((each.partition_index, WireError.NONE))
    return records, answers


def _too_long(metadata: str | None, limit: int) -> bool:
    """In Kafka offset.metadata.max.bytes counts Java's characters, of which some take two."""
    if metadata is None or 2 * len(metadata) <= limit:
        return False
    return len(metadata.encode("utf-16-le")) // 2 > limit


def _response(answers: Answers) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitTopicResponse(
                name=name,
                topic_id=topic_id,
                partitions=tuple(
                    OffsetCommitPartitionResponse(partition_index=partition, error_code=error)
                    for partition, error in partitions
                ),
            )
            for (name, topic_id), partitions in answers
        )
    )


def _txn_response(answers: Answers) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitTopicResponse(
                name=name,
                partitions=tuple(
                    TxnOffsetCommitPartitionResponse(partition_index=partition, error_code=error)
                    for partition, error in partitions
                ),
            )
            for (name, _), partitions in answers
        )
    )
