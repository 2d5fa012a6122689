"""aiokafka against a broker: produce, consume by assignment, administration."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, MessageSizeTooLargeError, OffsetOutOfRangeError

from support.brokers.disk import stored_batches
from support.brokers.processes import AnyBroker, CreateTopic
from support.log.batches import CODECS

SECONDS = 30
TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG = 36, 3, 40


def run(what: Coroutine[Any, Any, None]) -> None:
    """Run one asynchronous test; a wait that never ends is a failure."""
    asyncio.run(asyncio.wait_for(what, 2 * SECONDS))


async def read(broker: AnyBroker, topic: str, count: int, partition: int = 0, **settings: Any) -> list[Any]:
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", **settings
    ) as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        await consumer.seek_to_beginning()
        return [await asyncio.wait_for(consumer.getone(), SECONDS) for _ in range(count)]


def test_everything_in_a_record_comes_back(broker: AnyBroker, create_topic: CreateTopic) -> None:
    async def scenario() -> None:
        name = create_topic()
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            headers = [("a", b"1"), ("a", b"2")]
            sent = await producer.send_and_wait(name, b"value", b"key", headers=headers, timestamp_ms=1_600_000_000_000)
            assert (sent.offset, sent.partition) == (0, 0)
            await producer.send_and_wait(name, None, b"tombstone")
            await producer.send_and_wait(name, b"x" * 900_000)
        first, tombstone, big = await read(broker, name, 3)
        assert (first.key, first.value, first.timestamp) == (b"key", b"value", 1_600_000_000_000)
        assert list(first.headers) == headers
        assert (tombstone.key, tombstone.value) == (b"tombstone", None)
        assert big.value == b"x" * 900_000

    run(scenario())


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(broker: AnyBroker, create_topic: CreateTopic, codec: str) -> None:
    async def scenario() -> None:
        name = create_topic()
        sent = [b"a value that compresses " * 20 + str(number).encode() for number in range(100)]
        kind = None if codec == "none" else codec
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, compression_type=kind, linger_ms=20
        ) as producer:
            for waiting in [await producer.send(name, value) for value in sent]:
                await waiting
        assert [message.value for message in await read(broker, name, len(sent))] == sent
        assert {found.codec for found in stored_batches(broker, name)} == {CODECS[codec]}

    run(scenario())


@pytest.mark.parametrize("settings", [{"acks": 0}, {"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}], ids=str)
def test_order_within_each_partition(broker: AnyBroker, create_topic: CreateTopic, settings: dict) -> None:
    async def scenario() -> None:
        name = create_topic(partitions=3)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
            waiting = [await producer.send(name, str(number).encode(), partition=number % 3) for number in range(600)]
            await asyncio.gather(*waiting)
        for partition in range(3):
            got = [int(message.value) for message in await read(broker, name, 200, partition)]
            assert got == list(range(partition, 600, 3))
        if "enable_idempotence" in settings:
            assert all(found.producer_id >= 0 for found in stored_batches(broker, name))

    run(scenario())


def test_offsets(broker: AnyBroker, create_topic: CreateTopic) -> None:
    async def scenario() -> None:
        name = create_topic()
        part = TopicPartition(name, 0)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(5):
                await producer.send_and_wait(name, b"x", timestamp_ms=1_600_000_000_000 + number * 1000)
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([part])
            assert await consumer.beginning_offsets([part]) == {part: 0}
            assert await consumer.end_offsets([part]) == {part: 5}
            found = await consumer.offsets_for_times({part: 1_600_000_001_500})
            assert (found[part].offset, found[part].timestamp) == (2, 1_600_000_002_000)
            assert await consumer.offsets_for_times({part: 1_700_000_000_000}) == {part: None}
            consumer.seek(part, 100)
            with pytest.raises(OffsetOutOfRangeError):
                await asyncio.wait_for(consumer.getone(), SECONDS)

    run(scenario())


def test_a_record_above_the_topic_limit(broker: AnyBroker, create_topic: CreateTopic) -> None:
    async def scenario() -> None:
        name = create_topic(configs={"max.message.bytes": "1000"})
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(name, b"x" * 5000)
            assert (await producer.send_and_wait(name, b"x")).offset == 0

    run(scenario())


def test_administration(broker: AnyBroker, topic: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await topics_and_records(admin, broker, topic)
        finally:
            await admin.close()

    run(scenario())


async def topics_and_records(admin: AIOKafkaAdminClient, broker: AnyBroker, topic: str) -> None:
    wanted = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "123456"})
    assert [row[1] for row in (await admin.create_topics([wanted])).topic_errors] == [0]
    assert [row[1] for row in (await admin.create_topics([wanted])).topic_errors] == [TOPIC_ALREADY_EXISTS]
    wrong = NewTopic(f"{topic}-x", 1, 1, topic_configs={"retention.ms": "soon"})
    assert [row[1] for row in (await admin.create_topics([wrong])).topic_errors] == [INVALID_CONFIG]
    while topic not in await admin.list_topics():
        pass
    await admin.create_partitions({topic: NewPartitions(3)})
    with pytest.raises(InvalidPartitionsError):
        await admin.create_partitions({topic: NewPartitions(1)})
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    described = (await admin.describe_configs([resource]))[0].resources[0]
    assert {row[0]: row[1] for row in described[4]}["retention.ms"] == "123456"
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.bytes": "99999"})])
    while True:
        described = (await admin.describe_configs([resource]))[0].resources[0]
        found = {row[0]: row[1] for row in described[4]}
        if (found["retention.bytes"], found["retention.ms"]) == ("99999", "604800000"):
            break  # AlterConfigs replaces the whole set
    await delete_records(admin, broker, topic)
    assert [code for _, code in (await admin.delete_topics([topic])).topic_error_codes] == [0]


async def delete_records(admin: AIOKafkaAdminClient, broker: AnyBroker, topic: str) -> None:
    part = TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(4):
            await producer.send_and_wait(topic, b"x", partition=0)
    assert await admin.delete_records({part: RecordsToDelete(3)}) == {part: 3}
    assert (await read(broker, topic, 1))[0].offset == 3


def test_cluster(broker: AnyBroker) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        found = await admin.describe_cluster()
        await admin.close()
        assert found["controller_id"] in {node["node_id"] for node in found["brokers"]}

    run(scenario())
