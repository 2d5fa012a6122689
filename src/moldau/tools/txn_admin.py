"""What brokers know of transactions, asked over the wire: listings, descriptions, producers, markers. Prints nothing.

A transaction *hangs* in a partition when it is open there although its coordinator does not know of it any more, so
nobody will ever end it (KIP-664). Consumers with read_committed stop in front of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from moldau.base.errors import WireError
from moldau.tools.common.failure import CommandError, misused
from moldau.tools.places import Place
from moldau.tools.requests import TRANSACTION, Cluster, await_passing, refusal
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
FENCE_TIMEOUT_MS = 60_000  # of the transaction that a fenced producer's successor could start


@dataclass(frozen=True, slots=True)
class Filters:
    """Which transactional ids to list; what is empty or None lets all through."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int | None = None
    pattern: str | None = None


class Writer(NamedTuple):
    """A producer as the marker that ends its transaction names it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = NONE


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has written to a partition and is not ended there."""

    place: Place
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
    answer = await_passing(
        lambda: broker.ask(request, ListTransactionsResponse, since=since), lambda response: response.error_code
    )
    if answer.error_code == WireError.INVALID_REGULAR_EXPRESSION:
        raise misused(f"{request.transactional_id_pattern!r} is not a regular expression that brokers take (RE2)")
    if answer.error_code:
        raise refusal(answer.error_code, f"broker {node_id} cannot list its transactions")
    return answer.transaction_states


def describe_transaction(cluster: Cluster, transactional_id: str) -> tuple[int, DescribedTransaction] | None:
    """The coordinator and the state of a transactional id; None if it is not known."""
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))

    def ask() -> tuple[int, DescribedTransaction]:
        node_id = cluster.coordinator(TRANSACTION, transactional_id)
        answer = cluster.broker(node_id).ask(request, DescribeTransactionsResponse)
        return node_id, answer.transaction_states[0]

    node_id, state = await_passing(ask, lambda found: found[1].error_code)
    if state.error_code == WireError.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if state.error_code:
        raise refusal(state.error_code, f"transactional id {transactional_id!r} cannot be described")
    return node_id, state


def describe_producers(
    cluster: Cluster, places: Iterable[Place], node_id: int
) -> Iterable[tuple[Place, tuple[ProducerState, ...]]]:
    """The producers that each partition remembers, as one broker knows them."""
    waiting = sorted(places)
    while waiting:
        batch, waiting = waiting[:PARTITIONS_AT_ONCE], waiting[PARTITIONS_AT_ONCE:]
        topics: dict[str, list[int]] = {}
        for place in batch:
            topics.setdefault(place.topic, []).append(place.partition)
        request = DescribeProducersRequest(
            topics=tuple(TopicRequest(name=name, partition_indexes=tuple(some)) for name, some in topics.items())
        )
        for topic in cluster.broker(node_id).ask(request, DescribeProducersResponse).topics:
            for row in topic.partitions:
                place = Place(topic.name, row.partition_index)
                if row.error_code:
                    raise refusal(row.error_code, f"broker {node_id} cannot tell who writes to {place}")
                yield place, row.active_producers


def find_places(cluster: Cluster, topic: str | None, partition: int | None, node_id: int | None) -> dict[Place, int]:
    """The partitions to look at, with the broker to ask: the one that was named, or each one's leader."""
    present = cluster.partitions(topic)
    if partition is not None:
        assert topic is not None
        if Place(topic, partition) not in present:
            raise CommandError(
                f"topic {topic!r} has no partition {partition}: it has {len(present)}",
                remedy=f"See them with: moldau topic describe {topic}",
            )
        present = {Place(topic, partition): present[Place(topic, partition)]}
    if node_id is None:
        return {place: found.leader_id for place, found in present.items() if found.leader_id >= 0}
    cluster.broker(node_id)
    return {place: node_id for place, found in present.items() if node_id in found.replica_nodes}


def read_producers(cluster: Cluster, places: dict[Place, int]) -> list[tuple[Place, tuple[ProducerState, ...]]]:
    found: list[tuple[Place, tuple[ProducerState, ...]]] = []
    for node_id in sorted(set(places.values())):
        asked = [place for place, asked_of in places.items() if asked_of == node_id]
        found.extend(describe_producers(cluster, asked, node_id))
    return sorted(found, key=lambda pair: pair[0])


def find_hanging(cluster: Cluster, places: dict[Place, int], longer_than_ms: int, now_ms: int) -> list[OpenTransaction]:
    """Transactions without a write for that long, and which no coordinator is going to end."""
    candidates = [
        OpenTransaction(place, producer)
        for place, producers in read_producers(cluster, places)
        for producer in producers
        if producer.current_txn_start_offset > NONE and now_ms - producer.last_timestamp > longer_than_ms
    ]
    if not candidates:
        return []
    wanted = tuple(sorted({one.producer.producer_id for one in candidates}))
    ids = {row.producer_id: row.transactional_id for _, row in list_transactions(cluster, Filters(producer_ids=wanted))}
    owned = {producer_id: _owned_places(cluster, name) for producer_id, name in ids.items()}
    return [one for one in candidates if one.place not in owned.get(one.producer.producer_id, ())]


def _owned_places(cluster: Cluster, transactional_id: str) -> set[Place]:
    """Partitions in which the coordinator still means to end the transaction."""
    found = describe_transaction(cluster, transactional_id)
    if found is None:
        return set()
    return {Place(topic.topic, partition) for topic in found[1].topics for partition in topic.partitions}


def find_writer(cluster: Cluster, place: Place, node_id: int, start_offset: int) -> Writer:
    """Whose transaction it is that begins at this offset."""
    for _, producers in describe_producers(cluster, [place], node_id):
        for one in producers:
            if one.current_txn_start_offset == start_offset:
                return Writer(one.producer_id, one.producer_epoch, one.coordinator_epoch)
    raise CommandError(
        f"no open transaction begins at offset {start_offset} of {place}",
        remedy=f"See those that are open with: moldau txn producers {place.topic} -p {place.partition}",
    )


def write_abort_marker(cluster: Cluster, place: Place, node_id: int, writer: Writer) -> None:
    """Ends a transaction in one partition, past its coordinator."""
    marker = WritableTxnMarker(
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=place.topic, partition_indexes=(place.partition,)),),
        coordinator_epoch=max(
            0, writer.coordinator_epoch
        ),  # -1: none has ended a transaction of this producer here yet
    )
    answer = cluster.broker(node_id).ask(WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse)
    codes = [row.error_code for result in answer.markers for topic in result.topics for row in topic.partitions]
    if codes != [WireError.NONE]:
        code = codes[0] if codes else WireError.UNKNOWN_SERVER_ERROR
        raise refusal(code, f"the transaction of producer {writer.producer_id} in {place} was not aborted")


def fence(cluster: Cluster, transactional_id: str) -> None:
    """Gives the transactional id to a new producer, namely us: its coordinator aborts what the old one had open."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS)

    def ask() -> InitProducerIdResponse:
        coordinator = cluster.broker(cluster.coordinator(TRANSACTION, transactional_id))
        return coordinator.ask(request, InitProducerIdResponse)

    answer = await_passing(ask, lambda response: response.error_code)
    if answer.error_code:
        raise refusal(answer.error_code, f"the transaction of {transactional_id!r} was not aborted")
