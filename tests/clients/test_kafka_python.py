"""kafka-python 3 against a broker: produce, consume by assignment, administration."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from support.brokers.disk import stored_batches
from support.brokers.processes import AnyBroker, CreateTopic
from support.log.batches import CODECS

SECONDS = 30


@pytest.fixture
def admin(broker: AnyBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def send(broker: AnyBroker, topic: str, *records: dict[str, Any], **settings: Any) -> list[Any]:
    """Produce all records at once; what the broker answered for each."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=10, **settings)
    try:
        waiting = [producer.send(topic, **record) for record in records]
        producer.flush(SECONDS)
        return [each.get(SECONDS) for each in waiting]
    finally:
        producer.close()


def read(broker: AnyBroker, topic: str, count: int, partition: int = 0) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=SECONDS * 1000)
    try:
        consumer.assign([TopicPartition(topic, partition)])
        consumer.seek_to_beginning()
        return [next(consumer) for _ in range(count)]
    finally:
        consumer.close()


def test_everything_in_a_record_comes_back(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    headers = [("a", b"1"), ("a", b"2")]
    answers = send(
        broker,
        name,
        {"value": b"value", "key": b"key", "headers": headers, "timestamp_ms": 1_600_000_000_000},
        {"value": None, "key": b"tombstone"},
        {"value": b"x" * 900_000},
    )
    assert [each.offset for each in answers] == [0, 1, 2]
    first, tombstone, big = read(broker, name, 3)
    assert (first.key, first.value, first.timestamp) == (b"key", b"value", 1_600_000_000_000)
    assert list(first.headers) == headers
    assert (tombstone.key, tombstone.value) == (b"tombstone", None)
    assert big.value == b"x" * 900_000


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(broker: AnyBroker, create_topic: CreateTopic, codec: str) -> None:
    name = create_topic()
    sent = [b"a value that compresses " * 20 + str(number).encode() for number in range(100)]
    send(broker, name, *({"value": value} for value in sent), compression_type=None if codec == "none" else codec)
    assert [message.value for message in read(broker, name, len(sent))] == sent
    assert {found.codec for found in stored_batches(broker, name)} == {CODECS[codec]}


PRODUCERS = [{"acks": 0, "enable_idempotence": False}, {"acks": 1, "enable_idempotence": False}, {"acks": "all"}]


@pytest.mark.parametrize("settings", PRODUCERS, ids=str)
def test_order_within_each_partition(broker: AnyBroker, create_topic: CreateTopic, settings: dict[str, Any]) -> None:
    name = create_topic(partitions=3)
    send(broker, name, *({"value": str(number).encode(), "partition": number % 3} for number in range(600)), **settings)
    for partition in range(3):
        got = [int(message.value) for message in read(broker, name, 200, partition)]
        assert got == list(range(partition, 600, 3))
    idempotent = settings.get("enable_idempotence", True)
    assert {found.producer_id >= 0 for found in stored_batches(broker, name)} == {idempotent}


def test_offsets(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    part = TopicPartition(name, 0)
    send(broker, name, *({"value": b"x", "timestamp_ms": 1_600_000_000_000 + number * 1000} for number in range(5)))
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none")
    consumer.assign([part])
    assert consumer.beginning_offsets([part]) == {part: 0}
    assert consumer.end_offsets([part]) == {part: 5}
    found = consumer.offsets_for_times({part: 1_600_000_001_500})[part]
    assert (found.offset, found.timestamp) == (2, 1_600_000_002_000)
    assert consumer.offsets_for_times({part: 1_700_000_000_000}) == {part: None}
    consumer.seek(part, 100)
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(SECONDS * 1000)
    consumer.close()


def test_a_record_above_the_topic_limit(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"max.message.bytes": "1000"})
    with pytest.raises(MessageSizeTooLargeError):
        send(broker, name, {"value": b"x" * 5000})
    assert send(broker, name, {"value": b"x"})[0].offset == 0


def test_topics_are_created_described_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    assert topic in admin.list_topics()
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 2
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({f"{topic}-x": {"configs": {"retention.ms": "soon"}}})
    admin.create_partitions({topic: 3})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 1})
    admin.delete_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_configs(admin: KafkaAdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"retention.ms": "123456"})

    def configs() -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        found = admin.describe_configs([resource], config_filter="all")["topic"][name]
        return {key: row["value"] for key, row in found.items()}

    assert configs()["retention.ms"] == "123456"
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": "5000"})])
    while configs()["max.message.bytes"] != "5000":
        pass
    assert configs()["retention.ms"] == "123456"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": None})])
    while configs()["retention.ms"] != "604800000":
        pass


def test_delete_records(broker: AnyBroker, admin: KafkaAdminClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    part = TopicPartition(name, 0)
    send(broker, name, *({"value": b"x"} for _ in range(4)))
    assert admin.delete_records({part: 3})[part]["low_watermark"] == 3
    assert read(broker, name, 1)[0].offset == 3


def test_cluster_and_log_directories(admin: KafkaAdminClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    cluster = admin.describe_cluster()
    assert cluster["controller_id"] in {node["broker_id"] for node in cluster["brokers"]}
    assert name in str(admin.describe_log_dirs())
