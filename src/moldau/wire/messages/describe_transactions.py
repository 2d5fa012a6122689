"""DescribeTransactions: the state of transactions, from their coordinator (KIP-664)."""

from moldau.wire.declare import INT16, INT32, INT64, STRING, TOPIC_NAME, TRANSACTIONAL_ID, Array, message, struct, wire


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...] = wire(Array(TRANSACTIONAL_ID))


@struct
class DescribedTransactionTopic:
    topic: str = wire(TOPIC_NAME)
    partitions: tuple[int, ...] = wire(Array(INT32))


@struct
class DescribedTransaction:
    error_code: int = wire(INT16, default=0)
    transactional_id: str = wire(TRANSACTIONAL_ID)
    transaction_state: str = wire(STRING, default="")
    transaction_timeout_ms: int = wire(INT32, default=0)
    transaction_start_time_ms: int = wire(INT64, default=0)
    producer_id: int = wire(INT64, default=0)
    producer_epoch: int = wire(INT16, default=0)
    topics: tuple[DescribedTransactionTopic, ...] = wire(Array(DescribedTransactionTopic), default=())


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    transaction_states: tuple[DescribedTransaction, ...] = wire(Array(DescribedTransaction))
