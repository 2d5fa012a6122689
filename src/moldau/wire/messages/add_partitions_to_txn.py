"""AddPartitionsToTxn: add partitions to a transaction, or verify that they are in it.

Version 4 has many transactions in one request and can verify only; brokers send it for their producers (KIP-890). 5
differs in errors only. Versions up to 3, sent by producers, have one transaction, here a list of one, and a response
without its id, here an empty one. They have no error for the whole request: the handler sets it for every partition.
"""

from moldau.wire.declare import (
    BOOL,
    INT16,
    INT32,
    INT64,
    TOPIC_NAME,
    TRANSACTIONAL_ID,
    Array,
    message,
    older_form,
    struct,
    wire,
)
from moldau.wire.primitives import Unencodable


@struct
class AddPartitionsToTxnTopic:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[int, ...] = wire(Array(INT32))


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    verify_only: bool = wire(BOOL, default=False)
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire(Array(AddPartitionsToTxnTopic))


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = wire(Array(AddPartitionsToTxnTransaction))


@older_form(of=AddPartitionsToTxnRequest, until=3)
class AddPartitionsToOneTxnRequest:
    v3_and_below_transactional_id: str = wire(TRANSACTIONAL_ID)
    v3_and_below_producer_id: int = wire(INT64)
    v3_and_below_producer_epoch: int = wire(INT16)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire(Array(AddPartitionsToTxnTopic))

    def to_newest(self) -> AddPartitionsToTxnRequest:
        only = AddPartitionsToTxnTransaction(
            transactional_id=self.v3_and_below_transactional_id,
            producer_id=self.v3_and_below_producer_id,
            producer_epoch=self.v3_and_below_producer_epoch,
            topics=self.v3_and_below_topics,
        )
        return AddPartitionsToTxnRequest(transactions=(only,))

    @classmethod
    def from_newest(cls, newest: AddPartitionsToTxnRequest) -> "AddPartitionsToOneTxnRequest":
        if len(newest.transactions) != 1 or newest.transactions[0].verify_only:
            raise Unencodable("AddPartitionsToTxnRequest before version 4 adds to exactly one transaction")
        only = newest.transactions[0]
        return cls(
            v3_and_below_transactional_id=only.transactional_id,
            v3_and_below_producer_id=only.producer_id,
            v3_and_below_producer_epoch=only.producer_epoch,
            v3_and_below_topics=only.topics,
        )


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16, default=0)


@struct
class AddPartitionsToTxnTopicResult:
    name: str = wire(TOPIC_NAME)
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(Array(AddPartitionsToTxnPartitionResult))


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = wire(Array(AddPartitionsToTxnTopicResult))


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = wire(Array(AddPartitionsToTxnResult), default=())


@older_form(of=AddPartitionsToTxnResponse, until=3)
class AddPartitionsToOneTxnResponse:
    throttle_time_ms: int = wire(INT32)
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        Array(AddPartitionsToTxnTopicResult)
    )

    def to_newest(self) -> AddPartitionsToTxnResponse:
        only = AddPartitionsToTxnResult(transactional_id="", topic_results=self.results_by_topic_v3_and_below)
        return AddPartitionsToTxnResponse(throttle_time_ms=self.throttle_time_ms, results_by_transaction=(only,))

    @classmethod
    def from_newest(cls, newest: AddPartitionsToTxnResponse) -> "AddPartitionsToOneTxnResponse":
        if len(newest.results_by_transaction) != 1 or newest.error_code:
            raise Unencodable("AddPartitionsToTxnResponse before version 4 is about exactly one transaction")
        only = newest.results_by_transaction[0]
        return cls(throttle_time_ms=newest.throttle_time_ms, results_by_topic_v3_and_below=only.topic_results)
