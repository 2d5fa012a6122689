"""Transactions with aiokafka and kafka-python: both speak the older form (version 1), which names partitions first."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.confluent import read_values
from support.eventually import eventually

SECONDS = 30


def becomes_visible(broker: AnyBroker, topic: str, *values: str) -> None:
    """A commit may be answered before its markers are in all partitions."""
    eventually(lambda: read_values(broker.bootstrap, topic) == list(values), f"{values} are visible")


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


# -- aiokafka


def run(what: Coroutine[Any, Any, None]) -> None:
    """Run one asynchronous test; a wait that never ends is a failure."""
    asyncio.run(asyncio.wait_for(what, 2 * SECONDS))


def test_aiokafka_commits_and_aborts(broker: AnyBroker, create_topic: CreateTopic, topic: str) -> None:
    async def scenario() -> None:
        name = create_topic()
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.send_and_wait(name, b"a")
                assert read_values(broker.bootstrap, name) == []
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"b")
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(name, b"c")
        becomes_visible(broker, name, "a", "c")
        assert read_values(broker.bootstrap, name, "read_uncommitted") == ["a", "b", "c"]
        isolated = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(name, bootstrap_servers=broker.bootstrap, **isolated) as consumer:
            found = [await asyncio.wait_for(consumer.getone(), SECONDS) for _ in range(2)]
            assert [message.value for message in found] == [b"a", b"c"]

    run(scenario())


def test_aiokafka_commits_offsets(broker: AnyBroker, create_topic: CreateTopic, topic: str, group: str) -> None:
    async def scenario() -> None:
        name = create_topic()
        part = aiokafka.TopicPartition(name, 0)
        settings = {"bootstrap_servers": broker.bootstrap}
        async with (
            AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **settings) as consumer,
            AIOKafkaProducer(transactional_id=topic, **settings) as producer,
        ):
            consumer.assign([part])
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({part: 4}, group)
            await producer.abort_transaction()
            assert await consumer.committed(part) is None
            async with producer.transaction():
                await producer.send_offsets_to_transaction({part: 5}, group)
            while await consumer.committed(part) != 5:
                pass

    run(scenario())


def test_aiokafka_is_fenced(broker: AnyBroker, create_topic: CreateTopic, topic: str) -> None:
    async def scenario() -> None:
        name = create_topic()
        settings = {"bootstrap_servers": broker.bootstrap, "transactional_id": topic}
        zombie, successor = AIOKafkaProducer(**settings), AIOKafkaProducer(**settings)
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait(name, b"of the zombie")
        await successor.start()
        with pytest.raises(aiokafka.errors.ProducerFenced):
            await zombie.send_and_wait(name, b"too late")
        async with successor.transaction():
            await successor.send_and_wait(name, b"of the successor")
        await successor.stop()
        await zombie.stop()
        becomes_visible(broker, name, "of the successor")

    run(scenario())


# -- kafka-python


@pytest.fixture
def new_producer(broker: AnyBroker, topic: str) -> Iterator[Callable[..., KafkaProducer]]:
    made: list[KafkaProducer] = []

    def make(**more: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic, **more))
        made[-1].init_transactions()
        return made[-1]

    yield make
    for producer in made:
        producer.close(1)


def test_kafka_python_commits_and_aborts(new_producer, broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, producer = create_topic(), new_producer()
    for value in (b"a", b"b", b"c"):
        producer.begin_transaction()
        producer.send(name, value).get(SECONDS)
        producer.abort_transaction() if value == b"b" else producer.commit_transaction()
    becomes_visible(broker, name, "a", "c")
    consumer = KafkaConsumer(
        name, bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    assert [next(consumer).value for _ in range(2)] == [b"a", b"c"]
    consumer.close()


def test_kafka_python_commits_offsets(new_producer, broker: AnyBroker, create_topic: CreateTopic, group: str) -> None:
    name, producer = create_topic(), new_producer()
    part = kafka.TopicPartition(name, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([part])

    def transaction(offset: int, end: Callable[[], None]) -> None:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({part: OffsetAndMetadata(offset, "", -1)}, consumer.group_metadata())
        end()

    transaction(4, producer.abort_transaction)
    assert consumer.committed(part) is None
    transaction(5, producer.commit_transaction)
    eventually(lambda: consumer.committed(part) == 5, "the offset is committed")
    consumer.close()


def test_kafka_python_is_fenced(new_producer, broker: AnyBroker, create_topic: CreateTopic) -> None:
    name, zombie = create_topic(), new_producer()
    zombie.begin_transaction()
    zombie.send(name, b"of the zombie").get(SECONDS)
    successor = new_producer()
    with pytest.raises(kafka.errors.KafkaError):
        zombie.send(name, b"too late").get(SECONDS)
    successor.begin_transaction()
    successor.send(name, b"of the successor").get(SECONDS)
    successor.commit_transaction()
    becomes_visible(broker, name, "of the successor")


def test_kafka_python_looks_at_transactions(
    new_producer, broker: AnyBroker, create_topic: CreateTopic, topic: str
) -> None:
    name, producer = create_topic(), new_producer()
    part = kafka.TopicPartition(name, 0)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    producer.begin_transaction()
    producer.send(name, b"a").get(SECONDS)
    described = admin.describe_transactions([topic])[topic]
    assert (described.state.value, described.topic_partitions) == ("Ongoing", {part})
    (listed,) = [row for rows in admin.list_transactions().values() for row in rows if row.transactional_id == topic]
    assert (listed.producer_id, listed.state.value) == (described.producer_id, "Ongoing")
    (active,) = admin.describe_producers([part])[part].active_producers
    assert (active.producer_id, active.current_transaction_start_offset) == (described.producer_id, 0)
    producer.commit_transaction()

    def state() -> str:
        return admin.describe_transactions([topic])[topic].state.value

    eventually(lambda: state() == "CompleteCommit", "the transaction is complete", state)
    admin.close()
