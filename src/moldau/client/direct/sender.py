"""Sender: pipelined Produce requests, their responses, and retries. Encodes nothing.

Batches of a partition are sent in order, one per request, with up to five requests in flight per broker. After a
retriable error no more is sent to that broker until all its requests are answered; then failed batches go first, in
order. Sequence numbers make this safe for an idempotent producer: a batch that was written is not written again, and
one that overtook a lost batch is rejected as out of order and retried. A broker without state of the producer accepts
any first sequence, so the second batch of a partition waits for the response to the first.

With acks=0 there are no responses: batches count as delivered when they are sent.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct.connection import LATEST_VERSION, Connection, InFlightRequest
from moldau.client.direct.failure import DUPLICATE_SEQUENCE_NUMBER, Failure, failure_of
from moldau.client.direct.metadata import NETWORK, Cluster, Topic, network_failure
from moldau.client.direct.offsets import by_topic
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

IN_FLIGHT: Final = 5  # a broker remembers five batches of a producer and partition
REQUEST_BYTES: Final = 4 * 1024 * 1024  # default limit of a request with several batches
WAITING_BYTES: Final = 32 * 1024 * 1024  # unacknowledged; `add` blocks above this
BY_NAME: Final = 12  # the last version of Produce with topic names


@dataclass(slots=True)
class ProducerBatch:
    """One batch. `order` is the order of writes; parts of a split batch have another number appended."""

    tp: TopicPartition
    data: bytes
    order: tuple[int, ...]
    records: int = 1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A Produce request in flight. Its response has topics by name or by id, in any order."""

    in_flight: InFlightRequest[ProduceResponse]
    batches: list[ProducerBatch]
    names: dict[UUID, str]


@dataclass(slots=True)
class BrokerInFlight:
    """Requests in flight to one broker."""

    connection: Connection | None = None
    sent: deque[SentRequest] = field(default_factory=deque)
    again: list[ProducerBatch] = field(default_factory=list)  # to retry; nothing is sent while there are any

    @property
    def has_response(self) -> bool:
        return bool(self.sent) and self.connection is not None and self.connection.has_response


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        request_bytes: int = REQUEST_BYTES,
        timeout_s: float | None = None,
        delivered: Callable[[ProducerBatch], None] = lambda _: None,
        split: Callable[[ProducerBatch], list[ProducerBatch]] = lambda _: [],
    ) -> None:
        """`timeout_s` limits the time without a delivery; it defaults to the cluster's timeout.

        `split` splits a batch that a broker rejects as too large, and returns nothing if it cannot.
        """
        self.until = LATEST_VERSION
        self._cluster = cluster
        self._acks = acks
        self._transactional_id = transactional_id
        self._request_bytes = request_bytes
        self._timeout_s = timeout_s
        self._delivered = delivered
        self._split = split
        self._waiting: dict[TopicPartition, deque[ProducerBatch]] = {}
        self._brokers: dict[int, BrokerInFlight] = {}
        self._in_flight: dict[TopicPartition, tuple[int, int]] = {}  # the broker, and the number of batches in flight
        self._delivered_to: set[TopicPartition] = set()  # partitions with a delivered batch
        self._bytes = 0
        self._retries = cluster.retries(timeout_s)
        self._last = failure_of(WireError.NETWORK_EXCEPTION, "nothing was sent")  # cause of the last retry

    def close(self) -> None:
        for broker in self._brokers.values():
            if broker.connection is not None:
                self._cluster.release(broker.connection)
        self._brokers.clear()

    def discard(self) -> None:
        """Drop all undelivered batches; those in flight may still be written."""
        self.close()
        self._waiting.clear()
        self._in_flight.clear()
        self._bytes = 0

    def add(self, batches: Iterable[ProducerBatch]) -> Failure | None:
        """Queue batches and send; blocks while too many bytes are undelivered."""
        for batch in batches:
            self._waiting.setdefault(batch.tp, deque()).append(batch)
            self._bytes += len(batch.data)
        return self.push(most=WAITING_BYTES)

    def push(self, most: int = 0) -> Failure | None:
        """Send, and read responses until at most `most` bytes are undelivered."""
        self._retries = self._cluster.retries(self._timeout_s)
        while self._bytes:
            problem = self._send_ready()
            if problem is not None:
                return problem
            due = [each for each in self._brokers.items() if self._bytes > most or each[1].has_response]
            if not due:
                return None
            for node_id, broker in due:
                problem = self._read_one(node_id, broker)
                if problem is not None:
                    return problem
        return None

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send_ready(self) -> Failure | None:
        while True:
            by_node = self._ready_partitions()
            if isinstance(by_node, Failure):
                return by_node
            ready = [node for node in by_node if self._has_room(node)]
            if not ready:
                return None
            for node_id in ready:
                self._send_to(node_id, by_node[node_id])

    def _ready_partitions(self) -> dict[int, list[TopicPartition]] | Failure:
        """Partitions with queued batches, by leader; retries while one has no leader."""
        while True:
            by_node: dict[int, list[TopicPartition]] = {}
            missing: Failure | None = None
            for tp in [tp for tp, waiting in self._waiting.items() if waiting]:
                leader = self._cluster.leader(tp, self._retries)
                if isinstance(leader, Failure):
                    missing = leader
                    self._cluster.forget(tp.topic)
                elif self._may_send(tp, leader.node_id):
                    by_node.setdefault(leader.node_id, []).append(tp)
            if missing is None:
                return by_node
            if not missing.retriable or not self._retries.again():
                return missing

    def _may_send(self, tp: TopicPartition, node_id: int) -> bool:
        """Not while the partition's first batch is in flight, nor while a former leader has to respond."""
        if tp not in self._in_flight:
            return True
        return tp in self._delivered_to and self._in_flight[tp][0] == node_id

    def _has_room(self, node_id: int) -> bool:
        broker = self._brokers.setdefault(node_id, BrokerInFlight())
        if broker.sent and broker.connection is not None and broker.connection.stale:
            return False  # its SASL session expires: reconnect once all requests are answered (KIP-368)
        return not broker.again and len(broker.sent) < IN_FLIGHT

    def _send_to(self, node_id: int, partitions: list[TopicPartition]) -> None:
        broker = self._brokers[node_id]
        batches: list[ProducerBatch] = []
        size = 0
        for tp in partitions:
            if batches and size + len(self._waiting[tp][0].data) > self._request_bytes:
                continue
            batches.append(self._waiting[tp].popleft())
            size += len(batches[-1].data)
        for batch in batches:
            self._in_flight[batch.tp] = (node_id, self._in_flight.get(batch.tp, (node_id, 0))[1] + 1)
        try:
            if broker.connection is not None and broker.connection.stale:
                broker.connection.close()
                broker.connection = None
            broker.connection = broker.connection or self._cluster.dedicated_connection(node_id)
            self._send(broker, broker.connection, batches)
        except NETWORK as error:
            self._connection_lost(broker, batches, network_failure(f"broker {node_id}", error))

    def _send(self, broker: BrokerInFlight, connection: Connection, batches: list[ProducerBatch]) -> None:
        request, names, until = self._request(batches)
        if self._acks == 0:
            connection.tell(request, until=until)
            for batch in batches:
                self._delivered_batch(batch)
        else:
            broker.sent.append(SentRequest(connection.send(request, ProduceResponse, until=until), batches, names))

    def _request(self, batches: list[ProducerBatch]) -> tuple[ProduceRequest, dict[UUID, str], int]:
        """The request, the topic names by id, and the latest version to send it in."""
        data = {batch.tp: batch.data for batch in batches}
        topics = []
        names = {}
        until = self.until
        for name, partitions in by_topic(data):
            topic = self._cluster.topic(name)
            assert isinstance(topic, Topic), "its leader is known"
            if not topic.topic_id.int:
                until = min(until, BY_NAME)
            parts = tuple(PartitionProduceData(index=tp.partition, records=data[tp]) for tp in partitions)
            names[topic.topic_id] = name
            topics.append(TopicProduceData(name=name, topic_id=topic.topic_id, partition_data=parts))
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=tuple(topics),
        )
        return request, names, until

    # ── responses ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_one(self, node_id: int, broker: BrokerInFlight) -> Failure | None:
        """Read the oldest response of a broker; requeue failed batches once all requests are answered."""
        if broker.sent:
            sent = broker.sent.popleft()
            assert broker.connection is not None
            try:
                response = broker.connection.receive(sent.in_flight)
            except NETWORK as error:
                self._connection_lost(broker, sent.batches, network_failure(f"broker {node_id}", error))
            else:
                problem = self._handle_response(broker, sent, response)
                if problem is not None:
                    return problem
        if broker.again and not broker.sent:
            return self._requeue(broker)
        return None

    def _handle_response(self, broker: BrokerInFlight, sent: SentRequest, response: ProduceResponse) -> Failure | None:
        rows = {
            TopicPartition(topic.name or sent.names.get(topic.topic_id, ""), row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for batch in sent.batches:
            row = rows.get(batch.tp)
            if row is not None and row.error_code in (WireError.NONE, DUPLICATE_SEQUENCE_NUMBER):
                batch.offset = row.base_offset
                self._delivered_batch(batch)
                continue
            problem = self._problem(batch, row)
            parts = self._split(batch) if problem.code == WireError.MESSAGE_TOO_LARGE else []
            if parts:
                self._retry_in_parts(broker, batch, parts)
                self._last = replace(problem, retriable=True)
                continue
            # A batch that overtook one that is retried is out of order, and is retried after it.
            behind = any(each.tp == batch.tp for each in broker.again)
            if not problem.retriable and not (behind and problem.code == WireError.OUT_OF_ORDER_SEQUENCE_NUMBER):
                return problem
            broker.again.append(batch)
            if not behind:
                self._last = problem
        return None

    def _retry_in_parts(self, broker: BrokerInFlight, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Retry the parts in place of the batch."""
        node_id, count = self._in_flight[batch.tp]
        self._in_flight[batch.tp] = (node_id, count - 1 + len(parts))
        self._bytes += sum(len(part.data) for part in parts) - len(batch.data)
        broker.again += parts
        self._retries.progress()

    def _delivered_batch(self, batch: ProducerBatch) -> None:
        self._bytes -= len(batch.data)
        self._no_longer_in_flight(batch)
        self._delivered_to.add(batch.tp)
        self._retries = self._cluster.retries(self._timeout_s)
        self._delivered(batch)

    def _problem(self, batch: ProducerBatch, row: PartitionProduceResponse | None) -> Failure:
        what = f"Produce to {batch.tp.topic}-{batch.tp.partition}"
        if row is None:
            return failure_of(WireError.UNKNOWN_SERVER_ERROR, f"{what} is missing in the response")
        problem = failure_of(row.error_code, what)
        if problem.code == WireError.MESSAGE_TOO_LARGE and batch.records == 1:
            message = f"{what}: its max.message.bytes is less than the {len(batch.data)} bytes of a record"
            return replace(problem, message=message)
        if not row.error_message:
            return problem
        return Failure(problem.code, problem.name, f"{what}: {row.error_message}", problem.retriable)

    def _no_longer_in_flight(self, batch: ProducerBatch) -> None:
        """The batch is no longer in flight: delivered, or queued again."""
        node_id, count = self._in_flight.pop(batch.tp)
        if count > 1:
            self._in_flight[batch.tp] = (node_id, count - 1)

    def _connection_lost(self, broker: BrokerInFlight, batches: list[ProducerBatch], problem: Failure) -> None:
        """It is unknown which requests in flight were processed: retry all."""
        broker.again += batches
        for sent in broker.sent:
            broker.again += sent.batches
        broker.sent.clear()
        if broker.connection is not None:
            broker.connection.close()
            broker.connection = None
        self._last = problem

    def _requeue(self, broker: BrokerInFlight) -> Failure | None:
        again = sorted(broker.again, key=lambda batch: batch.order, reverse=True)
        broker.again = []
        for batch in again:
            self._no_longer_in_flight(batch)
            self._waiting[batch.tp].appendleft(batch)
        return self._retry(self._last, {batch.tp for batch in again})

    def _retry(self, problem: Failure, partitions: Iterable[TopicPartition]) -> Failure | None:
        """Back off for a retry; return the problem if it is not retriable or the time is up."""
        self._cluster.forget(*{tp.topic for tp in partitions})
        if problem.retriable and self._retries.again():
            return None
        return problem
