"""AsyncConsumer.transactions: with Kafka transactions, and into a database."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from moldau.client.consumer.aio import AsyncConsumer
from moldau.client.consumer.transaction_targets import Batch
from moldau.client.errors import InvalidUse
from moldau.client.offset_store.table import TABLE
from moldau.client.producer.aio import AsyncProducer
from support.brokers.processes import CreateTopic
from support.databases.servers import Server
from support.databases.targets import Database, postgresql_database, sqlite_database
from support.transactions.loops import (
    copied,
    fill,
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
