"""ListTransactions 0–2 (KIP-664): the transactional ids of this coordinator, filtered.

1: by duration (KIP-994). 2: by a regular expression (KIP-1152), in RE2's syntax as in Kafka: matching takes linear
time.
"""

from collections.abc import Callable

import re2

from moldau.base.errors import WireError
from moldau.base.later import NowOrLater, gather
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.transactions.shard import TransactionShard
from moldau.transactions.state import Transaction, TransactionState
from moldau.wire.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATES = {state.title: state for state in TransactionState}


def list_transactions(
    ctx: CoordinatorContext, request: ListTransactionsRequest, call: Call
) -> NowOrLater[ListTransactionsResponse]:
    unknown = tuple(dict.fromkeys(name for name in request.state_filters if name not in STATES))
    matches = _matcher(request.transactional_id_pattern)
    if matches is None:
        return ListTransactionsResponse(error_code=WireError.INVALID_REGULAR_EXPRESSION)
    states = {STATES[name] for name in request.state_filters if name in STATES} if request.state_filters else None

    producer_ids = set(request.producer_id_filters)

    def look(shard: TransactionShard) -> ListTransactionsResponse:
        found = shard.listed(states, producer_ids, request.duration_filter, matches, ctx.now())
        return ListTransactionsResponse(transaction_states=tuple(map(_listed, found)))

    def refused(error: WireError) -> ListTransactionsResponse:
        return ListTransactionsResponse(error_code=error)

    return gather(ctx.transactions.read_all(look, refused), lambda found: _combine(found, unknown))


def _listed(transaction: Transaction) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.title,
    )


def _combine(found: list[ListTransactionsResponse], unknown: tuple[str, ...]) -> ListTransactionsResponse:
    for each in found:
        if each.error_code not in (WireError.NONE, WireError.NOT_COORDINATOR):  # that shard has just moved away
            return each
    states = tuple(state for each in found for state in each.transaction_states)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    """Matches whole transactional ids; None for an invalid pattern. An empty one matches all."""
    if not pattern:
        return lambda name: True
    try:
        compiled = re2.compile(pattern)
    except re2.error:
        return None
    return lambda name: compiled.fullmatch(name) is not None
