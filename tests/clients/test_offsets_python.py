"""Committed offsets and the administration of groups with aiokafka and kafka-python, which speak older versions."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import MemberToRemove, OffsetSpec
from kafka.errors import KafkaError, OffsetMetadataTooLargeError, UnknownMemberIdError
from kafka.structs import OffsetAndMetadata

from support.brokers.processes import AnyBroker, CreateTopic
from support.eventually import eventually

SECONDS = 30


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


def fill(broker: AnyBroker, topic: str, count: int, partitions: int = 1) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(count):
        for partition in range(partitions):
            producer.send(topic, str(number).encode(), partition=partition)
    producer.flush(SECONDS)
    producer.close()


# -- aiokafka


def run(what: Coroutine[Any, Any, None]) -> None:
    """Run one asynchronous test; a wait that never ends is a failure."""
    asyncio.run(asyncio.wait_for(what, 2 * SECONDS))


def aio_consumer(broker: AnyBroker, group: str, *topics: str) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )


async def numbers(consumer: aiokafka.AIOKafkaConsumer, count: int) -> list[int]:
    return [int((await asyncio.wait_for(consumer.getone(), SECONDS)).value) for _ in range(count)]


def test_aiokafka_commits_and_goes_on(broker: AnyBroker, create_topic: CreateTopic, group: str) -> None:
    async def scenario() -> None:
        name = create_topic()
        part = aiokafka.TopicPartition(name, 0)
        fill(broker, name, 10)
        async with aio_consumer(broker, group, name) as consumer:
            assert await consumer.committed(part) is None
            assert await numbers(consumer, 4) == [0, 1, 2, 3]
            await consumer.commit()
            assert await consumer.committed(part) == 4
            await consumer.commit({part: (6, "a note")})
            assert await consumer.committed(part) == 6
        async with aio_consumer(broker, group, name) as consumer:
            assert await numbers(consumer, 4) == [6, 7, 8, 9]
            consumer.seek(part, 2)
            assert await numbers(consumer, 8) == list(range(2, 10))
            await consumer.seek_to_committed()
            assert await numbers(consumer, 4) == [6, 7, 8, 9]
            consumer.pause(part)
            fill(broker, name, 2)
            assert await consumer.getmany(timeout_ms=500) == {}
            consumer.resume(part)
            assert await numbers(consumer, 2) == [0, 1]

    run(scenario())


def test_aiokafka_commits_without_being_a_member(broker: AnyBroker, create_topic: CreateTopic, group: str) -> None:
    async def scenario() -> None:
        name = create_topic()
        part = aiokafka.TopicPartition(name, 0)
        fill(broker, name, 3)
        async with aio_consumer(broker, group) as alone:
            alone.assign([part])
            assert await numbers(alone, 3) == [0, 1, 2]
            await alone.commit()
        async with aio_consumer(broker, group) as again:
            again.assign([part])
            assert (await again.committed(part), await again.position(part)) == (3, 3)

    run(scenario())


def test_aiokafka_administration(broker: AnyBroker, create_topic: CreateTopic, group: str) -> None:
    async def scenario() -> None:
        name = create_topic()
        part = aiokafka.TopicPartition(name, 0)
        fill(broker, name, 5)
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            async with aio_consumer(broker, group, name) as consumer:
                await numbers(consumer, 5)
                await consumer.commit()
                described = (await admin.describe_consumer_groups([group]))[0].groups[0]
                assert described[:5] == (0, group, "Stable", "consumer", "roundrobin")
                assert len(described[5]) == 1
                assert (group, "consumer") in await admin.list_consumer_groups()
                assert (await admin.list_consumer_group_offsets(group))[part].offset == 5
                assert await admin.find_coordinator(group) >= 0
        finally:
            await admin.close()

    run(scenario())


# -- kafka-python


@pytest.fixture
def admin(broker: AnyBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def new_consumer(broker: AnyBroker, group: str) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(*topics: str, **more: Any) -> KafkaConsumer:
        settings = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
        session = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
        settings["metadata_max_age_ms"] = 500  # it may assign nothing until its next look at the topics
        consumer = KafkaConsumer(
            *topics, bootstrap_servers=broker.bootstrap, group_id=group, **session, **settings, **more
        )
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def values(consumer: KafkaConsumer, count: int) -> list[int]:
    found: list[int] = []

    def enough() -> bool:
        batches = consumer.poll(timeout_ms=2000, max_records=count - len(found))
        found.extend(int(message.value) for messages in batches.values() for message in messages)
        return len(found) == count

    eventually(enough, f"{count} records are read", lambda: found)
    return found


def test_kafka_python_commits_and_goes_on(new_consumer, broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic()
    part = kafka.TopicPartition(name, 0)
    fill(broker, name, 10)
    consumer = new_consumer(name)
    assert consumer.committed(part) is None
    assert values(consumer, 4) == [0, 1, 2, 3]
    consumer.commit()
    assert consumer.committed(part) == 4
    consumer.commit({part: OffsetAndMetadata(6, "a note", 0)})
    assert consumer.committed(part, metadata=True) == OffsetAndMetadata(6, "a note", 0)
    consumer.commit({part: OffsetAndMetadata(7, "x" * 4096, -1)})
    with pytest.raises(OffsetMetadataTooLargeError):
        consumer.commit({part: OffsetAndMetadata(8, "x" * 4097, -1)})
    assert consumer.committed(part) == 7
    answers: list[object] = []
    consumer.commit_async({part: OffsetAndMetadata(6, "", -1)}, callback=lambda _, answer: answers.append(answer))
    eventually(lambda: consumer.poll(0) is not None and answers, "the asynchronous commit is answered")
    assert not isinstance(answers[0], KafkaError)
    consumer.close()
    consumer = new_consumer(name)
    assert values(consumer, 4) == [6, 7, 8, 9]
    consumer.seek(part, 2)
    assert values(consumer, 8) == list(range(2, 10))
    consumer.pause(part)
    fill(broker, name, 2)
    assert consumer.poll(timeout_ms=500) == {}
    consumer.resume(part)
    assert values(consumer, 2) == [0, 1]


def test_kafka_python_commits_without_being_a_member(
    new_consumer, broker: AnyBroker, create_topic: CreateTopic
) -> None:
    name = create_topic()
    part = kafka.TopicPartition(name, 0)
    fill(broker, name, 3)
    alone = new_consumer()
    alone.assign([part])
    assert values(alone, 2) == [0, 1]
    alone.commit()
    member = new_consumer(name)
    assert values(member, 1) == [2], "a member goes on from there"
    with pytest.raises((UnknownMemberIdError, kafka.errors.CommitFailedError)):
        alone.commit({part: OffsetAndMetadata(0, "", -1)})
    assert member.committed(part) == 2


def test_kafka_python_administration(
    admin: KafkaAdminClient, new_consumer, broker: AnyBroker, create_topic: CreateTopic, group: str
) -> None:
    name = create_topic(partitions=2)
    first, second = kafka.TopicPartition(name, 0), kafka.TopicPartition(name, 1)
    fill(broker, name, 5, partitions=2)
    consumer = new_consumer(name, client_id="the-client")
    values(consumer, 10)
    consumer.commit()
    described = admin.describe_groups([group])[group]
    assert (described["group_state"], described["protocol_type"]) == ("Stable", "consumer")
    (member,) = described["members"]
    assert (member["client_id"], member["client_host"].strip("/")) == ("the-client", "127.0.0.1")
    assert group in str(admin.list_groups(states_filter=["Stable"]))
    assert group not in str(admin.list_groups(states_filter=["Empty"]))
    offsets = admin.list_group_offsets({group: None})[group]
    assert {part: found.offset for part, found in offsets.items()} == {first: 5, second: 5}
    assert refused(admin.delete_groups([group])[group])
    assert refused(admin.delete_group_offsets(group, [first])[first]), "someone is subscribed to it"
    admin.remove_group_members(group, [MemberToRemove(member_id=member["member_id"])])
    consumer.close()
    eventually(lambda: "Empty" in str(admin.describe_groups([group])[group]), "the member is gone")
    admin.alter_group_offsets(group, {first: OffsetAndMetadata(2, "by hand", -1)})
    assert admin.list_group_offsets({group: [first]})[group][first].offset == 2
    admin.reset_group_offsets(group, {first: OffsetSpec.EARLIEST, second: OffsetSpec.LATEST})
    assert admin.list_group_offsets({group: [first]})[group][first].offset == 0
    assert not refused(admin.delete_group_offsets(group, [first])[first])
    assert first not in admin.list_group_offsets({group: None})[group]
    assert not refused(admin.delete_groups([group])[group])
    assert refused(admin.delete_groups([group])[group])


def refused(answer: object) -> bool:
    return answer not in (None, "OK", 0) and "NoError" not in str(answer)
