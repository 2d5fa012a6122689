"""Fetch a range of offsets [start, end) of one partition as whole record batches. `records` decodes them.

The next Fetch is sent before the batches of the last one are yielded, so the broker works while the caller decodes.
A reader has its own connection. It follows leader changes, and fetches from a preferred read replica in the client's
rack (KIP-392). An error that is not retriable is yielded as a `Failure` and ends the iteration.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct.connection import Connection, InFlightRequest
from moldau.client.direct.failure import Failure, failure_of
from moldau.client.direct.metadata import NETWORK, Cluster, Leader, Topic, network_failure
from moldau.client.direct.offsets import READ_COMMITTED, READ_UNCOMMITTED
from moldau.wire.batch import CONTROL, HEADER_SIZE, MAGIC, PREFIX_SIZE, TRANSACTIONAL, BatchHeader, read_header
from moldau.wire.compression import CorruptRecords
from moldau.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from moldau.wire.primitives import ZERO_UUID
from moldau.wire.records import ControlType, check_batch, decode_control, decode_records

BY_NAME = 12  # the last version of Fetch with topic names
MARKER_BYTES = 64 * 1024  # limit for a control batch; a marker has some dozen
MAX_WAIT_SHARE = 0.5  # of the request timeout: a broker that waits for bytes must not seem unreachable
INCONSISTENT_TOPIC_ID = 103
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43


class FetchSizes(NamedTuple):
    """fetch.max.bytes, fetch.min.bytes and fetch.max.wait.ms of a Fetch."""

    partition_max_bytes: int = 4 * 1024 * 1024
    min_bytes: int = 1
    max_wait_ms: int = 500


class FetchedBatches(NamedTuple):
    """Batches with verified checksums; the first and last may hold records outside of the range."""

    batches: list[memoryview]
    next_offset: int  # position of the next Fetch; past `end` when done
    high_watermark: int
    last_stable_offset: int


def read_range(
    cluster: Cluster,
    tp: TopicPartition,
    start: int,
    end: int,
    *,
    isolation: int = READ_UNCOMMITTED,
    sizes: FetchSizes = FetchSizes(),  # noqa: B008  # an immutable value
) -> Iterator[FetchedBatches | Failure]:
    """The batches that hold these offsets. The first and the last may hold others too (`records.decode` trims).

    Under READ_COMMITTED, batches of aborted transactions are left out. If the partition ends before `end`, reading
    waits for more records, and fails if none arrive within the cluster's timeout.
    """
    reader = _Reader(cluster, tp, end, isolation, sizes)
    try:
        yield from reader.fetch_all(start)
    finally:
        reader.close()


class _Reader:
    def __init__(self, cluster: Cluster, tp: TopicPartition, end: int, isolation: int, sizes: FetchSizes) -> None:
        self._cluster = cluster
        self._tp = tp
        self._end = end
        self._isolation = isolation
        self._sizes = sizes
        self._connection: Connection | None = None
        self._topic_id: UUID | None = None
        self._leader = Leader(-1, -1)
        self._nearer: int | None = None  # preferred read replica

    def close(self) -> None:
        if self._connection is not None:
            self._cluster.release(self._connection)
            self._connection = None

    def fetch_all(self, position: int) -> Iterator[FetchedBatches | Failure]:
        retries = self._cluster.retries()
        ahead: InFlightRequest[FetchResponse] | None = None
        while position < self._end:
            found = self._next_part(position, ahead)
            ahead = None
            if not isinstance(found, Failure) and self._goes_nearer(found):
                continue
            fetched = found if isinstance(found, Failure) else self._batches_of(found, position)
            if isinstance(fetched, Failure):
                if self._nearer is None and not fetched.retriable:
                    yield fetched
                    return
                self.close()
                self._nearer = None  # the leader may have records that the replica lacks
                self._cluster.forget(self._tp.topic)
            elif fetched.next_offset > position:
                position = fetched.next_offset
                ahead = self._send_ahead(position)
                if fetched.batches:
                    yield fetched
                retries = self._cluster.retries()  # the caller's time is not counted
                continue
            if not retries.again():
                yield fetched if isinstance(fetched, Failure) else self._nothing_came(position, fetched)
                return

    def _nothing_came(self, position: int, fetched: FetchedBatches) -> Failure:
        ends = f"high watermark {fetched.high_watermark}, last stable offset {fetched.last_stable_offset}"
        message = f"{self._tp.topic}-{self._tp.partition} has no records at offset {position} yet ({ends})"
        return failure_of(WireError.REQUEST_TIMED_OUT, message)

    def _goes_nearer(self, part: PartitionData) -> bool:
        """Tell whether the leader named a preferred read replica, and switch to it once."""
        if part.error_code or self._nearer is not None or not self._cluster.has_broker(part.preferred_read_replica):
            return False
        self._nearer = part.preferred_read_replica
        self.close()
        return True

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _next_part(self, position: int, ahead: InFlightRequest[FetchResponse] | None) -> PartitionData | Failure:
        """The response at `position`; its request may be in flight already."""
        if self._connection is None or self._connection.stale:
            ahead = None
            problem = self._connect()
            if problem is not None:
                return problem
        assert self._connection is not None
        try:
            response = self._connection.receive(ahead or self._send(self._connection, position))
        except NETWORK as error:
            return network_failure(self._connection.address, error)
        if response.error_code:
            return failure_of(response.error_code, f"Fetch of {self._tp.topic}-{self._tp.partition}")
        part = next((part for topic in response.responses for part in topic.partitions), None)
        return part or failure_of(WireError.UNKNOWN_SERVER_ERROR, "the leader's response lacks the partition")

    def _send_ahead(self, position: int) -> InFlightRequest[FetchResponse] | None:
        if position >= self._end or self._connection is None or self._connection.stale:
            return None
        try:
            return self._send(self._connection, position)
        except NETWORK:
            return None  # the connection is closed; the next iteration opens another

    def _send(self, connection: Connection, position: int) -> InFlightRequest[FetchResponse]:
        wanted = FetchPartition(
            partition=self._tp.partition,
            current_leader_epoch=self._leader.epoch,
            fetch_offset=position,
            partition_max_bytes=self._sizes.partition_max_bytes,
        )
        topic_id = self._topic_id or ZERO_UUID
        request = FetchRequest(
            max_wait_ms=min(self._sizes.max_wait_ms, int(self._cluster.timeout_s * MAX_WAIT_SHARE * 1000)),
            min_bytes=self._sizes.min_bytes,
            max_bytes=self._sizes.partition_max_bytes,
            isolation_level=self._isolation,
            rack_id=self._cluster.rack,
            topics=(FetchTopic(topic=self._tp.topic, topic_id=topic_id, partitions=(wanted,)),),
        )
        return connection.send(request, FetchResponse, **({} if topic_id.int else {"until": BY_NAME}))

    def _connect(self) -> Failure | None:
        """Connect to the current leader, or to the preferred read replica."""
        self.close()
        retries = self._cluster.retries()
        leader = self._cluster.leader(self._tp, retries)
        topic = self._cluster.topic(self._tp.topic, retries)
        if not isinstance(leader, Leader):
            return leader
        assert isinstance(topic, Topic), "a partition with a leader has a topic"
        if self._topic_id is not None and topic.topic_id != self._topic_id:
            gone = f"topic {self._tp.topic!r} was deleted and recreated while it was read"
            return Failure(INCONSISTENT_TOPIC_ID, "INCONSISTENT_TOPIC_ID", gone)
        node_id = leader.node_id if self._nearer is None else self._nearer
        try:
            self._connection = self._cluster.dedicated_connection(node_id)
        except NETWORK as error:
            return network_failure(f"broker {node_id}", error)
        self._topic_id, self._leader = topic.topic_id, leader
        return None

    # ── responses ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _batches_of(self, part: PartitionData, position: int) -> FetchedBatches | Failure:
        name = f"{self._tp.topic}-{self._tp.partition}"
        if part.error_code:
            return failure_of(part.error_code, f"Fetch of {name} at offset {position}")
        found = whole_batches(part.records or b"")
        if isinstance(found, Failure):
            return found
        following = max([position, *(header.last_offset + 1 for header, _ in found[-1:])])
        found = [(header, batch) for header, batch in found if position <= header.last_offset]
        try:
            if self._isolation == READ_COMMITTED:
                found = without_aborted(found, part.aborted_transactions or ())
            kept = [batch for header, batch in found if header.base_offset < self._end and not _is_control(header)]
            for batch in kept:
                check_batch(batch)
        except CorruptRecords as bad:
            return Failure(WireError.CORRUPT_MESSAGE, WireError.CORRUPT_MESSAGE.name, f"{name}: {bad}")
        return FetchedBatches(kept, following, part.high_watermark, part.last_stable_offset)


Batches = list[tuple[BatchHeader, memoryview]]


def whole_batches(records: bytes) -> Batches | Failure:
    """The complete batches of a response; a last batch that is cut off comes again with the next Fetch."""
    view = memoryview(records)
    found: Batches = []
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = read_header(view, position)
        if header.magic != MAGIC or header.size < HEADER_SIZE:
            message = f"a batch of format {header.magic} and {header.size} bytes at offset {header.base_offset}"
            return Failure(UNSUPPORTED_FOR_MESSAGE_FORMAT, "UNSUPPORTED_FOR_MESSAGE_FORMAT", message)
        if position + header.size > len(view):
            break
        found.append((header, view[position : position + header.length + PREFIX_SIZE]))
        position += header.size
    return found


def without_aborted(batches: Batches, aborted: Sequence[AbortedTransaction]) -> Batches:
    """Batches without those of aborted transactions, each from its first offset to its abort marker (KIP-98)."""
    coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_now: set[int] = set()
    kept = []
    for header, batch in batches:
        while coming and coming[-1].first_offset <= header.last_offset:
            open_now.add(coming.pop().producer_id)
        if _is_control(header):
            if header.producer_id in open_now and _ends_in_abort(batch):
                open_now.remove(header.producer_id)
        elif header.attributes & TRANSACTIONAL and header.producer_id in open_now:
            continue
        kept.append((header, batch))
    return kept


def _is_control(header: BatchHeader) -> bool:
    return bool(header.attributes & CONTROL)


def _ends_in_abort(batch: memoryview) -> bool:
    records = decode_records(batch, limit=MARKER_BYTES)
    return bool(records) and decode_control(records[0]).type == ControlType.ABORT
