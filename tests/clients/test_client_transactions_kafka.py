"""Consumer.transactions with a producer: records and offsets are committed together or not at all."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.kafka_target import generation_of
from moldau.client.errors import Fenced, RecordTooLarge
from moldau.client.producer.producer import Producer
from support.at_once import at_once
from support.brokers.processes import CreateTopic
from support.clients.confluent import read_values
from support.eventually import eventually
from support.transactions.loops import (
    SHORT,
    NewConsumer,
    copied,
    copy,
    copy_until,
    exactly_once_consumers,
    fill,
    new_group,
)


@pytest.fixture
def group() -> str:
    return new_group()


@pytest.fixture
def new_consumer(bootstrap: str, group: str) -> Iterator[NewConsumer]:
    with exactly_once_consumers(bootstrap, group) as new:
        yield new


@pytest.fixture
def producer(bootstrap: str, group: str) -> Iterator[Producer[Any, Any]]:
    with Producer(bootstrap, transactional_id=group) as made:
        yield made


def test_records_and_offsets_are_committed_together(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, producer: Producer[Any, Any]
) -> None:
    source, target = create_topic(), create_topic()
    fill(bootstrap, source, range(20))
    with new_consumer(source) as consumer:
        copy_until(consumer, producer, target, 19)
        assert copied(bootstrap, target) == [*range(20)]
        assert [each.offset for each in consumer.committed().values() if each] == [20]
    fill(bootstrap, source, range(20, 25))
    with new_consumer(source) as consumer:
        copy_until(consumer, producer, target, 24)
    assert copied(bootstrap, target) == [*range(25)]


def copy_and_fail(consumer: Consumer[Any, Any], producer: Producer[Any, Any], target: str) -> None:
    for batch in consumer.transactions(producer, 2, 0):
        copy(batch, producer, target)
        assert batch[0].value == "0"
        raise ZeroDivisionError


def test_leaving_the_loop_aborts(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, producer: Producer[Any, Any]
) -> None:
    source, target = create_topic(), create_topic()
    fill(bootstrap, source, range(6))
    consumer = new_consumer(source)
    with pytest.raises(ZeroDivisionError):
        copy_and_fail(consumer, producer, target)
    assert copied(bootstrap, target) == []
    for batch in consumer.transactions(producer, 2, 0):
        copy(batch, producer, target)
        if batch[0].value == "2":
            break
    assert copied(bootstrap, target) == [0, 1]
    copy_until(consumer, producer, target, 5)
    assert copied(bootstrap, target) == [*range(6)]


def test_a_record_that_cannot_be_written_is_raised(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, producer: Producer[Any, Any]
) -> None:
    source, small, target = create_topic(), create_topic(configs={"max.message.bytes": "200"}), create_topic()
    fill(bootstrap, source, range(3))
    consumer = new_consumer(source)
    with pytest.raises(RecordTooLarge):
        send_large(consumer, producer, small)
    copy_until(consumer, producer, target, 2)
    assert copied(bootstrap, target) == [*range(3)]
    assert read_values(bootstrap, small) == []


def send_large(consumer: Consumer[Any, Any], producer: Producer[Any, Any], target: str) -> None:
    for batch in consumer.transactions(producer):
        producer.send(target, "x" * 1000)
        assert batch[0].value == "0"


def test_a_fenced_producer_ends_the_loop(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, producer: Producer[Any, Any], group: str
) -> None:
    source, target = create_topic(), create_topic()
    fill(bootstrap, source, range(10))
    loop = new_consumer(source).transactions(producer, 10, 0)
    copy(next(loop), producer, target)
    with Producer(bootstrap, transactional_id=group) as other, other.transaction():
        pass
    with pytest.raises(Fenced):
        next(loop)
    assert copied(bootstrap, target) == []


PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"properties": {**SHORT, "partition.assignment.strategy": "range"}},
    "cooperative-sticky": {"properties": {**SHORT, "partition.assignment.strategy": "cooperative-sticky"}},
    "consumer protocol": {"properties": {}, "protocol": "consumer"},
}


def test_two_members_copy(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, group: str, short_waits: dict[str, int]
) -> None:
    """Partitions move to the second member and back; each record is copied once."""

    def work(consumer: Consumer[Any, Any], target: str, name: str) -> None:
        with Producer(bootstrap, transactional_id=name, linger=0) as producer:
            for batch in consumer.transactions(producer, 10, 0.05):
                copy(batch, producer, target)

    def scenario(name: str, source: str, target: str) -> None:
        first, second = (new_consumer(source, group=f"{group}-{name}", **PROTOCOLS[name]) for _ in range(2))
        threads = [
            threading.Thread(target=work, args=(consumer, target, f"{group}-{name}-{number}"))
            for number, consumer in enumerate((first, second))
        ]
        threads[0].start()
        eventually(lambda: len(copied(bootstrap, target)) >= 50, "the first one works")
        threads[1].start()
        eventually(lambda: len(second.assignment()) == 2 and len(first.assignment()) == 2, "both have partitions")
        fill(bootstrap, source, range(400, 600), partitions=4)
        eventually(
            lambda: len(copied(bootstrap, target)) >= 600, "all is copied", lambda: len(copied(bootstrap, target))
        )
        second.wakeup()
        threads[1].join()
        second.close()
        fill(bootstrap, source, range(600, 700), partitions=4)
        eventually(lambda: len(copied(bootstrap, target)) >= 700, "the first one goes on")
        first.wakeup()
        threads[0].join()
        assert copied(bootstrap, target) == [*range(700)]

    topics = {name: (create_topic(partitions=4), create_topic(partitions=4)) for name in PROTOCOLS}
    for source, _ in topics.values():
        fill(bootstrap, source, range(400), partitions=4)
    at_once({name: partial(scenario, name, source, target) for name, (source, target) in topics.items()})


def test_a_batch_that_outlives_its_generation_is_aborted(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, group: str, short_waits: dict[str, int]
) -> None:
    """It is committed by a member in good standing, but of partitions that another one has copied meanwhile."""
    source, target = create_topic(partitions=2), create_topic(partitions=2)
    fill(bootstrap, source, range(20), partitions=2)
    impatient = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "max.poll.interval.ms": 2500}
    slow, other = (new_consumer(source, properties=impatient) for _ in range(2))
    taken, begun, may_go_on = [], threading.Event(), threading.Event()

    def work(consumer: Consumer[Any, Any], name: str) -> None:
        with Producer(bootstrap, transactional_id=name, linger=0) as producer:
            for batch in consumer.transactions(producer, 20, 1.0):
                if consumer is slow:
                    taken.append(len(batch))
                    begun.set()
                    may_go_on.wait()
                copy(batch, producer, target)

    threads = [
        threading.Thread(target=work, args=(slow, f"{group}-slow")),
        threading.Thread(target=work, args=(other, f"{group}-other")),
    ]
    threads[0].start()
    begun.wait()
    threads[1].start()
    eventually(lambda: len(copied(bootstrap, target)) == 10, "the other one copies the partition that it got")
    eventually(lambda: len(slow.assignment()) == 1, "the slow one has the other partition")
    may_go_on.set()
    eventually(lambda: len(copied(bootstrap, target)) >= 20, "all is copied")
    for consumer in (slow, other):
        consumer.wakeup()
    for thread in threads:
        thread.join()
    assert copied(bootstrap, target) == [*range(20)]
    assert taken[0] > 10, "the first batch has messages of both partitions"


def test_partitions_that_are_assigned_by_hand(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, producer: Producer[Any, Any]
) -> None:
    source, target = create_topic(partitions=2), create_topic()
    fill(bootstrap, source, range(10), partitions=2)
    consumer = new_consumer()
    consumer.assign([TopicPartition(source, 0)])
    copy_until(consumer, producer, target, 8)
    assert copied(bootstrap, target) == [0, 2, 4, 6, 8]


def test_the_generation_in_a_groups_metadata(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer
) -> None:
    """It is read out of librdkafka's bytes."""
    topic = create_topic()
    fill(bootstrap, topic, range(1))
    with new_consumer(delivery="at-least-once") as outside:
        assert generation_of(outside.engine.group_metadata()) == -1
    with new_consumer(topic, delivery="at-least-once") as member:
        assert member.poll()
        assert generation_of(member.engine.group_metadata()) == 1
