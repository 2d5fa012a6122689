"""A steady counter for development: broker CPU per request and record, for the same bytes every time.

A raw socket replays prepared frames, so that neither a client's batching nor its garbage collector blurs the figure. It
compares a broker with itself of yesterday; for a comparison with Apache Kafka see `measures`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import frames, topics
from benchmarks.measures import BATCH_RECORDS_100, PARTITIONS
from benchmarks.peers import Peer
from benchmarks.topics import IN_FLIGHT, Topic

PRODUCER_ID = 4_711
WARM_SHARE = 10  # one tenth of the requests is sent first and not counted


@dataclass(frozen=True, slots=True)
class Replay:
    """One sort of request: how many are sent, how many records each carries, and the frames."""

    name: str
    requests: int
    records: int
    make: Callable[[Topic], Iterator[bytes]]
    fetches: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    name: str
    requests: int
    cpu_us_per_request: float
    cpu_us_per_record: float
    requests_per_s: float


def _same(records: int, partitions: int) -> Callable[[Topic], Iterator[bytes]]:
    def make(topic: Topic) -> Iterator[bytes]:
        data = frames.batch(records, 100)
        request = frames.produce(topic.id, [(index, data) for index in range(partitions)])
        while True:
            yield request

    return make


def _in_sequence(records: int, partitions: int) -> Callable[[Topic], Iterator[bytes]]:
    def make(topic: Topic) -> Iterator[bytes]:
        body = frames.batch(records, 100, producer_id=PRODUCER_ID, epoch=0, base_sequence=0)
        sequence = 0
        while True:
            data = frames.with_sequence(body, sequence)
            yield frames.produce(topic.id, [(index, data) for index in range(partitions)], acks=-1)
            sequence += records

    return make


def _read(partitions: int, partition_bytes: int) -> Callable[[Topic], Iterator[bytes]]:
    def make(topic: Topic) -> Iterator[bytes]:
        request = frames.fetch(topic.id, [(index, 0) for index in range(partitions)], partition_bytes=partition_bytes)
        while True:
            yield request

    return make


FETCH_BATCHES = 20  # what one partition gives to a large fetch

REPLAYS = (
    Replay("produce, 5 × 16 KB", 6_000, BATCH_RECORDS_100 * 5, _same(BATCH_RECORDS_100, 5)),
    Replay("produce, 5 × 16 KB, idempotent", 6_000, BATCH_RECORDS_100 * 5, _in_sequence(BATCH_RECORDS_100, 5)),
    Replay("produce, one record", 30_000, 1, _same(1, 1)),
    Replay("produce, one record, idempotent", 30_000, 1, _in_sequence(1, 1)),
    Replay(
        "fetch, 5 × 320 KB", 2_000, BATCH_RECORDS_100 * FETCH_BATCHES * 5,
        _read(5, FETCH_BATCHES * len(frames.batch(BATCH_RECORDS_100, 100))), fetches=True,
    ),
    Replay("fetch, 16 KB", 20_000, BATCH_RECORDS_100, _read(1, 1), fetches=True),
)  # fmt: skip


def count(peer: Peer, replay: Replay, scale: float) -> Counted:
    """Replays on a topic of its own; a tenth warms it, the rest is counted."""
    requests = max(50, int(replay.requests * scale))
    with topics.topic(peer, PARTITIONS) as topic, frames.Connection(peer.address) as connection:
        if replay.fetches:
            wanted = BATCH_RECORDS_100 * FETCH_BATCHES * PARTITIONS * 2
            topics.fill(peer, topic, records=wanted, value_size=100, batch_records=BATCH_RECORDS_100)
        source = replay.make(topic)
        _replay(connection, replay, source, requests // WARM_SHARE)
        before, began = peer.cpu_seconds(), time.perf_counter()
        _replay(connection, replay, source, requests)
        seconds, used = time.perf_counter() - began, peer.cpu_seconds() - before
    per_request = used / requests * 1e6
    return Counted(replay.name, requests, per_request, per_request / replay.records, requests / seconds)


def _replay(connection: frames.Connection, replay: Replay, source: Iterator[bytes], requests: int) -> None:
    for number in range(requests + IN_FLIGHT):
        if number < requests:
            connection.send(next(source))
        if number >= IN_FLIGHT:
            _check(connection.receive(), replay)


def _check(answer: frames.Answer, replay: Replay) -> None:
    """Every answer is looked at: a broker that refuses is fast."""
    if not replay.fetches:
        frames.check_produced(answer, 1 if replay.records == 1 else PARTITIONS)
    elif frames.check_fetched(answer).records_size == 0:
        raise frames.RefusedError("Fetch gave no records", -1)
