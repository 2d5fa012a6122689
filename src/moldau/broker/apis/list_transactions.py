"""ListTransactions 0–2 (KIP-664): the transactional ids of this coordinator, filtered.

1: by how long they have been open (KIP-994). 2: by a regular expression (KIP-1152), in RE2's syntax as in Kafka, which
no pattern can make slow.
"""

from collections.abc import Callable
from typing import Any

import re2

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.broker.promise import joined
from moldau.transactions.shard import TransactionShard
from moldau.transactions.state import Transaction, TransactionState
from moldau.wire.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATES = {state.title: state for state in TransactionState}


def list_transactions(ctx: Context, request: ListTransactionsRequest, call: Call) -> Any:
    unknown = tuple(dict.fromkeys(name for name in request.state_filters if name not in STATES))
    matches = _matcher(request.transactional_id_pattern)
    if matches is None:
        return ListTransactionsResponse(error_code=WireError.INVALID_REGULAR_EXPRESSION)
    states = {STATES[name] for name in request.state_filters if name in STATES} if request.state_filters else None

    def look(shard: TransactionShard) -> list[Transaction]:
        return shard.listed(states, set(request.producer_id_filters), request.duration_filter, matches, ctx.now())

    return joined(ctx.transactions.read_all(look), lambda found: _answer(found, unknown))


def _answer(found: list[list[Transaction] | WireError], unknown: tuple[str, ...]) -> ListTransactionsResponse:
    listed: list[ListedTransaction] = []
    for each in found:
        if each is WireError.NOT_COORDINATOR:
            continue  # they have just become another broker's
        if isinstance(each, WireError):
            return ListTransactionsResponse(error_code=each)
        listed.extend(
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for transaction in each
        )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=tuple(listed))


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    """Whether a transactional id matches as a whole; None for a pattern that is none. Empty: any."""
    if not pattern:
        return lambda name: True
    try:
        compiled = re2.compile(pattern)
    except re2.error:
        return None
    return lambda name: compiled.fullmatch(name) is not None
