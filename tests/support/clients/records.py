"""Records as confluent-kafka writes and reads them: the judge of what others say that a topic holds."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

SECONDS = 60
PLENTY = 100 << 20  # a record may be larger than what a client fetches or sends by default

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


def send(bootstrap: str, topic: str, records: Iterable[dict[str, Any]], **settings: object) -> None:
    """Send what `Producer.produce` takes, `{"value": b"…", "partition": 1, "headers": […]}`, and wait for all of it.

    Settings are librdkafka's with underscores for dots: `compression_type="zstd"`.
    """
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "message.max.bytes": PLENTY, **given})
    failed: list[object] = []
    for record in records:
        while True:
            try:
                producer.produce(topic, **record, on_delivery=lambda error, _: error and failed.append(error))
                break
            except BufferError:  # the queue is full
                producer.poll(0.1)
    left = producer.flush(SECONDS)
    assert not failed, failed[:3]
    assert left == 0, f"{left} records were not sent within {SECONDS} s"


def stored(bootstrap: str, *topics: str, isolation: str = "read_committed") -> list[Record]:
    """All records of these topics, by topic, partition and offset, to where a reader of this isolation has to stop."""
    asking = AdminClient({"bootstrap.servers": bootstrap})
    found: list[Record] = []
    for topic in topics:
        described = asking.list_topics(topic, SECONDS).topics[topic]
        assert described.partitions, f"{topic} has no partitions: {described.error}"
        found += _read(bootstrap, topic, sorted(described.partitions), isolation)
    return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))


def _read(bootstrap: str, topic: str, partitions: list[int], isolation: str) -> Iterable[Record]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "receive.message.max.bytes": PLENTY,
            "fetch.message.max.bytes": PLENTY >> 2,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    reading = set(partitions)
    try:
        while reading:
            message = consumer.poll(SECONDS)
            assert message is not None, f"partitions {reading} of {topic} have no end"
            error = message.error()
            if error is None:
                yield _record(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.discard(message.partition())
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


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
