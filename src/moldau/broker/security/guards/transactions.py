"""Guards of APIs about transactions and producer ids, and of FindCoordinator."""

from moldau.base.errors import WireError
from moldau.broker.security.gate import Narrowed, Verdict, Visitor, split
from moldau.broker.security.guards.groups import GROUP_FAILED
from moldau.broker.security.guards.topics import FAILED, with_topics
from moldau.metadata.image import INTERNAL_TOPICS
from moldau.security.acls import Operation
from moldau.wire.declare import replace
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartitionResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopic,
    TxnOffsetCommitTopicResponse,
)

ID_FAILED = WireError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_FAILED = WireError.CLUSTER_AUTHORIZATION_FAILED
BROKERS_SINCE = 4  # AddPartitionsToTxn: the version that brokers send
GROUPS, TRANSACTIONS = 0, 1  # key types of FindCoordinator


def find_coordinator(visitor: Visitor, request: FindCoordinatorRequest) -> Verdict:
    if request.key_type == GROUPS:
        may, error = visitor.may_group, GROUP_FAILED
    elif request.key_type == TRANSACTIONS:
        may, error = visitor.may_transactional_id, ID_FAILED
    else:
        return None  # the handler refuses it
    kept, refused = split(request.coordinator_keys, lambda key: may(Operation.DESCRIBE, key))
    rows = tuple(
        Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=error.doc) for key in refused
    )
    if not rows:
        return None
    if not kept:
        return FindCoordinatorResponse(coordinators=rows)

    def complete(answered: FindCoordinatorResponse) -> FindCoordinatorResponse:
        return replace(answered, coordinators=answered.coordinators + rows)

    return Narrowed(replace(request, coordinator_keys=kept), complete)


def init_producer_id(visitor: Visitor, request: InitProducerIdRequest) -> Verdict:
    """KIP-679: a producer that may write to any topic needs no right to write idempotently."""
    if request.transactional_id is not None:
        allowed, error = visitor.may_transactional_id(Operation.WRITE, request.transactional_id), ID_FAILED
    else:
        allowed, error = visitor.may_write_anywhere() or visitor.may_cluster(Operation.IDEMPOTENT_WRITE), CLUSTER_FAILED
    return None if allowed else InitProducerIdResponse(error_code=error, producer_epoch=-1)


def add_offsets_to_txn(visitor: Visitor, request: AddOffsetsToTxnRequest) -> Verdict:
    if not visitor.may_transactional_id(Operation.WRITE, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ID_FAILED)
    if not visitor.may_group(Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=GROUP_FAILED)
    return None


def end_txn(visitor: Visitor, request: EndTxnRequest) -> Verdict:
    allowed = visitor.may_transactional_id(Operation.WRITE, request.transactional_id)
    return None if allowed else EndTxnResponse(error_code=ID_FAILED)


def add_partitions_to_txn(visitor: Visitor, request: AddPartitionsToTxnRequest) -> Verdict:
    """From version 4 on it comes from brokers. One refused topic leaves all partitions of a transaction out."""
    if visitor.version >= BROKERS_SINCE:
        allowed = visitor.may_cluster(Operation.CLUSTER_ACTION)
        return None if allowed else AddPartitionsToTxnResponse(error_code=CLUSTER_FAILED)
    (only,) = request.transactions
    if not visitor.may_transactional_id(Operation.WRITE, only.transactional_id):
        return _none_added(only, dict.fromkeys((topic.name for topic in only.topics), ID_FAILED))
    refused = [
        topic.name
        for topic in only.topics
        if topic.name not in INTERNAL_TOPICS and not visitor.may_topic(Operation.WRITE, topic.name)
    ]
    if not refused:
        return None
    errors = dict.fromkeys(refused, FAILED)
    for topic in only.topics:
        if topic.name in INTERNAL_TOPICS:
            errors[topic.name] = FAILED
        elif topic.name not in visitor.image.topics:
            errors.setdefault(topic.name, WireError.UNKNOWN_TOPIC_OR_PARTITION)
    return _none_added(only, errors)


def _none_added(asked: AddPartitionsToTxnTransaction, errors: dict[str, WireError]) -> AddPartitionsToTxnResponse:
    topics = tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors.get(topic.name, WireError.OPERATION_NOT_ATTEMPTED),
                )
                for index in topic.partitions
            ),
        )
        for topic in asked.topics
    )
    result = AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics)
    return AddPartitionsToTxnResponse(results_by_transaction=(result,))


def txn_offset_commit(visitor: Visitor, request: TxnOffsetCommitRequest) -> Verdict:
    error = WireError.NONE
    if not visitor.may_transactional_id(Operation.WRITE, request.transactional_id):
        error = ID_FAILED
    elif not visitor.may_group(Operation.READ, request.group_id):
        error = GROUP_FAILED
    if error:
        return TxnOffsetCommitResponse(topics=tuple(_uncommitted(topic, error) for topic in request.topics))
    kept, refused = split(request.topics, lambda topic: visitor.may_topic(Operation.READ, topic.name))
    if not refused:
        return None
    rows = tuple(_uncommitted(topic, FAILED) for topic in refused)
    return with_topics(replace(request, topics=kept), TxnOffsetCommitResponse(topics=rows))


def _uncommitted(topic: TxnOffsetCommitTopic, error: WireError) -> TxnOffsetCommitTopicResponse:
    return TxnOffsetCommitTopicResponse(
        name=topic.name,
        partitions=tuple(
            TxnOffsetCommitPartitionResponse(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ),
    )


def describe_transactions(visitor: Visitor, request: DescribeTransactionsRequest) -> Verdict:
    """Of a transaction that may be described, only the topics are listed that may be described as well."""
    kept, refused = split(
        request.transactional_ids, lambda each: visitor.may_transactional_id(Operation.DESCRIBE, each)
    )
    rows = tuple(DescribedTransaction(error_code=ID_FAILED, transactional_id=each) for each in refused)
    if not kept:
        return DescribeTransactionsResponse(transaction_states=rows) if rows else None

    def seen(state: DescribedTransaction) -> DescribedTransaction:
        topics, _ = split(state.topics, lambda topic: visitor.may_topic(Operation.DESCRIBE, topic.topic))
        return replace(state, topics=topics)

    def complete(answered: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        return replace(answered, transaction_states=tuple(map(seen, answered.transaction_states)) + rows)

    return Narrowed(replace(request, transactional_ids=kept), complete)


def list_transactions(visitor: Visitor, request: ListTransactionsRequest) -> Verdict:
    def complete(answered: ListTransactionsResponse) -> ListTransactionsResponse:
        states, _ = split(
            answered.transaction_states,
            lambda state: visitor.may_transactional_id(Operation.DESCRIBE, state.transactional_id, log=False),
        )
        return replace(answered, transaction_states=states)

    return Narrowed(request, complete)
