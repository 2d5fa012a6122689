"""A transactional producer over a raw connection, which sends nothing by itself and never retries.

Apache Kafka writes markers after it has answered EndTxn; tests that are not about that use `settled`, which repeats a
request while the response is CONCURRENT_TRANSACTIONS.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    WriteTxnMarkersRequest,
)

from support.clients.raw import NO_TOPIC, RawClient
from support.log.batches import TRANSACTIONAL, Producer, Written, batch

CONCURRENT_TRANSACTIONS = 51
_NOT_READY = (14, 15, 16, CONCURRENT_TRANSACTIONS)  # the coordinator is loading, unavailable, or another broker
_PATIENCE_SECONDS = 30


class Answer(NamedTuple):
    """An error code, and the producer id and epoch of the response."""

    error: int
    producer: Producer


def settled(ask: Callable[[], Any], error: Callable[[Any], int] = lambda answer: int(answer[0])) -> Any:
    """The first response that is not a request to retry."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while error(answer := ask()) in _NOT_READY and time.monotonic() < until:
        time.sleep(0.02)
    return answer


class RawTransactions:
    """One transactional id. Methods return the error codes of responses."""

    def __init__(self, raw: RawClient, transactional_id: str) -> None:
        self.raw = raw
        self.id = transactional_id
        keys = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        settled(lambda: raw.ask(keys, 4).coordinators[0], lambda found: int(found.error_code))

    def init(self, producer: Producer = Producer(), timeout_ms: int = 60_000, version: int = 5) -> Answer:  # noqa: B008
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
        )
        answer = self.raw.ask(request, version)
        return Answer(answer.error_code, Producer(answer.producer_id, answer.producer_epoch))

    def start(self, **options: Any) -> Producer:
        """InitProducerId until it succeeds; return the producer."""
        answer = settled(lambda: self.init(**options))
        assert answer.error == 0, answer
        return Producer(*answer.producer)

    def add(self, producer: Producer, topic: str, *partitions: int, version: int = 3) -> list[int]:
        """AddPartitionsToTxn as clients send it."""
        item = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[item(name=topic, partitions=list(partitions or (0,)))],
        )
        answer = self.raw.ask(request, version)
        return [
            part.partition_error_code
            for each in answer.results_by_topic_v3_and_below
            for part in each.results_by_partition
        ]

    def add_as_broker(
        self, producer: Producer, topic: str, *partitions: int, verify: bool = False, version: int = 5
    ) -> list[int]:
        """AddPartitionsToTxn as brokers send it."""
        item = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
        topics = [item.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))]
        transaction = item(
            transactional_id=self.id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=verify,
            topics=topics,
        )
        answer = self.raw.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
        assert answer.error_code == 0
        found = answer.results_by_transaction[0]
        assert found.transactional_id == self.id
        return [part.partition_error_code for each in found.topic_results for part in each.results_by_partition]

    def add_offsets(self, producer: Producer, group: str, version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=producer.id, producer_epoch=producer.epoch, group_id=group
        )
        return int(self.raw.ask(request, version).error_code)

    def end(self, producer: Producer, commit: bool, version: int = 5) -> Answer:
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=producer.id, producer_epoch=producer.epoch, committed=commit
        )
        answer = self.raw.ask(request, version)
        following = Producer(answer.producer_id, answer.producer_epoch) if version >= 5 else Producer()
        return Answer(answer.error_code, following)

    def produce(
        self, producer: Producer, topic: str, sequence: int, partition: int = 0, version: int = 12, value: bytes = b"v"
    ) -> int:
        """Produce one record of a transaction; return the error code."""
        records = batch(Written(value), producer=producer, sequence=sequence, attributes=TRANSACTIONAL)
        item = ProduceRequest.TopicProduceData
        data = item(
            name=topic,
            topic_id=NO_TOPIC,
            partition_data=[item.PartitionProduceData(index=partition, records=records)],
        )
        request = ProduceRequest(transactional_id=self.id, acks=-1, timeout_ms=10_000, topic_data=[data])
        return int(self.raw.ask(request, version).responses[0].partition_responses[0].error_code)

    def write_marker(
        self, producer: Producer, topic: str, commit: bool, partition: int = 0, version: int = 2, **options: int
    ) -> int:
        item = WriteTxnMarkersRequest.WritableTxnMarker
        marker = item(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=commit,
            topics=[item.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            coordinator_epoch=options.get("coordinator_epoch", 0),
            transaction_version=options.get("transaction_version", 0),
        )
        answer = self.raw.ask(WriteTxnMarkersRequest(markers=[marker]), version).markers[0]
        assert answer.producer_id == producer.id
        return int(answer.topics[0].partitions[0].error_code)

    def describe(self) -> Any:
        return self.raw.ask(DescribeTransactionsRequest(transactional_ids=[self.id]), 0).transaction_states[0]

    def state(self) -> str:
        return str(self.describe().transaction_state)


def listed(raw: RawClient, version: int = 2, **filters: Any) -> Any:
    """ListTransactions."""
    request = ListTransactionsRequest(
        state_filters=filters.get("states", []),
        producer_id_filters=filters.get("producer_ids", []),
        duration_filter=filters.get("duration_ms", -1),
        transactional_id_pattern=filters.get("pattern"),
    )
    return raw.ask(request, version)
