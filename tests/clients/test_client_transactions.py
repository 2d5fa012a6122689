"""Consumer.transactions: each batch in a transaction with its offsets, committed together or not at all.

Kills are in test_client_exactly_once.py.
"""

import asyncio
import itertools
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from moldau.base.ids import TopicPartition
from moldau.client.consumer.aio import AsyncConsumer
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.kafka_target import generation_of
from moldau.client.consumer.transaction_targets import Batch
from moldau.client.errors import Fenced, InvalidUse, RecordTooLarge
from moldau.client.offset_store.store import open_store
from moldau.client.offset_store.table import TABLE
from moldau.client.producer.aio import AsyncProducer
from moldau.client.producer.producer import Producer
from support.at_once import at_once
from support.brokers.processes import CreateTopic
from support.clients.confluent import read_values, write
from support.databases.servers import Server
from support.databases.targets import KINDS, Database, postgresql_database, sqlite_database, target
from support.eventually import eventually

GROUP = "billing"
SHORT = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}

NewConsumer = Callable[..., Consumer[Any, Any]]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = sqlite_database(tmp_path / "output.db")
    made.change("CREATE TABLE output (number BIGINT)")
    return made


@pytest.fixture
def group() -> str:
    return f"{GROUP}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def new_consumer(bootstrap: str, group: str) -> Iterator[NewConsumer]:
    """Consumers of one group, which are closed after the test."""
    made: list[Consumer[Any, Any]] = []

    def new(*topics: str, **more: Any) -> Consumer[Any, Any]:
        given = {"group": group, "delivery": "exactly-once", "properties": SHORT, "value": str, **more}
        made.append(Consumer(bootstrap, *topics, **given))
        return made[-1]

    yield new
    for consumer in made:
        consumer.close()


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


# ── a database ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_once_with_every_target(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, database: Database, kind: str
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(20))
    with target(database, kind) as given:
        with new_consumer(topic) as consumer:
            insert_until(consumer, given, 19)
        assert output(database) == [*range(20)]
        fill(bootstrap, topic, range(20, 25))
        with new_consumer(topic) as consumer:
            insert_until(consumer, given, 24)
    assert output(database) == [*range(25)]


def insert_and_fail(consumer: Consumer[Any, Any], database: Database) -> None:
    for batch in consumer.transactions(database.connect, 2, 0):
        insert(batch)
        assert batch[0].value == "0"
        raise ZeroDivisionError


def test_leaving_the_loop_rolls_back(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, database: Database
) -> None:
    """By an exception or by break, with or without a variable for the loop: the batch comes again."""
    topic = create_topic()
    fill(bootstrap, topic, range(6))
    consumer = new_consumer(topic)
    with pytest.raises(ZeroDivisionError):
        insert_and_fail(consumer, database)
    assert output(database) == []
    for batch in consumer.transactions(database.connect, 2, 0):
        insert(batch)
        if batch[0].value == "2":
            break
    assert output(database) == [0, 1]
    kept = consumer.transactions(database.connect, 2, 0)
    for batch in kept:
        insert(batch)
        break
    assert output(database) == [0, 1]
    for batch in kept:
        insert(batch)
        if batch[-1].value == "5":
            consumer.wakeup()
    assert output(database) == [*range(6)]


def test_a_batch_that_another_owner_has_claimed_is_rolled_back(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, database: Database, group: str
) -> None:
    """A zombie that claims late costs the real owner one more claim, and a repeated batch."""
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, range(20), partitions=2)
    consumer = new_consumer(topic)
    seen = 0
    with closing(database.connect()) as connection:
        for batch in consumer.transactions(database.connect, 20, 1.0):
            seen += len(batch)
            if seen == len(batch):
                open_store(connection, group).claim([TopicPartition(topic, 0)])
            insert(batch)
            if seen > len(batch) and len(batch) + len(output(database)) == 20:
                consumer.wakeup()
    assert output(database) == [*range(20)]
    assert seen > 20, "messages of the refused batch were handed out again"


class Faulty(sqlite3.Connection):
    """Fails the third commit, before or after it is done: the first two are the check at the start, and the claim."""

    when = "before"
    count = 0

    def commit(self) -> None:
        Faulty.count += 1
        if Faulty.count == 3 and self.when == "before":
            raise sqlite3.OperationalError("the connection is lost")
        super().commit()
        if Faulty.count == 3:
            raise sqlite3.OperationalError("the connection is lost")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_without_an_outcome(
    bootstrap: str,
    create_topic: CreateTopic,
    new_consumer: NewConsumer,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """Whether it is done is asked the database: nothing is written twice, and nothing is left out."""
    monkeypatch.setattr(Faulty, "when", when)
    monkeypatch.setattr(Faulty, "count", 0)
    topic = create_topic()
    fill(bootstrap, topic, range(10))
    insert_until(new_consumer(topic), lambda: database.connect(factory=Faulty), 9, n=5)
    assert Faulty.count > 3
    assert output(database) == [*range(10)]


def test_errors_of_the_database_in_the_body_are_raised(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, database: Database
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(4))
    database.change("CREATE UNIQUE INDEX once ON output (number)")
    database.change("INSERT INTO output VALUES (2)")
    consumer = new_consumer(topic)
    with pytest.raises(sqlite3.IntegrityError):
        insert_until(consumer, database.connect, 3)
    assert output(database) == [2]
    database.change("DELETE FROM output")
    insert_until(consumer, database.connect, 3)
    assert output(database) == [*range(4)]


def test_a_lock_that_is_not_free_is_waited_for(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, database: Database
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(4))
    attempts = itertools.count()

    def connect() -> Any:
        if next(attempts) == 0:
            threading.Timer(0.5, free.set).start()
        return database.connect(timeout=0.01)

    free = threading.Event()
    locked = threading.Event()

    def lock() -> None:
        with closing(database.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            locked.set()
            free.wait()
            connection.rollback()

    holder = threading.Thread(target=lock)
    holder.start()
    locked.wait()
    insert_until(new_consumer(topic), connect, 3)
    holder.join()
    assert output(database) == [*range(4)]


def test_the_database_decides_where_to_start(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, database: Database, group: str
) -> None:
    """Offsets that the group has committed in Kafka do not count; rows that are set by hand do, while it runs."""
    topic = create_topic()
    partition = TopicPartition(topic, 0)
    fill(bootstrap, topic, range(10))
    with new_consumer(topic, delivery="at-least-once") as plain:
        assert plain.poll()
        plain.commit({partition: 7})
    with new_consumer(topic) as consumer:
        insert_until(consumer, database.connect, 9)
        assert output(database) == [*range(10)]
        eventually(lambda: consumer.committed(partition)[partition].offset == 10, "the lag in Kafka is 0")
        database.change("DELETE FROM output WHERE number >= 4")
        database.change(f"UPDATE {TABLE} SET next_offset = 4 WHERE group_id = '{group}'")
        fill(bootstrap, topic, range(10, 12))
        insert_until(consumer, database.connect, 11)
    assert output(database) == [*range(12)]


def test_messages_that_are_passed_over_count(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, database: Database, group: str
) -> None:
    topic = create_topic(partitions=2)
    fill(bootstrap, topic, range(20), partitions=2)
    with new_consumer(topic, where=lambda message: message.value == "18") as consumer:
        # All other messages are handed out and passed over before the last one of partition 0 is.
        for batch in consumer.transactions(database.connect, 1, 0):
            insert(batch)
            consumer.wakeup()
    assert output(database) == [18]
    rows = dict(database.rows(f"SELECT partition_index, next_offset FROM {TABLE} WHERE group_id = '{group}'"))
    assert rows[0] == 10


def test_two_members_share_the_work(
    bootstrap: str,
    create_topic: CreateTopic,
    new_consumer: NewConsumer,
    request: pytest.FixtureRequest,
) -> None:
    """Partitions move to the second member while the first one works; each record is written once."""
    database = postgresql_database(request.getfixturevalue("postgresql"))
    database.change("DROP TABLE IF EXISTS output")
    database.change("CREATE TABLE output (number BIGINT)")
    topic = create_topic(partitions=4)
    fill(bootstrap, topic, range(2000), partitions=4)
    first, second = new_consumer(topic), new_consumer(topic)
    halfway = threading.Event()

    def work(consumer: Consumer[Any, Any]) -> None:
        for batch in consumer.transactions(database.connect, 20, 0.05):
            insert(batch)
            if len(output(database)) > 300:
                halfway.set()

    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in (first, second)]
    threads[0].start()
    halfway.wait()
    threads[1].start()
    eventually(lambda: len(second.assignment()) == 2 and len(first.assignment()) == 2, "both have partitions")
    fill(bootstrap, topic, range(2000, 2400), partitions=4)
    eventually(lambda: len(output(database)) >= 2400, "all is written", lambda: len(output(database)))
    for consumer in (first, second):
        consumer.wakeup()
    for thread in threads:
        thread.join()
    assert output(database) == [*range(2400)]
    owners = database.rows(f"SELECT DISTINCT owner FROM {TABLE} WHERE topic = '{topic}'")
    assert len(owners) == 2


def test_a_loop_needs_a_group_and_a_target(
    bootstrap: str, create_topic: CreateTopic, new_consumer: NewConsumer, database: Database
) -> None:
    topic = create_topic()
    with Producer(bootstrap) as producer, pytest.raises(InvalidUse, match="has no transactional_id"):
        new_consumer(topic).transactions(producer)
    with Producer(bootstrap, transactional_id=topic) as producer, pytest.raises(InvalidUse, match="read_uncommitted"):
        new_consumer(topic, properties={"isolation.level": "read_uncommitted"}).transactions(producer)
    with pytest.raises(InvalidUse, match="needs a consumer with a group"):
        Consumer(bootstrap, topic).transactions(database.connect)
    with pytest.raises(InvalidUse, match="takes a transactional Producer, an SQLAlchemy Engine"):
        new_consumer(topic).transactions("sqlite:///output.db")
    with pytest.raises(InvalidUse, match="at-most-once"):
        new_consumer(topic, delivery="at-most-once").transactions(database.connect)
    with pytest.raises(InvalidUse, match="one message at least"):
        new_consumer(topic).transactions(database.connect, n=0)


# ── Kafka ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def producer(bootstrap: str, group: str) -> Iterator[Producer[Any, Any]]:
    with Producer(bootstrap, transactional_id=group) as made:
        yield made


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


# ── asyncio ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_coroutines_copy_with_kafka_transactions(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    """Leaving the loop aborts, and the next loop waits for that."""
    source, target = create_topic(), create_topic()
    fill(bootstrap, source, range(20))

    async def copy_batch(batch: Batch[Any, Any], producer: AsyncProducer[Any, Any]) -> None:
        for message in batch:
            await producer.send(target, message.value)

    async def fail(consumer: AsyncConsumer[Any, Any], producer: AsyncProducer[Any, Any]) -> None:
        async for batch in consumer.transactions(producer, 3, 0):
            await copy_batch(batch, producer)
            raise ZeroDivisionError

    async def run() -> None:
        async with (
            AsyncProducer(bootstrap, transactional_id=group) as producer,
            AsyncConsumer(bootstrap, source, group=group, delivery="exactly-once", value=str) as consumer,
        ):
            with pytest.raises(ZeroDivisionError):
                await fail(consumer, producer)
            async for batch in consumer.transactions(producer, 3, 0):
                await copy_batch(batch, producer)
                if batch[0].value == "3":
                    break
            kept = consumer.transactions(producer, 3, 0)
            async for batch in kept:
                await copy_batch(batch, producer)
                break
            async for batch in kept:
                await copy_batch(batch, producer)
                if batch[-1].value == "19":
                    consumer.wakeup()

    asyncio.run(run())
    assert copied(bootstrap, target) == [*range(20)]


@pytest.mark.parametrize("kind", ["engine", "sessionmaker", "session"])
def test_coroutines_write_into_a_database(
    bootstrap: str, create_topic: CreateTopic, group: str, kind: str, postgresql: Server
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, range(20))
    database = postgresql_database(postgresql)
    database.change("DROP TABLE IF EXISTS output")
    database.change("CREATE TABLE output (number BIGINT)")

    async def insert_batch(batch: Batch[Any, Any]) -> None:
        for message in batch:
            await batch.session.execute(text(f"INSERT INTO output VALUES ({int(message.value)})"))

    async def run() -> None:
        engine = create_async_engine(database.url, poolclass=NullPool)
        given = {"engine": engine, "sessionmaker": async_sessionmaker(engine), "session": AsyncSession(engine)}[kind]
        async with AsyncConsumer(bootstrap, topic, group=group, delivery="exactly-once", value=str) as consumer:
            async for batch in consumer.transactions(given, 3, 0):
                await insert_batch(batch)
                with pytest.raises(InvalidUse, match=r"await batch.session.connection"):
                    _ = batch.connection
                if batch[0].value == "3":
                    break
            assert output(database) == [0, 1, 2]
            async for batch in consumer.transactions(given, 3, 0):
                await insert_batch(batch)
                if batch[-1].value == "19":
                    consumer.wakeup()
        if isinstance(given, AsyncSession):
            await given.close()

    asyncio.run(run())
    assert output(database) == [*range(20)]
    assert database.rows(f"SELECT next_offset FROM {TABLE} WHERE group_id = '{group}'") == [(20,)]


def test_coroutines_that_are_cancelled_abort(bootstrap: str, create_topic: CreateTopic, group: str) -> None:
    source, target = create_topic(), create_topic()
    fill(bootstrap, source, range(4))

    async def run() -> None:
        begun = asyncio.Event()

        async def work(consumer: AsyncConsumer[Any, Any], producer: AsyncProducer[Any, Any], stop: bool) -> None:
            async for batch in consumer.transactions(producer, 4, 1.0):
                for message in batch:
                    await producer.send(target, message.value)
                begun.set()
                if stop:
                    await asyncio.sleep(3600)
                consumer.wakeup()

        async with (
            AsyncProducer(bootstrap, transactional_id=group) as producer,
            AsyncConsumer(bootstrap, source, group=group, delivery="exactly-once", value=str) as consumer,
        ):
            task = asyncio.create_task(work(consumer, producer, stop=True))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await work(consumer, producer, stop=False)

    asyncio.run(run())
    assert copied(bootstrap, target) == [*range(4)]


def test_coroutines_need_what_does_not_block(
    bootstrap: str, create_topic: CreateTopic, group: str, database: Database
) -> None:
    consumer: AsyncConsumer[Any, Any] = AsyncConsumer(bootstrap, create_topic(), group=group)
    with pytest.raises(InvalidUse, match="takes a transactional AsyncProducer, or an AsyncEngine"):
        consumer.transactions(database.connect)
