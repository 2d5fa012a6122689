"""The table of what is saturated: for each measure the frames of five connections, and what their answers must say.

Brings topics and transactions into the state that the frames need. Sends no load and takes no time.
"""

import contextlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import TypeVar

from benchmarks import frames, topics
from benchmarks.followed import FOLLOWER
from benchmarks.measures import BATCH_RECORDS_100
from benchmarks.peers import Peer
from benchmarks.saturation_load import TAPE_FRAMES, Shape, Tape, tape
from benchmarks.topics import Topic
from moldau.wire.codec import encode
from moldau.wire.compression import Codec
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic

CONNECTIONS = 5  # each with a partition, a producer or a group of its own
BATCH_RECORDS_1K = 64
FETCH_BATCHES = 64  # of 100-byte records: 1 MB
OFFSET_COMMIT, OFFSET_COMMIT_VERSION = 8, 9
FETCHES = 16  # different ones per connection, one behind the other
NOT_YET = {14, 15, 16, 51}  # the coordinator loads, is not there or elsewhere; the last transaction is still ending
LIMIT_S = 60.0
GROUP, TRANSACTION = 0, 1  # keys of coordinators

Response = TypeVar("Response")
Prepare = Callable[[Peer, Topic], AbstractContextManager[list[Tape]]]


@dataclass(frozen=True, slots=True)
class Saturation:
    """One row: what is sent, and what is counted."""

    name: str
    says: str
    unit: str  # of what is counted
    per_answer: float  # such units
    prepare: Prepare
    followed: bool = (
        False  # needs a topic with a follower that has stopped; it is prepared once, and not for each round
    )
    tls: bool = False  # is sent over TLS, to a broker that has a listener for it

    @property
    def has_own_brokers(self) -> bool:
        return self.followed or self.tls


# ── Produce ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# Size, correlation id; topics; partitions, partition, error. Between them the tags and the id of the topic, behind them
# three offsets, no errors of records, no message, tags, the throttle time and tags.
_PRODUCED = Struct(">iixb16xbih24xbbb1x4x1x")
PRODUCED = Shape(
    "Produce",
    _PRODUCED,
    ("size", "correlation id", "topics", "partitions", "partition", "error", "record errors", "message", "tags"),
    _PRODUCED.size,
)


def _produced(partition: int) -> tuple[int, ...]:
    return 2, 2, partition, 0, 1, 0, 0  # compact arrays and strings count from one


def produce_tapes(topic: uuid.UUID, batch: bytes) -> list[Tape]:
    """The same batch again and again, on each connection to a partition of its own."""

    def write(index: int) -> Tape:
        frame = frames.produce(topic, [(index, batch)])
        return tape(PRODUCED, lambda _: frame, _produced(index))

    return [write(index) for index in range(CONNECTIONS)]


def _produce(batch: Callable[[], bytes]) -> Prepare:
    @contextlib.contextmanager
    def prepare(peer: Peer, topic: Topic) -> Iterator[list[Tape]]:
        yield produce_tapes(topic.id, batch())

    return prepare


def _compressible() -> bytes:
    """Values of which lz4 takes off a good half, as of text."""
    source = random.Random(100)
    values = [source.randbytes(40) + b"value" * 12 for _ in range(BATCH_RECORDS_100)]
    return frames.compressed_batch(values, Codec.LZ4)


# ── Produce in sequence ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Sequence:
    """The batches of one producer in one partition: the sequence numbers go on with every pass of its tape."""

    data: bytes
    partition: int
    topic: Topic
    next: int = 0  # sequence number
    transactional_id: str | None = None

    def tape(self) -> Tape:
        made = tape(PRODUCED, self._frame, _produced(self.partition), renew=self._renew)
        assert made.count == TAPE_FRAMES, "batches are large enough for the smallest tape"
        self.next += TAPE_FRAMES * BATCH_RECORDS_100
        return made

    def _frame(self, number: int) -> bytes:
        data = frames.with_sequence(self.data, self.next + number * BATCH_RECORDS_100)
        return frames.produce(
            self.topic.id, [(self.partition, data)], acks=-1, transactional_id=self.transactional_id
        )  # fmt: skip

    def _renew(self, tape: bytearray) -> None:
        size = len(tape) // TAPE_FRAMES
        for end in range(size, len(tape) + 1, size):
            start = end - len(self.data) - 3  # behind the batch the tags of partition, topic and request
            tape[start : end - 3] = frames.with_sequence(self.data, self.next)
            self.next += BATCH_RECORDS_100


@contextlib.contextmanager
def _idempotent(peer: Peer, topic: Topic) -> Iterator[list[Tape]]:
    tapes = []
    with frames.Connection(peer.address) as connection:
        for index in range(CONNECTIONS):
            producer_id, epoch = _init(connection, None)
            data = frames.batch(BATCH_RECORDS_100, 100, producer_id=producer_id, epoch=epoch, base_sequence=0)
            tapes.append(Sequence(data, index, topic).tape())
    yield tapes


@contextlib.contextmanager
def _in_transaction(peer: Peer, topic: Topic) -> Iterator[list[Tape]]:
    with frames.Connection(peer.address) as connection:
        producer = Transactions.of(connection, topic)
        producer.begin()
        # Apache Kafka verifies the first batch of a partition (KIP-890), and refuses a request that waits for that when
        # another one of its transaction comes: so one request has the first batches of all partitions.
        producer.write(1)
        data = producer.batch()
        yield [Sequence(data, index, topic, producer.sequence, producer.id).tape() for index in range(CONNECTIONS)]
        producer.end(committed=True)


def _init(connection: frames.Connection, transactional_id: str | None) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=int(LIMIT_S * 1000))

    def ask() -> tuple[int, tuple[int, int]]:
        answer = frames.call(connection, request, InitProducerIdResponse, 4)
        return answer.error_code, (answer.producer_id, answer.producer_epoch)

    return patiently("InitProducerId", ask)


@dataclass(slots=True)
class Transactions:
    """A transactional producer on one connection, for all partitions of a topic."""

    connection: frames.Connection
    topic: Topic
    id: str
    producer_id: int
    epoch: int
    sequence: int = 0

    @classmethod
    def of(cls, connection: frames.Connection, topic: Topic) -> "Transactions":
        name = f"saturate-{topic.name}"
        await_coordinator(connection, name, TRANSACTION)
        return cls(connection, topic, name, *_init(connection, name))

    def batch(self) -> bytes:
        return frames.batch(
            BATCH_RECORDS_100, 100, producer_id=self.producer_id, epoch=self.epoch, base_sequence=0, transactional=True
        )

    def begin(self) -> None:
        partitions = AddPartitionsToTxnTopic(name=self.topic.name, partitions=tuple(range(self.topic.partitions)))
        only = AddPartitionsToTxnTransaction(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, topics=(partitions,)
        )

        def ask() -> tuple[int, None]:
            request = AddPartitionsToTxnRequest(transactions=(only,))
            answer = frames.call(self.connection, request, AddPartitionsToTxnResponse, 3)
            found = [
                part for topic in answer.results_by_transaction[0].topic_results for part in topic.results_by_partition
            ]
            return next((part.partition_error_code for part in found if part.partition_error_code), 0), None

        patiently("AddPartitionsToTxn", ask)

    def write(self, batches: int) -> None:
        """So many batches to each partition."""
        data = self.batch()
        for _ in range(batches):
            packed = frames.with_sequence(data, self.sequence)
            parts = [(index, packed) for index in range(self.topic.partitions)]
            answer = self.connection.ask(frames.produce(self.topic.id, parts, acks=-1, transactional_id=self.id))
            frames.check_produced(answer, self.topic.partitions)
            self.sequence += BATCH_RECORDS_100

    def end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=committed
        )  # fmt: skip
        patiently("EndTxn", lambda: (frames.call(self.connection, request, EndTxnResponse, 4).error_code, None))


def await_coordinator(connection: frames.Connection, key: str, kind: int) -> None:
    """The first request for a coordinator creates its topic."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))

    def ask() -> tuple[int, None]:
        return frames.call(connection, request, FindCoordinatorResponse, 4).coordinators[0].error_code, None

    patiently("FindCoordinator", ask)


def patiently(what: str, ask: Callable[[], tuple[int, Response]]) -> Response:
    """Asks again while the error says that a coordinator is not ready."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        error, answer = ask()
        if not error:
            return answer
        if error not in NOT_YET or time.monotonic() > deadline:
            raise frames.RefusedError(f"{what} was refused with error {error}", error)
        time.sleep(0.01)


# ── Fetch ───────────────────────────────────────────────────────────────────────────────────────────────────────────

# Size, correlation id; error; topics; partitions, partition, error; records. Between them tags, throttle time, session,
# the id of the topic, three offsets, and behind the number of aborted transactions the preferred replica.
_FETCHED_NAMES = ("size", "correlation id", "error", "topics", "partitions", "partition", "error of the partition")
_BEHIND_RECORDS = 3  # the tags of partition, topic and answer
ABORTED_SIZE = 17  # producer id, first offset, tags
MARKER_SIZE = 78  # the batch that ends a transaction
TRANSACTIONS = 4  # per answer
FETCH_SIZE = FETCH_BATCHES * len(frames.batch(BATCH_RECORDS_100, 100))


def _fetched(records_size: int, aborted: int = 0) -> Shape:
    length = len(frames.unsigned(records_size + 1))
    head = Struct(f">iix4xh4xb16xbih24xx{aborted * ABORTED_SIZE}x4x{length}s")
    return Shape("Fetch", head, (*_FETCHED_NAMES, "records"), head.size + records_size + _BEHIND_RECORDS)


def _reads(
    topic: Topic, *, size: int, offsets: int, committed: bool = False, aborted: int = 0, follower: int | None = None
) -> list[Tape]:
    """Fetches of `size` bytes at every so many offsets."""
    shape = _fetched(size, aborted)

    def read(index: int) -> Tape:
        def make(number: int) -> bytes:
            where = [(index, number % FETCHES * offsets)]
            return frames.fetch(topic.id, where, partition_bytes=size, committed=committed, follower=follower)

        return tape(shape, make, (0, 2, 2, index, 0, frames.unsigned(size + 1)), frames=FETCHES)

    return [read(index) for index in range(CONNECTIONS)]


def _hot(follower: int | None = None) -> Prepare:
    @contextlib.contextmanager
    def prepare(peer: Peer, topic: Topic) -> Iterator[list[Tape]]:
        records = BATCH_RECORDS_100 * FETCH_BATCHES
        wanted = records * FETCHES * CONNECTIONS
        topics.fill(peer, topic, records=wanted, value_size=100, batch_records=BATCH_RECORDS_100)
        yield _reads(topic, size=FETCH_SIZE, offsets=records, follower=follower)

    return prepare


@contextlib.contextmanager
def _committed(peer: Peer, topic: Topic) -> Iterator[list[Tape]]:
    """Every answer has four transactions, of which the second was aborted: at the edges brokers may name more."""
    with frames.Connection(peer.address) as connection:
        producer = Transactions.of(connection, topic)
        for number in range(FETCHES * TRANSACTIONS):
            producer.begin()
            producer.write(FETCH_BATCHES // TRANSACTIONS)
            producer.end(committed=number % TRANSACTIONS != 1)
        offsets = FETCH_BATCHES * BATCH_RECORDS_100 + TRANSACTIONS
        _await_markers(connection, topic, FETCHES * offsets)
    size = FETCH_SIZE + TRANSACTIONS * MARKER_SIZE
    yield _reads(topic, size=size, offsets=offsets, committed=True, aborted=1)


def _await_markers(connection: frames.Connection, topic: Topic, end: int) -> None:
    """Markers may come after the answer to EndTxn."""
    deadline = time.monotonic() + LIMIT_S
    for index in range(topic.partitions):
        request = frames.fetch(topic.id, [(index, 0)], partition_bytes=1, wait_ms=0)
        while (found := frames.check_fetched(connection.ask(request)).high_watermark) != end:
            if found > end or time.monotonic() > deadline:
                raise RuntimeError(f"partition {index} has {found} offsets instead of {end}")
            time.sleep(0.01)


# ── OffsetCommit ────────────────────────────────────────────────────────────────────────────────────────────────────


def _commit(group: str, topic: Topic, offset: int) -> bytes:
    """Of a group without members, as a simple consumer commits."""
    partitions = tuple(
        OffsetCommitPartition(partition_index=index, committed_offset=offset) for index in range(topic.partitions)
    )
    request = OffsetCommitRequest(group_id=group, topics=(OffsetCommitTopic(name=topic.name, partitions=partitions),))
    return frames.frame(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, encode(request, OFFSET_COMMIT_VERSION))


def _offsets_committed(topic: Topic) -> tuple[Shape, tuple[int, ...]]:
    """Size, correlation id; topics; partitions, then of each index and error. Else tags, throttle time and name."""
    indexes = range(topic.partitions)
    head = Struct(f">iix4xb{1 + len(topic.name)}xb" + "ihx" * topic.partitions + "xx")
    names = [name for index in indexes for name in (f"partition {index}", f"error of partition {index}")]
    shape = Shape("OffsetCommit", head, ("size", "correlation id", "topics", "partitions", *names), head.size)
    return shape, (2, topic.partitions + 1, *(field for index in indexes for field in (index, 0)))


@contextlib.contextmanager
def _commits(peer: Peer, topic: Topic) -> Iterator[list[Tape]]:
    shape, fields = _offsets_committed(topic)
    groups = [f"saturate-{topic.name}-{number}" for number in range(CONNECTIONS)]
    with frames.Connection(peer.address) as connection:
        for group in groups:
            await_coordinator(connection, group, GROUP)
            _await_commit(connection, _commit(group, topic, 0), shape)
    yield [tape(shape, partial(_commit, group, topic), fields) for group in groups]


def _await_commit(connection: frames.Connection, request: bytes, shape: Shape) -> None:
    """A new coordinator may still load."""
    error_at = shape.size - 4 - 2 - 1 - 2  # of the last partition, behind the four bytes of the size
    patiently(
        "OffsetCommit", lambda: (int.from_bytes(connection.ask(request).head[error_at : error_at + 2], "big"), None)
    )


MEASURES = (
    Saturation(
        "produce-100", "150 records of 100 B per request, acks=1", "records", BATCH_RECORDS_100,
        _produce(lambda: frames.batch(BATCH_RECORDS_100, 100)),
    ),
    Saturation(
        "produce-1k", "64 records of 1 KB per request, acks=1", "records", BATCH_RECORDS_1K,
        _produce(lambda: frames.batch(BATCH_RECORDS_1K, 1_000)),
    ),
    Saturation(
        "produce-single", "one record of 100 B per request, acks=1", "records", 1,
        _produce(lambda: frames.batch(1, 100)),
    ),
    Saturation(
        "produce-idempotent", "150 records of 100 B per request, acks=all, in sequence", "records", BATCH_RECORDS_100,
        _idempotent,
    ),
    Saturation(
        "produce-compressed", "150 records of 100 B per request, lz4, acks=1", "records", BATCH_RECORDS_100,
        _produce(_compressible),
    ),
    Saturation(
        "produce-transactional", "150 records of 100 B per request, in an open transaction", "records",
        BATCH_RECORDS_100, _in_transaction,
    ),
    Saturation(
        "produce-tls", "150 records of 100 B per request, acks=1, over TLS", "records", BATCH_RECORDS_100,
        _produce(lambda: frames.batch(BATCH_RECORDS_100, 100)), tls=True,
    ),
    Saturation("fetch-hot", "answers of 1 MB from the page cache, no session", "MB", FETCH_SIZE / 1e6, _hot()),
    Saturation(
        "fetch-follower", "the same, in the place of a follower that has stopped", "MB", FETCH_SIZE / 1e6,
        _hot(FOLLOWER), followed=True,
    ),
    Saturation(
        "fetch-committed", "the same, read_committed, four transactions in each answer, one aborted", "MB",
        (FETCH_SIZE + TRANSACTIONS * MARKER_SIZE) / 1e6, _committed,
    ),
    Saturation("commits", "OffsetCommit of 5 partitions by groups without members", "commits", 1, _commits),
)  # fmt: skip


def chosen(only: list[str]) -> list[Saturation]:
    """The measures with these names; all if there are none."""
    return [measure for measure in MEASURES if not only or measure.name in only]
