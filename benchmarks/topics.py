"""Topics for one round: created on a broker, filled, and deleted with their files. Alike for both brokers."""

import contextlib
import itertools
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import frames
from benchmarks.peers import Peer

LIMIT_S = 60.0
IN_FLIGHT = 5
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: uuid.UUID
    partitions: int


@contextlib.contextmanager
def topic(peer: Peer, partitions: int, settings: Mapping[str, str] | None = None) -> Iterator[Topic]:
    """A topic of its own that leaves nothing behind: neither files nor dirty pages for the next round to pay."""
    made = create(peer, partitions, settings)
    try:
        yield made
    finally:
        delete(peer, made)


def create(peer: Peer, partitions: int, settings: Mapping[str, str] | None = None) -> Topic:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    name = f"bench-{next(_numbers)}"
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
    admin.create_topics([wanted], operation_timeout=LIMIT_S)[name].result(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    return when_led(peer, Topic(name, topic_id(admin, name, deadline), partitions), deadline)


def topic_id(admin: AdminClient, name: str, deadline: float) -> uuid.UUID:
    """The id of a topic that was just created; Apache Kafka's metadata may take a moment to show it."""
    while True:
        try:
            found = admin.describe_topics(TopicCollection([name]))[name].result(LIMIT_S).topic_id
            high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
            return uuid.UUID(int=(high % (1 << 64)) << 64 | low % (1 << 64))
        except KafkaException as failure:
            if failure.args[0].code() not in frames.NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def when_led(peer: Peer, made: Topic, deadline: float) -> Topic:
    """Metadata may name the leaders before they serve; raw frames have no retries, so each partition is asked once."""
    with frames.Connection(peer.address) as connection:
        for index in range(made.partitions):
            request = frames.fetch(made.id, [(index, 0)], partition_bytes=1, wait_ms=0)
            while True:
                try:
                    frames.check_fetched(connection.ask(request))
                    break
                except frames.RefusedError as refused:
                    if refused.error not in frames.NOT_YET or time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
    return made


def delete(peer: Peer, old: Topic) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    admin.delete_topics([old.name], operation_timeout=LIMIT_S)[old.name].result(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while any(peer.data.glob(f"{old.name}-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.sync()


def fill(peer: Peer, target: Topic, *, records: int, value_size: int, batch_records: int) -> int:
    """Writes at least `records` in equal batches, one per partition and request, so that both brokers store the same
    bytes; returns how many."""
    data = frames.batch(batch_records, value_size)
    request = frames.produce(target.id, [(index, data) for index in range(target.partitions)])
    per_request = batch_records * target.partitions
    requests = -(-records // per_request)
    with frames.Connection(peer.address) as connection:
        for number in range(requests + IN_FLIGHT):
            if number < requests:
                connection.send(request)
            if number >= IN_FLIGHT:
                frames.check_produced(connection.receive(), target.partitions)
    return requests * per_request
