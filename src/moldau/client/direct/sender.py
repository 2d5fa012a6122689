"""Encoded batches on their way: pipelined Produce requests, answers, and what is sent again. Encodes nothing.

Batches of a partition go out in order, one to a request, and up to five requests are in flight to a broker. When one
fails in a way that passes, nothing more goes to that broker until all it has been sent is answered; then what failed
goes first, in its order. An idempotent producer's sequences make that safe: what was written before is not written
twice, and what overtook a lost batch is refused as out of order and waits its turn. A broker that does not know the
producer takes any sequence for its first, so the second batch of a partition waits for the answer to the first.

With acks=0 nobody answers: what was handed to the network counts as delivered.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from moldau.base.errors import WireError
from moldau.client.direct.connection import NEWEST, Connection, Ticket
from moldau.client.direct.failed import DUPLICATE_SEQUENCE_NUMBER, Failed, failed
from moldau.client.direct.metadata import NETWORK, Cluster, Place, Topic, network_failure
from moldau.client.direct.offsets import by_topic
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

IN_FLIGHT: Final = 5  # a broker remembers five batches of a producer and partition
REQUEST_BYTES: Final = 4 * 1024 * 1024  # of a request with several batches, unless the caller says otherwise
WAITING_BYTES: Final = 32 * 1024 * 1024  # a caller who writes faster than brokers take waits here
BY_NAME: Final = 12  # the last version of Produce with topic names


@dataclass(slots=True)
class Outgoing:
    """One batch; `order` is that of the writer's calls, with more behind it for a part of what was too large."""

    place: Place
    data: bytes
    order: tuple[int, ...]
    records: int = 1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Sent:
    """A request in flight. Its answer has topics by name or by id, in any order."""

    ticket: Ticket[ProduceResponse]
    batches: list[Outgoing]
    names: dict[UUID, str]


@dataclass(slots=True)
class Lane:
    """What is in flight to one broker."""

    connection: Connection | None = None
    sent: deque[Sent] = field(default_factory=deque)
    again: list[Outgoing] = field(default_factory=list)  # failed in a way that passes; while any, nothing is sent

    @property
    def has_answer(self) -> bool:
        return bool(self.sent) and self.connection is not None and self.connection.has_answer


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        request_bytes: int = REQUEST_BYTES,
        timeout_s: float | None = None,
        delivered: Callable[[Outgoing], None] = lambda _: None,
        split: Callable[[Outgoing], list[Outgoing]] = lambda _: [],
    ) -> None:
        """`timeout_s`, if not the cluster's, is how long nothing may be delivered before the sender gives up.

        `split` makes several batches of one that a broker finds too large, or none if that cannot be.
        """
        self.until = NEWEST
        self._cluster = cluster
        self._acks = acks
        self._transactional_id = transactional_id
        self._request_bytes = request_bytes
        self._timeout_s = timeout_s
        self._delivered = delivered
        self._split = split
        self._waiting: dict[Place, deque[Outgoing]] = {}
        self._lanes: dict[int, Lane] = {}
        self._under_way: dict[Place, tuple[int, int]] = {}  # the broker that batches were sent to, and how many
        self._begun: set[Place] = set()  # partitions to which something was delivered
        self._bytes = 0
        self._patience = cluster.patience(timeout_s)
        self._last = failed(WireError.NETWORK_EXCEPTION, "nothing was sent")  # why something goes again

    def close(self) -> None:
        for lane in self._lanes.values():
            if lane.connection is not None:
                lane.connection.close()
        self._lanes.clear()

    def discard(self) -> None:
        """Forgets everything that was not delivered; what is in flight may still be."""
        self.close()
        self._waiting.clear()
        self._under_way.clear()
        self._bytes = 0

    def add(self, batches: Iterable[Outgoing]) -> Failed | None:
        """Takes batches, and waits while too many bytes wait."""
        for batch in batches:
            self._waiting.setdefault(batch.place, deque()).append(batch)
            self._bytes += len(batch.data)
        return self.push(most=WAITING_BYTES)

    def push(self, most: int = 0) -> Failed | None:
        """Sends, and reads answers: those that are there, and others until at most `most` bytes are not delivered."""
        self._patience = self._cluster.patience(self._timeout_s)
        while self._bytes:
            problem = self._send_what_can_be()
            if problem is not None:
                return problem
            due = [each for each in self._lanes.items() if self._bytes > most or each[1].has_answer]
            if not due:
                return None
            for node_id, lane in due:
                problem = self._read_one(node_id, lane)
                if problem is not None:
                    return problem
        return None

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send_what_can_be(self) -> Failed | None:
        while True:
            by_node = self._ready_places()
            if isinstance(by_node, Failed):
                return by_node
            ready = [node for node in by_node if self._has_room(node)]
            if not ready:
                return None
            for node_id in ready:
                self._send_to(node_id, by_node[node_id])

    def _ready_places(self) -> dict[int, list[Place]] | Failed:
        """Partitions with something to send, by leader; waits while one has none."""
        while True:
            by_node: dict[int, list[Place]] = {}
            missing: Failed | None = None
            for place in [place for place, waiting in self._waiting.items() if waiting]:
                leader = self._cluster.leader(place, self._patience)
                if isinstance(leader, Failed):
                    missing = leader
                    self._cluster.forget(place.topic)
                elif self._may_send(place, leader.node_id):
                    by_node.setdefault(leader.node_id, []).append(place)
            if missing is None:
                return by_node
            if not missing.retriable or not self._patience.again():
                return missing

    def _may_send(self, place: Place, node_id: int) -> bool:
        """Not while the partition's first batch is under way, nor while a former leader has to answer."""
        if place not in self._under_way:
            return True
        return place in self._begun and self._under_way[place][0] == node_id

    def _has_room(self, node_id: int) -> bool:
        lane = self._lanes.setdefault(node_id, Lane())
        if lane.sent and lane.connection is not None and lane.connection.stale:
            return False  # its session ends: all is answered, then another connection is made (KIP-368)
        return not lane.again and len(lane.sent) < IN_FLIGHT

    def _send_to(self, node_id: int, places: list[Place]) -> None:
        lane = self._lanes[node_id]
        batches: list[Outgoing] = []
        size = 0
        for place in places:
            if batches and size + len(self._waiting[place][0].data) > self._request_bytes:
                continue
            batches.append(self._waiting[place].popleft())
            size += len(batches[-1].data)
        for batch in batches:
            self._under_way[batch.place] = (node_id, self._under_way.get(batch.place, (node_id, 0))[1] + 1)
        try:
            if lane.connection is not None and lane.connection.stale:
                lane.connection.close()
                lane.connection = None
            lane.connection = lane.connection or self._cluster.own_connection(node_id)
            self._send(lane, lane.connection, batches)
        except NETWORK as error:
            self._lane_lost(lane, batches, network_failure(f"broker {node_id}", error))

    def _send(self, lane: Lane, connection: Connection, batches: list[Outgoing]) -> None:
        request, names, until = self._request(batches)
        if self._acks == 0:
            connection.tell(request, until=until)
            for batch in batches:
                self._arrived(batch)
        else:
            lane.sent.append(Sent(connection.send(request, ProduceResponse, until=until), batches, names))

    def _request(self, batches: list[Outgoing]) -> tuple[ProduceRequest, dict[UUID, str], int]:
        """With the names of the topics' ids, and the newest version that says it."""
        data = {batch.place: batch.data for batch in batches}
        topics = []
        names = {}
        until = self.until
        for name, places in by_topic(data):
            topic = self._cluster.topic(name)
            assert isinstance(topic, Topic), "its leader is known"
            if not topic.topic_id.int:
                until = min(until, BY_NAME)
            parts = tuple(PartitionProduceData(index=place.partition, records=data[place]) for place in places)
            names[topic.topic_id] = name
            topics.append(TopicProduceData(name=name, topic_id=topic.topic_id, partition_data=parts))
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=tuple(topics),
        )
        return request, names, until

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_one(self, node_id: int, lane: Lane) -> Failed | None:
        """The oldest answer of a broker, if one is due; what failed goes back once all are answered."""
        if lane.sent:
            sent = lane.sent.popleft()
            assert lane.connection is not None
            try:
                answer = lane.connection.receive(sent.ticket)
            except NETWORK as error:
                self._lane_lost(lane, sent.batches, network_failure(f"broker {node_id}", error))
            else:
                problem = self._judge(lane, sent, answer)
                if problem is not None:
                    return problem
        if lane.again and not lane.sent:
            return self._back_in_line(lane)
        return None

    def _judge(self, lane: Lane, sent: Sent, answer: ProduceResponse) -> Failed | None:
        rows = {
            Place(topic.name or sent.names.get(topic.topic_id, ""), row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        for batch in sent.batches:
            row = rows.get(batch.place)
            if row is not None and row.error_code in (WireError.NONE, DUPLICATE_SEQUENCE_NUMBER):
                batch.offset = row.base_offset
                self._arrived(batch)
                continue
            problem = self._problem(batch, row)
            parts = self._split(batch) if problem.code == WireError.MESSAGE_TOO_LARGE else []
            if parts:
                self._go_in_parts(lane, batch, parts)
                self._last = replace(problem, retriable=True)
                continue
            # A batch that overtook one that goes again is out of order, and goes again behind it.
            behind = any(each.place == batch.place for each in lane.again)
            if not problem.retriable and not (behind and problem.code == WireError.OUT_OF_ORDER_SEQUENCE_NUMBER):
                return problem
            lane.again.append(batch)
            if not behind:
                self._last = problem
        return None

    def _go_in_parts(self, lane: Lane, batch: Outgoing, parts: list[Outgoing]) -> None:
        """They take the batch's place, and go again as if they had failed."""
        node_id, count = self._under_way[batch.place]
        self._under_way[batch.place] = (node_id, count - 1 + len(parts))
        self._bytes += sum(len(part.data) for part in parts) - len(batch.data)
        lane.again += parts
        self._patience.progress()

    def _arrived(self, batch: Outgoing) -> None:
        self._bytes -= len(batch.data)
        self._leave(batch)
        self._begun.add(batch.place)
        self._patience = self._cluster.patience(self._timeout_s)
        self._delivered(batch)

    def _problem(self, batch: Outgoing, row: PartitionProduceResponse | None) -> Failed:
        what = f"Produce to {batch.place.topic}-{batch.place.partition}"
        if row is None:
            return failed(WireError.UNKNOWN_SERVER_ERROR, f"{what} was not answered")
        problem = failed(row.error_code, what)
        if problem.code == WireError.MESSAGE_TOO_LARGE and batch.records == 1:
            message = f"{what}: its max.message.bytes is less than the {len(batch.data)} bytes of a record"
            return replace(problem, message=message)
        if not row.error_message:
            return problem
        return Failed(problem.code, problem.name, f"{what}: {row.error_message}", problem.retriable)

    def _leave(self, batch: Outgoing) -> None:
        """It is not on its way any more: delivered, or back in line."""
        node_id, count = self._under_way.pop(batch.place)
        if count > 1:
            self._under_way[batch.place] = (node_id, count - 1)

    def _lane_lost(self, lane: Lane, batches: list[Outgoing], problem: Failed) -> None:
        """Nobody knows what has arrived of what was in flight: all of it goes again."""
        lane.again += batches
        for sent in lane.sent:
            lane.again += sent.batches
        lane.sent.clear()
        if lane.connection is not None:
            lane.connection.close()
            lane.connection = None
        self._last = problem

    def _back_in_line(self, lane: Lane) -> Failed | None:
        again = sorted(lane.again, key=lambda batch: batch.order, reverse=True)
        lane.again = []
        for batch in again:
            self._leave(batch)
            self._waiting[batch.place].appendleft(batch)
        return self._try_again(self._last, {batch.place for batch in again})

    def _try_again(self, problem: Failed, places: Iterable[Place]) -> Failed | None:
        """The problem, if it does not pass or the time is up."""
        self._cluster.forget(*{place.topic for place in places})
        if problem.retriable and self._patience.again():
            return None
        return problem
