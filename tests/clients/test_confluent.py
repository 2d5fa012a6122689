"""confluent-kafka (librdkafka) against a broker: the client that most Python programs, and Moldau's own, use."""

import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from support.brokers.disk import stored_batches
from support.brokers.processes import AnyBroker, CreateTopic
from support.log.batches import CODECS

SECONDS = 30


class Sender:
    """A producer that remembers what was acknowledged, and raises what was not."""

    def __init__(self, broker: AnyBroker, **settings: object) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **named})
        self.errors: list[KafkaError] = []
        self.acknowledged: list[Message] = []

    def send(self, topic: str, value: bytes | None, **more: object) -> None:
        self.producer.produce(topic, value, on_delivery=self.delivered, **more)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message)
        else:
            self.errors.append(error)

    def finish(self) -> list[Message]:
        assert self.producer.flush(SECONDS) == 0
        return self.acknowledged


def reader(broker: AnyBroker, more: dict[str, object] | None = None) -> Consumer:
    """A consumer for use by assignment: librdkafka wants a group name even where no group takes part."""
    alone = {"group.id": "unused", "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": broker.bootstrap, **alone, **(more or {})})


def read(
    broker: AnyBroker, topic: str, count: int, partition: int = 0, offset: int = OFFSET_BEGINNING
) -> list[Message]:
    """`count` messages by assignment, without a group coordinator."""
    consumer = reader(broker)
    consumer.assign([TopicPartition(topic, partition, offset)])
    found: list[Message] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), timeout=0.5):
            assert message.error() is None, message.error()
            found.append(message)
    consumer.close()
    assert len(found) == count
    return found


def test_metadata(broker: AnyBroker, admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    found = admin.list_topics(timeout=SECONDS)
    assert [f"{node.host}:{node.port}" for node in found.brokers.values()] == [broker.bootstrap]
    assert found.controller_id in found.brokers
    assert len(found.cluster_id) == 22
    assert sorted(found.topics[name].partitions) == [0, 1, 2]
    assert all(part.leader in found.brokers for part in found.topics[name].partitions.values())


def test_everything_in_a_record_comes_back(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, sender = create_topic(), Sender(broker)
    sender.send(
        name, b"value", key=b"key", headers=[("a", b"1"), ("a", b"2"), ("none", None)], timestamp=1_600_000_000_000
    )
    sender.send(name, None, key=b"tombstone")
    sender.send(name, b"")
    sender.send(name, b"x" * 900_000)
    assert [message.offset() for message in sender.finish()] == [0, 1, 2, 3]
    first, tombstone, empty, big = read(broker, name, 4)
    assert (first.key(), first.value(), first.timestamp()) == (
        b"key",
        b"value",
        (TIMESTAMP_CREATE_TIME, 1_600_000_000_000),
    )
    assert first.headers() == [("a", b"1"), ("a", b"2"), ("none", None)]
    assert (tombstone.key(), tombstone.value()) == (b"tombstone", None)
    assert (empty.key(), empty.value()) == (None, b"")
    assert big.value() == b"x" * 900_000


def test_log_append_time(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, sender = create_topic(configs={"message.timestamp.type": "LogAppendTime"}), Sender(broker)
    sender.send(name, b"now", timestamp=1000)
    sender.finish()
    kind, when = read(broker, name, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert when > 1_600_000_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(broker: AnyBroker, create_topic: CreateTopic, codec: str) -> None:
    """librdkafka silently sends uncompressed if it thinks that the broker lacks a codec: look at what is stored."""
    name, sender = create_topic(), Sender(broker, compression_type=codec, linger_ms=50)
    sent = [b"a value that compresses " * 20 + str(number).encode() for number in range(200)]
    for value in sent:
        sender.send(name, value)
    sender.finish()
    assert [message.value() for message in read(broker, name, len(sent))] == sent
    assert {found.codec for found in stored_batches(broker, name)} == {CODECS[codec]}


@pytest.mark.parametrize("settings", [{"acks": 0}, {"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}], ids=str)
def test_order_within_each_partition(broker: AnyBroker, create_topic: CreateTopic, settings: dict) -> None:
    name, sender = create_topic(partitions=3), Sender(broker, batch_num_messages=100, **settings)
    for number in range(3000):
        sender.send(name, str(number).encode(), partition=number % 3)
        sender.producer.poll(0)
    assert len(sender.finish()) == 3000
    for partition in range(3):
        got = [int(message.value()) for message in read(broker, name, 1000, partition)]
        assert got == list(range(partition, 3000, 3))


def test_an_idempotent_producer_marks_its_batches(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, sender = create_topic(), Sender(broker, enable_idempotence=True)
    for number in range(100):
        sender.send(name, str(number).encode())
    sender.finish()
    stored = stored_batches(broker, name)
    assert {found.producer_id >= 0 for found in stored} == {True}
    assert [found.base_sequence for found in stored] == [found.base_offset for found in stored]


def test_watermarks_and_offsets_for_times(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, sender = create_topic(), Sender(broker)
    for number in range(10):
        sender.send(name, b"x", timestamp=1_600_000_000_000 + number * 1000)
    sender.finish()
    consumer = reader(broker)
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=SECONDS) == (0, 10)

    def first_at(when: int) -> int:
        return consumer.offsets_for_times([TopicPartition(name, 0, when)], timeout=SECONDS)[0].offset

    assert first_at(1_600_000_000_000) == 0
    assert first_at(1_600_000_004_500) == 5
    assert first_at(1_600_000_009_000) == 9
    assert first_at(1_600_000_009_001) == -1  # OFFSET_END
    consumer.close()


def test_reading_from_the_middle_and_waiting_at_the_end(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, sender = create_topic(), Sender(broker)
    for number in range(10):
        sender.send(name, str(number).encode())
    sender.finish()
    assert [message.value() for message in read(broker, name, 3, offset=7)] == [b"7", b"8", b"9"]
    consumer = reader(broker, {"enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 0, 10)])
    at_end = consumer.poll(SECONDS)
    assert at_end.error().code() == KafkaError._PARTITION_EOF
    sender.send(name, b"late")
    sender.finish()
    assert consumer.poll(SECONDS).value() == b"late"
    consumer.close()


def test_an_offset_out_of_range_follows_the_reset_policy(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, sender = create_topic(), Sender(broker)
    sender.send(name, b"only")
    sender.finish()
    consumer = reader(broker, {"auto.offset.reset": "error"})
    consumer.assign([TopicPartition(name, 0, 100)])
    assert consumer.poll(SECONDS).error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()
    consumer = reader(broker, {"auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 100)])
    assert consumer.poll(SECONDS).value() == b"only"
    consumer.close()


# -- errors


def test_a_record_above_the_topic_limit(broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, sender = create_topic(configs={"max.message.bytes": "1000"}), Sender(broker)
    sender.send(name, b"x" * 5000)
    assert sender.finish() == []
    assert [error.code() for error in sender.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_an_unknown_topic_is_not_created_by_a_consumer(broker: AnyBroker, admin: AdminClient, topic: str) -> None:
    settings = {"allow.auto.create.topics": False, "topic.metadata.propagation.max.ms": 100}
    consumer = reader(broker, settings)
    with pytest.raises(KafkaException) as refused:
        consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS)
    assert refused.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
    consumer.close()
    assert topic not in admin.list_topics(timeout=SECONDS).topics


def test_a_producer_creates_its_topic(broker: AnyBroker, admin: AdminClient, topic: str) -> None:
    sender = Sender(broker)
    sender.send(topic, b"first")
    assert len(sender.finish()) == 1
    assert read(broker, topic, 1)[0].value() == b"first"
    admin.delete_topics([topic])[topic].result(SECONDS)


# -- administration


def test_topics_are_created_described_and_deleted(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})])[topic].result(SECONDS)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(SECONDS)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert len(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions) == 2
    admin.delete_topics([topic])[topic].result(SECONDS)
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic])[topic].result(SECONDS)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_are_added(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=1)
    admin.create_partitions([NewPartitions(name, 4)])[name].result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while len(admin.list_topics(name, timeout=SECONDS).topics[name].partitions) != 4:
        assert time.monotonic() < deadline
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(name, 2)])[name].result(SECONDS)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def topic_configs(admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    return admin.describe_configs([resource])[resource].result(SECONDS)


def test_configs_are_described_with_their_sources(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"retention.ms": "123456"})
    found = topic_configs(admin, name)
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("123456", False)
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert (found["cleanup.policy"].value, found["cleanup.policy"].is_default) == ("delete", True)
    assert found["segment.bytes"].value == str(1 << 30)


def test_configs_are_changed_one_by_one(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"retention.ms": "1000000", "cleanup.policy": "delete"})

    def alter(setting: str, value: str | None, how: AlterConfigOpType) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS)

    def becomes(setting: str, value: str) -> None:
        deadline = time.monotonic() + SECONDS
        while topic_configs(admin, name)[setting].value != value:
            assert time.monotonic() < deadline, topic_configs(admin, name)[setting]

    alter("max.message.bytes", "5000", AlterConfigOpType.SET)
    becomes("max.message.bytes", "5000")
    assert topic_configs(admin, name)["retention.ms"].value == "1000000"
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    becomes("cleanup.policy", "delete,compact")
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    becomes("cleanup.policy", "compact")
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    becomes("retention.ms", "604800000")
    with pytest.raises(KafkaException) as refused:
        alter("retention.ms", "soon", AlterConfigOpType.SET)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    with pytest.raises(KafkaException) as refused:
        alter("no.such.setting", "1", AlterConfigOpType.SET)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_broker_configs(admin: AdminClient) -> None:
    node = str(next(iter(admin.list_topics(timeout=SECONDS).brokers)))
    resource = ConfigResource(ResourceType.BROKER, node)
    found = admin.describe_configs([resource])[resource].result(SECONDS)
    assert found["log.retention.hours"].value == "168"
    assert found["node.id"].is_read_only
    entry = ConfigEntry("node.id", "7", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.BROKER, node, incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([change])[change].result(SECONDS)
    assert refused.value.args[0].code() in (KafkaError.INVALID_REQUEST, KafkaError.INVALID_CONFIG)


def test_records_are_deleted_and_offsets_listed(
    broker: AnyBroker, admin: AdminClient, create_topic: CreateTopic
) -> None:
    name, sender = create_topic(), Sender(broker)
    for number in range(10):
        sender.send(name, str(number).encode(), timestamp=1_600_000_000_000 + number)
    sender.finish()
    asked = TopicPartition(name, 0, 4)
    assert admin.delete_records([asked])[asked].result(SECONDS).low_watermark == 4
    part = TopicPartition(name, 0)

    def offset(spec: OffsetSpec) -> int:
        return admin.list_offsets({part: spec})[part].result(SECONDS).offset

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (4, 10)
    assert offset(OffsetSpec.max_timestamp()) == 9
    assert offset(OffsetSpec.for_timestamp(1_600_000_000_006)) == 6
    assert read(broker, name, 1)[0].value() == b"4"


def test_describe_cluster_and_topics(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    cluster = admin.describe_cluster().result(SECONDS)
    assert cluster.controller.id in {node.id for node in cluster.nodes}
    found = admin.describe_topics(TopicCollection([name]))[name].result(SECONDS)
    assert [part.id for part in found.partitions] == [0, 1]
    assert not found.is_internal


def test_valid_records_of_a_refused_batch_are_told_apart(broker: AnyBroker, create_topic: CreateTopic) -> None:
    """KIP-467, as librdkafka's own tests see it: ten records are invalid, and the others failed because of them."""
    name = create_topic(configs={"cleanup.policy": "compact"})
    outcomes: dict[int, str] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500, "batch.num.messages": 100})
    for number in range(100):

        def delivered(error: KafkaError | None, message: object, number: int = number) -> None:
            outcomes[number] = "" if error is None else error.name()

        producer.produce(name, b"v", key=None if number % 10 == 0 else b"k", partition=0, on_delivery=delivered)
    assert producer.flush(SECONDS) == 0
    assert {number for number, outcome in outcomes.items() if outcome == "INVALID_RECORD"} == set(range(0, 100, 10))
    others = {outcome for number, outcome in outcomes.items() if number % 10}
    assert others == {"_INVALID_DIFFERENT_RECORD"}
