"""Transactions: list and describe them, show producers of partitions, find hanging transactions and abort them.

A transaction *hangs* in a partition when it is open there and its coordinator does not know of it any more, so that
nothing will ever end it (KIP-664). Consumers with read_committed stop in front of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from moldau.base.errors import WireError
from moldau.base.ids import Offset, TopicPartition
from moldau.client.admin.cluster import TRANSACTION, Cluster, retry_transient
from moldau.client.admin.errors import (
    InvalidArgument,
    NoLeader,
    NoSuchPartition,
    NoSuchTransaction,
    NoSuchTransactionalId,
    refused,
)
from moldau.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from moldau.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.list_transactions import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PARTITIONS_AT_ONCE = 500
NONE = -1
DURATION_SINCE, PATTERN_SINCE = 1, 2  # versions of ListTransactions that have these filters
FENCE_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Filters:
    """Which transactional ids to list; empty or None for all."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int | None = None
    pattern: str | None = None


class ProducerEpoch(NamedTuple):
    """A producer as the marker that ends its transaction names it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = NONE


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has written to a partition and is not ended there."""

    partition: TopicPartition
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        return self.producer.current_txn_start_offset


def list_transactions(cluster: Cluster, filters: Filters) -> list[tuple[int, ListedTransaction]]:
    """Every transactional id with its coordinator."""
    request = ListTransactionsRequest(
        state_filters=filters.states,
        producer_id_filters=filters.producer_ids,
        duration_filter=NONE if filters.longer_than_ms is None else filters.longer_than_ms,
        transactional_id_pattern=filters.pattern,
    )
    since = DURATION_SINCE if filters.longer_than_ms is not None else 0
    since = PATTERN_SINCE if filters.pattern is not None else since
    found = [(node_id, row) for node_id in cluster.ids for row in _list_coordinated(cluster, node_id, request, since)]
    return sorted(found, key=lambda pair: pair[1].transactional_id)


def _list_coordinated(
    cluster: Cluster, node_id: int, request: ListTransactionsRequest, since: int
) -> tuple[ListedTransaction, ...]:
    broker = cluster.broker(node_id)
    answer = retry_transient(
        lambda: broker.ask(request, ListTransactionsResponse, since=since), lambda response: response.error_code
    )
    if answer.error_code == WireError.INVALID_REGULAR_EXPRESSION:
        raise InvalidArgument(f"{request.transactional_id_pattern!r} is not a regular expression of RE2")
    if answer.error_code:
        raise refused(answer.error_code, f"broker {node_id} cannot list its transactions")
    return answer.transaction_states


def describe_transaction(cluster: Cluster, transactional_id: str) -> tuple[int, DescribedTransaction] | None:
    """The coordinator and the state of a transactional id; None if there is no such id."""
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))

    def ask() -> tuple[int, DescribedTransaction]:
        node_id = cluster.coordinator(TRANSACTION, transactional_id)
        answer = cluster.broker(node_id).ask(request, DescribeTransactionsResponse)
        return node_id, answer.transaction_states[0]

    node_id, state = retry_transient(ask, lambda found: found[1].error_code)
    if state.error_code == WireError.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if state.error_code:
        raise refused(state.error_code, f"transactional id {transactional_id!r} cannot be described")
    return node_id, state


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], node_id: int
) -> Iterable[tuple[TopicPartition, tuple[ProducerState, ...]]]:
    """The producers that each partition remembers, as one broker knows them."""
    waiting = sorted(partitions)
    while waiting:
        batch, waiting = waiting[:PARTITIONS_AT_ONCE], waiting[PARTITIONS_AT_ONCE:]
        topics: dict[str, list[int]] = {}
        for tp in batch:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = DescribeProducersRequest(
            topics=tuple(TopicRequest(name=name, partition_indexes=tuple(some)) for name, some in topics.items())
        )
        for topic in cluster.broker(node_id).ask(request, DescribeProducersResponse).topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    raise refused(row.error_code, f"broker {node_id} cannot describe the producers of {tp}")
                yield tp, row.active_producers


def find_partitions(
    cluster: Cluster, topic: str | None, partition: int | None, node_id: int | None
) -> dict[TopicPartition, int]:
    """Partitions with the broker to ask about each: this one, or the partition's leader."""
    present = cluster.partitions(topic)
    if partition is not None:
        assert topic is not None
        if TopicPartition(topic, partition) not in present:
            raise NoSuchPartition(topic, partition, len(present))
        present = {TopicPartition(topic, partition): present[TopicPartition(topic, partition)]}
    if node_id is None:
        return {tp: found.leader_id for tp, found in present.items() if found.leader_id >= 0}
    cluster.broker(node_id)
    return {tp: node_id for tp, found in present.items() if node_id in found.replica_nodes}


def read_producers(
    cluster: Cluster, partitions: dict[TopicPartition, int]
) -> list[tuple[TopicPartition, tuple[ProducerState, ...]]]:
    found: list[tuple[TopicPartition, tuple[ProducerState, ...]]] = []
    for node_id in sorted(set(partitions.values())):
        asked = [tp for tp, asked_of in partitions.items() if asked_of == node_id]
        found.extend(describe_producers(cluster, asked, node_id))
    return sorted(found, key=lambda pair: pair[0])


def find_hanging(
    cluster: Cluster, partitions: dict[TopicPartition, int], longer_than_ms: int, now_ms: int
) -> list[OpenTransaction]:
    """Transactions without a write for that long, which no coordinator is going to end."""
    candidates = [
        OpenTransaction(tp, producer)
        for tp, producers in read_producers(cluster, partitions)
        for producer in producers
        if producer.current_txn_start_offset > NONE and now_ms - producer.last_timestamp > longer_than_ms
    ]
    if not candidates:
        return []
    wanted = tuple(sorted({one.producer.producer_id for one in candidates}))
    ids = {row.producer_id: row.transactional_id for _, row in list_transactions(cluster, Filters(producer_ids=wanted))}
    ongoing = {producer_id: _ongoing_partitions(cluster, name) for producer_id, name in ids.items()}
    return [one for one in candidates if one.partition not in ongoing.get(one.producer.producer_id, ())]


def _ongoing_partitions(cluster: Cluster, transactional_id: str) -> set[TopicPartition]:
    """Partitions in which the coordinator will end the transaction."""
    found = describe_transaction(cluster, transactional_id)
    if found is None:
        return set()
    return {TopicPartition(topic.topic, partition) for topic in found[1].topics for partition in topic.partitions}


def find_producer(cluster: Cluster, tp: TopicPartition, node_id: int, start_offset: Offset) -> ProducerEpoch:
    """The producer of the transaction that begins at this offset."""
    for _, producers in describe_producers(cluster, [tp], node_id):
        for one in producers:
            if one.current_txn_start_offset == start_offset:
                return ProducerEpoch(one.producer_id, one.producer_epoch, one.coordinator_epoch)
    raise NoSuchTransaction(tp, start_offset)


def write_abort_marker(cluster: Cluster, tp: TopicPartition, node_id: int, producer: ProducerEpoch) -> None:
    """Abort a transaction in one partition, past its coordinator."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=tp.topic, partition_indexes=(tp.partition,)),),
        coordinator_epoch=max(
            0, producer.coordinator_epoch
        ),  # -1: none has ended a transaction of this producer here yet
    )
    answer = cluster.broker(node_id).ask(WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse)
    codes = [row.error_code for result in answer.markers for topic in result.topics for row in topic.partitions]
    if codes != [WireError.NONE]:
        code = codes[0] if codes else WireError.UNKNOWN_SERVER_ERROR
        raise refused(code, f"the transaction of producer {producer.producer_id} in {tp} was not aborted")


def fence(cluster: Cluster, transactional_id: str) -> None:
    """Take over a transactional id with InitProducerId: its coordinator aborts the old producer's transaction."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS)

    def ask() -> InitProducerIdResponse:
        coordinator = cluster.broker(cluster.coordinator(TRANSACTION, transactional_id))
        return coordinator.ask(request, InitProducerIdResponse)

    answer = retry_transient(ask, lambda response: response.error_code)
    if answer.error_code:
        raise refused(answer.error_code, f"the transaction of {transactional_id!r} was not aborted")


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction in a partition, by its first offset there or by its producer."""

    partition: TopicPartition
    producer: Offset | ProducerEpoch


def abort_transaction(cluster: Cluster, transaction: str | HangingTransaction) -> None:
    """Abort the transaction of a transactional id, or a hanging one in its partition."""
    if isinstance(transaction, str):
        if describe_transaction(cluster, transaction) is None:
            raise NoSuchTransactionalId(transaction)
        fence(cluster, transaction)
        return
    tp, producer = transaction.partition, transaction.producer
    leader = find_partitions(cluster, tp.topic, tp.partition, None).get(tp)
    if leader is None:
        raise NoLeader(tp)
    if not isinstance(producer, ProducerEpoch):
        producer = find_producer(cluster, tp, leader, producer)
    write_abort_marker(cluster, tp, leader, producer)
