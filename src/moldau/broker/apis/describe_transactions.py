"""DescribeTransactions 0 (KIP-664): the state of transactional ids at their coordinator."""

from itertools import groupby

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater, gather
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.transactions.shard import TransactionShard
from moldau.transactions.state import Transaction
from moldau.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def describe_transactions(
    ctx: CoordinatorContext, request: DescribeTransactionsRequest, call: Call
) -> NowOrLater[DescribeTransactionsResponse]:
    return gather(
        [_describe(ctx, transactional_id) for transactional_id in request.transactional_ids],
        lambda described: DescribeTransactionsResponse(transaction_states=tuple(described)),
    )


def _describe(ctx: CoordinatorContext, transactional_id: str) -> NowOrLater[DescribedTransaction]:
    def refused(error: WireError) -> DescribedTransaction:
        return DescribedTransaction(error_code=error, transactional_id=transactional_id)

    def look(shard: TransactionShard) -> DescribedTransaction:
        found = shard.transactions.get(transactional_id)
        return refused(WireError.TRANSACTIONAL_ID_NOT_FOUND) if found is None else _described(found)

    if not transactional_id:
        return refused(WireError.INVALID_REQUEST)
    return ctx.transactions.read(transactional_id, look, refused)


def _described(found: Transaction) -> DescribedTransaction:
    return DescribedTransaction(
        transactional_id=found.transactional_id,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_time,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=_topics(found),
    )


def _topics(transaction: Transaction) -> tuple[DescribedTransactionTopic, ...]:
    return tuple(
        DescribedTransactionTopic(topic=topic, partitions=tuple(index for _, index in found))
        for topic, found in groupby(sorted(transaction.partitions), key=lambda partition: partition[0])
    )
