"""The table of what is saturated: for each measure the frames of five connections, and what their answers must say.

Brings topics and transactions into the state that the frames need. Sends no load and takes no time.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from struct import Struct
from typing import TypeVar

from benchmarks import frames, topics
from benchmarks.measures import BATCH_RECORDS_100
from benchmarks.peers import Peer
from benchmarks.saturation_load import TAPE_FRAMES, Shape, Tape, tape
from benchmarks.topics import Topic
from moldau.wire.batch import HEADER_SIZE
from moldau.wire.codec import decode, encode
from moldau.wire.compression import Codec
from moldau.wire.declare import layout_of
from moldau.wire.headers import read_response_header
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

CONNECTIONS = 5  # each with a partition, a producer or a group of its own
BATCH_RECORDS_1K = 64
FETCH_BATCHES = 64  # of 100-byte records: 1 MB
FETCHES = 16  # different ones per connection, one behind the other
NOT_YET = {14, 15, 16, 51}  # the coordinator loads, is not there or elsewhere; the last transaction is still ending
LIMIT_S = 60.0
SEQUENCE_AT = HEADER_SIZE - 8  # in a batch

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


def _produce(batch: Callable[[], bytes]) -> Prepare:
    @contextlib.contextmanager
    def prepare(peer: Peer, topic: Topic) -> Iterator[list[Tape]]:
        data = batch()
        made = [frames.produce(topic.id, [(index, data)]) for index in range(CONNECTIONS)]
        yield [tape(PRODUCED, lambda _, frame=frame: frame, _produced(index)) for index, frame in enumerate(made)]  # type: ignore[misc]

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
    transactional_id: str | None = None
    next: int = TAPE_FRAMES * BATCH_RECORDS_100

    def tape(self) -> Tape:
        made = tape(PRODUCED, self._frame, _produced(self.partition), renew=self._renew)
        assert made.count == TAPE_FRAMES, "batches are large enough for the smallest tape"
        return made

    def _frame(self, number: int) -> bytes:
        data = frames.with_sequence(self.data, number * BATCH_RECORDS_100)
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
            producer = _init(connection, None)
            data = frames.batch(BATCH_RECORDS_100, 100, producer_id=producer[0], epoch=producer[1], base_sequence=0)
            tapes.append(Sequence(data, index, topic).tape())
    yield tapes


def _init(connection: frames.Connection, transactional_id: str | None) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=int(LIMIT_S * 1000))

    def ask() -> tuple[int, InitProducerIdResponse]:
        answer = call(connection, request, InitProducerIdResponse, 4)
        return answer.error_code, answer

    found = patiently("InitProducerId", ask)
    return found.producer_id, found.producer_epoch


def call(connection: frames.Connection, request: object, answer: type[Response], version: int) -> Response:
    """One request of any API, and its response."""
    layout = layout_of(type(request))
    frame = frames.frame(layout.key, version, encode(request, version), flexible=layout.is_flexible(version))
    head = connection.ask(frame).head
    return decode(answer, version, head, read_response_header(layout.key, version, head)[1])


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


def _fetched(records_size: int) -> Shape:
    length = len(frames.unsigned(records_size + 1))
    head = Struct(f">iix4xh4xb16xbih24xx4x{length}s")
    return Shape("Fetch", head, (*_FETCHED_NAMES, "records"), head.size + records_size + _BEHIND_RECORDS)


@contextlib.contextmanager
def _hot(peer: Peer, topic: Topic) -> Iterator[list[Tape]]:
    records = BATCH_RECORDS_100 * FETCH_BATCHES
    topics.fill(
        peer, topic, records=records * FETCHES * CONNECTIONS, value_size=100, batch_records=BATCH_RECORDS_100
    )  # fmt: skip
    size = FETCH_BATCHES * len(frames.batch(BATCH_RECORDS_100, 100))
    shape = _fetched(size)

    def read(index: int) -> Tape:
        def make(number: int) -> bytes:
            return frames.fetch(topic.id, [(index, number % FETCHES * records)], partition_bytes=size)

        return tape(shape, make, (0, 2, 2, index, 0, frames.unsigned(size + 1)), frames=FETCHES)

    yield [read(index) for index in range(CONNECTIONS)]


FETCHED_MB = FETCH_BATCHES * len(frames.batch(BATCH_RECORDS_100, 100)) / 1e6

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
    Saturation("fetch-hot", "answers of 1 MB from the page cache, no session", "MB", FETCHED_MB, _hot),
)  # fmt: skip


def chosen(only: list[str]) -> list[Saturation]:
    """The measures with these names; all if there are none."""
    return [measure for measure in MEASURES if not only or measure.name in only]
