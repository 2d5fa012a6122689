"""ListTransactions: the transactions of a coordinator (KIP-664).

Version 1 filters by duration (KIP-994), 2 by a pattern of the transactional id (KIP-1152).
"""

from moldau.wire.declare import (
    INT16,
    INT32,
    INT64,
    NAME_PATTERN,
    STRING,
    TRANSACTIONAL_ID,
    Array,
    message,
    struct,
    wire,
)


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest:
    state_filters: tuple[str, ...] = wire(Array(STRING), default=())  # empty: any
    producer_id_filters: tuple[int, ...] = wire(Array(INT64), default=())
    duration_filter: int = wire(INT64, since=1, default=-1)  # the shortest duration, in ms; negative: any
    transactional_id_pattern: str | None = wire(NAME_PATTERN, nullable=2, since=2, default=None)


@struct
class ListedTransaction:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    unknown_state_filters: tuple[str, ...] = wire(Array(STRING), default=())
    transaction_states: tuple[ListedTransaction, ...] = wire(Array(ListedTransaction), default=())
