"""Loops over Consumer.transactions: numbers that become rows of the table `output`, or records of another topic."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import text

from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.transaction_targets import Batch
from moldau.client.producer.producer import Producer
from support.clients.confluent import read_values, write
from support.databases.targets import Database

SHORT = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}

NewConsumer: TypeAlias = Callable[..., Consumer[Any, Any]]


@contextmanager
def exactly_once_consumers(bootstrap: str, group: str) -> Iterator[NewConsumer]:
    """Makes consumers of one group, which are closed at the end."""
    made: list[Consumer[Any, Any]] = []

    def new(*topics: str, **more: Any) -> Consumer[Any, Any]:
        given = {"group": group, "delivery": "exactly-once", "properties": SHORT, "value": str, **more}
        made.append(Consumer(bootstrap, *topics, **given))
        return made[-1]

    yield new
    for consumer in made:
        consumer.close()


def new_group() -> str:
    return f"billing-{uuid.uuid4().hex[:8]}"


def fill(bootstrap: str, topic: str, numbers: range, partitions: int = 1) -> None:
    write(bootstrap, topic, ({"value": str(number), "partition": number % partitions} for number in numbers))


def insert(batch: Batch[Any, Any]) -> None:
    for message in batch:
        sql = f"INSERT INTO output VALUES ({int(message.value)})"
        if hasattr(batch.connection, "exec_driver_sql"):
            batch.session.execute(text(sql))
        else:
            batch.connection.cursor().execute(sql)


def insert_until(consumer: Consumer[Any, Any], given: object, last: int, n: int = 7) -> None:
    """Insert batches up to the one with this number."""
    for batch in consumer.transactions(given, n, 0):
        insert(batch)
        if last in map(number_of, batch):
            consumer.wakeup()


def number_of(message: Any) -> int:
    return int(message.value)


def output(database: Database) -> list[int]:
    return [number for (number,) in database.rows("SELECT number FROM output ORDER BY number")]


def copy(batch: Batch[Any, Any], producer: Producer[Any, Any], target: str) -> None:
    for message in batch:
        producer.send(target, message.value)


def copy_until(consumer: Consumer[Any, Any], producer: Producer[Any, Any], target: str, last: int, n: int = 7) -> None:
    for batch in consumer.transactions(producer, n, 0):
        copy(batch, producer, target)
        if last in map(number_of, batch):
            consumer.wakeup()


def copied(bootstrap: str, topic: str) -> list[int]:
    return sorted(map(int, read_values(bootstrap, topic)))
