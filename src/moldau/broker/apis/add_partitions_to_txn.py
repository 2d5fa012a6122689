"""AddPartitionsToTxn 0–5: partitions join a transaction, all or none. 2: PRODUCER_FENCED.

4: batches of transactions, which may also be verified only (KIP-890): brokers send it to coordinators for their
producers. Clients stay at 3, and those of transaction version 2 do not send it at all.
"""

from collections.abc import Mapping

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.base.later import NowOrLater, chain, gather
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.broker.internal_topics import OFFSETS, TRANSACTIONS
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

PRODUCER_FENCED_SINCE = 2  # the version that first knew PRODUCER_FENCED
BROKERS_SINCE = 4  # the version that brokers send for clients of transaction version 2
OLD_PROTOCOL, NEW_PROTOCOL = 0, 2  # transaction versions
INTERNAL = (OFFSETS, TRANSACTIONS)


Errors = Mapping[TopicPartition, WireError]


def add_partitions_to_txn(
    ctx: CoordinatorContext, request: AddPartitionsToTxnRequest, call: Call
) -> NowOrLater[AddPartitionsToTxnResponse]:
    errors = [_add(ctx, asked, call.version) for asked in request.transactions]
    return gather(errors, lambda found: _answer(request, found, call.version))


def _answer(request: AddPartitionsToTxnRequest, errors: list[Errors], version: int) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            _result(asked, found, version) for asked, found in zip(request.transactions, errors, strict=True)
        )
    )


def _add(ctx: CoordinatorContext, asked: AddPartitionsToTxnTransaction, version: int) -> NowOrLater[Errors]:
    partitions = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]
    unusable = _unusable(ctx, partitions, version)
    if unusable:
        return unusable
    producer = asked.transactional_id, asked.producer_id, asked.producer_epoch
    if asked.verify_only:
        return ctx.transactions.verify(*producer, partitions)
    brokers = version >= BROKERS_SINCE  # they ask for many at once, and retry those that have to wait
    protocol = NEW_PROTOCOL if brokers else OLD_PROTOCOL
    error = ctx.transactions.add(*producer, partitions, protocol, retry=not brokers)
    return chain(error, lambda found: dict.fromkeys(partitions, found))


def _result(asked: AddPartitionsToTxnTransaction, errors: Errors, version: int) -> AddPartitionsToTxnResult:
    def code(topic: str, index: int) -> WireError:
        error = errors[TopicPartition(topic, index)]
        fenced = error is WireError.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE
        return WireError.INVALID_PRODUCER_EPOCH if fenced else error

    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code(topic.name, index)
                    )
                    for index in topic.partitions
                ),
            )
            for topic in asked.topics
        ),
    )


def _unusable(
    ctx: CoordinatorContext, partitions: list[TopicPartition], version: int
) -> dict[TopicPartition, WireError]:
    """Why none of the partitions is added: one is unknown, or internal. Empty if all can be added."""
    topics = ctx.image.topics
    errors: dict[TopicPartition, WireError] = {}
    for partition in partitions:
        name, index = partition
        if name in INTERNAL and version < BROKERS_SINCE:
            errors[partition] = WireError.TOPIC_AUTHORIZATION_FAILED
        elif name not in topics or not 0 <= index < len(topics[name].partitions):
            errors[partition] = WireError.UNKNOWN_TOPIC_OR_PARTITION
    if errors:
        errors = dict.fromkeys(partitions, WireError.OPERATION_NOT_ATTEMPTED) | errors
    return errors
