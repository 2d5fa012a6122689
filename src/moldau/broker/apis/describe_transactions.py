"""DescribeTransactions 0 (KIP-664): what the coordinator knows of transactional ids."""

from itertools import groupby

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.transactions.state import Transaction
from moldau.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def describe_transactions(
    ctx: Context, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=tuple(_describe(ctx, transactional_id) for transactional_id in request.transactional_ids)
    )


def _describe(ctx: Context, transactional_id: str) -> DescribedTransaction:
    if not transactional_id:
        return DescribedTransaction(error_code=WireError.INVALID_REQUEST, transactional_id=transactional_id)
    shard = ctx.transactions.shard(transactional_id)
    if isinstance(shard, WireError):
        return DescribedTransaction(error_code=shard, transactional_id=transactional_id)
    found = shard.transactions.get(transactional_id)
    if found is None:
        return DescribedTransaction(error_code=WireError.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
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
