"""What readers of a topic see of transactions, with and without isolation."""

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

SECONDS = 30


def visible(bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed") -> list[list[str]]:
    """The values of each partition, from its beginning to where a reader of this isolation has to stop."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found: list[list[str]] = [[] for _ in range(partitions)]
    reading = set(range(partitions))
    while reading:
        message = consumer.poll(SECONDS)
        assert message is not None, f"partitions {reading} of {topic} have no end"
        error = message.error()
        if error is None:
            found[message.partition()].append(message.value().decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            reading.discard(message.partition())
        else:
            raise AssertionError(error)
    consumer.close()
    return found


def committed_values(bootstrap: str, topic: str) -> list[str]:
    """Of a topic with one partition."""
    return visible(bootstrap, topic)[0]


def all_values(bootstrap: str, topic: str) -> list[str]:
    """Of a topic with one partition, open and aborted transactions included."""
    return visible(bootstrap, topic, isolation="read_uncommitted")[0]


def end_offset(admin: AdminClient, topic: str, isolation: IsolationLevel, partition: int = 0) -> int:
    """The last stable offset, or the high watermark."""
    part = TopicPartition(topic, partition)
    found: dict[TopicPartition, Any] = admin.list_offsets({part: OffsetSpec.latest()}, isolation_level=isolation)
    return int(found[part].result(SECONDS).offset)
