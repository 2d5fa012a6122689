"""confluent-kafka for tests: one `write`, one `read`, one `admin`. Other clients are compared with what it reads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

SECONDS = 60
MOMENT_S = 3.0
NO_ANSWER = ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN")
PLENTY = 100 << 20  # a record may be larger than what a client fetches or sends by default

Value = str | bytes | None
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, order=True)
class Record:
    """One record with its place. `timestamp_type` is Kafka's: 0 as the producer said, 1 as the broker appended it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    timestamp_type: int = 0
    headers: Headers = ()


def admin(bootstrap: str, **settings: object) -> AdminClient:
    """A client for administration; settings are librdkafka's with underscores for dots."""
    return AdminClient({"bootstrap.servers": bootstrap, **_dotted(settings)})


def metadata(client: AdminClient, topic: str | None = None) -> ClusterMetadata | None:
    """Of one topic or of all; None if no answer came in a moment, so that a test asks again.

    librdkafka asks one broker and waits for that one alone. If it has just been killed, that takes the whole time-out.
    """
    try:
        return client.list_topics(topic, timeout=MOMENT_S) if topic else client.list_topics(timeout=MOMENT_S)
    except KafkaException as failure:
        if failure.args[0].name() not in NO_ANSWER:
            raise
        return None


def write(bootstrap: str, topic: str, records: Iterable[Value | dict[str, Any]], **settings: object) -> None:
    """Write records and wait until all are acknowledged.

    A record is a value, or what `Producer.produce` takes: `{"value": b"…", "partition": 1, "headers": […]}`.
    """
    given = {"bootstrap.servers": bootstrap, "linger.ms": 5, "message.max.bytes": PLENTY, **_dotted(settings)}
    producer = Producer(given)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for record in records:
        named = record if isinstance(record, dict) else {"value": record}
        while True:
            try:
                producer.produce(topic, **named, on_delivery=delivered)
                break
            except BufferError:  # the queue is full
                producer.poll(0.1)
    left = producer.flush(SECONDS)
    assert not failed, failed[:3]
    assert left == 0, f"{left} records were not acknowledged within {SECONDS} s"


def read(bootstrap: str, *topics: str, isolation: str = "read_committed") -> list[Record]:
    """All records of these topics by topic, partition and offset, up to the end that the isolation level sees."""
    found: list[Record] = []
    for topic in topics:
        described = admin(bootstrap).list_topics(topic, SECONDS).topics[topic]
        assert described.partitions, f"{topic} has no partitions: {described.error}"
        found += read_partitions(bootstrap, topic, sorted(described.partitions), isolation)
    return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))


def read_partitions(
    bootstrap: str, topic: str, partitions: Sequence[int], isolation: str = "read_committed"
) -> list[Record]:
    """All records of these partitions, in the order in which they come."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 50,
        "receive.message.max.bytes": PLENTY,
        "fetch.message.max.bytes": PLENTY >> 2,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found: list[Record] = []
    unfinished = set(partitions)
    try:
        while unfinished:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{topic}: no end of partitions {unfinished} within {SECONDS} s"
            error = message.error()
            if error is None:
                found.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise AssertionError(error)
    finally:
        consumer.close()
    return found


def read_next(consumer: Consumer, count: int) -> list[Record]:
    """The next records that a consumer gets, this many of them."""
    found: list[Record] = []
    while len(found) < count:
        message = consumer.poll(SECONDS)
        assert message is not None, f"{len(found)} of {count} records came within {SECONDS} s"
        if message.error() is None:
            found.append(_record(message))
    return found


def read_values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """The values of all records of a topic, partition by partition."""
    return [(record.value or b"").decode() for record in read(bootstrap, topic, isolation=isolation)]


def values_by_partition(
    bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed"
) -> list[list[str]]:
    """The values of each partition's records."""
    found: list[list[str]] = [[] for _ in range(partitions)]
    for record in read_partitions(bootstrap, topic, range(partitions), isolation):
        found[record.partition].append((record.value or b"").decode())
    return found


def end_offset(client: AdminClient, topic: str, isolation: IsolationLevel, partition: int = 0) -> int:
    """The last stable offset, or the high watermark."""
    part = TopicPartition(topic, partition)
    found: dict[TopicPartition, Any] = client.list_offsets({part: OffsetSpec.latest()}, isolation_level=isolation)
    return int(found[part].result(SECONDS).offset)


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name if name == "log_level" else name.replace("_", "."): value for name, value in settings.items()}


def _record(message: Any) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        timestamp_ms=timestamp,
        timestamp_type=kind - 1,  # librdkafka counts from 1, and 0 is none
        headers=tuple(message.headers() or ()),
    )
