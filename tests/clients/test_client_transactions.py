"""Consumer.transactions with a database: rows and offsets are committed together or not at all.

With Kafka transactions it is test_client_transactions_kafka.py; kills are in test_client_exactly_once.py.
"""

import itertools
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.consumer.consumer import Consumer
from moldau.client.errors import InvalidUse
from moldau.client.offset_store.store import open_store
from moldau.client.offset_store.table import TABLE
from moldau.client.producer.producer import Producer
from support.brokers.processes import CreateTopic
from support.databases.targets import KINDS, Database, postgresql_database, sqlite_database, target
from support.eventually import eventually
from support.transactions.loops import (
    NewConsumer,
    exactly_once_consumers,
    fill,
    insert,
    insert_until,
    new_group,
    output,
)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = sqlite_database(tmp_path / "output.db")
    made.change("CREATE TABLE output (number BIGINT)")
    return made


@pytest.fixture
def group() -> str:
    return new_group()


@pytest.fixture
def new_consumer(bootstrap: str, group: str) -> Iterator[NewConsumer]:
    with exactly_once_consumers(bootstrap, group) as new:
        yield new


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
