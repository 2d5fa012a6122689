"""aiokafka and kafka-python: idempotent producers, and readers of their records."""

import asyncio
import contextlib
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPlace
from aiokafka.errors import KafkaError as AiokafkaError
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError as KafkaPythonError

from chaos.workloads.base import PATIENCE_S, Gave, Numbered, Reader
from chaos.workloads.errors import is_hard_in_python

UNDER_WAY = 500
POLL_MS = 200
RECONNECT_MS = 500  # for kafka-python, which by default stays away for up to half a minute from a broker that was down
HASTY = {"request_timeout_ms": 5_000, "retry_backoff_ms": 50, "metadata_max_age_ms": 5_000}
READING = {**HASTY, "isolation_level": "read_committed", "auto_offset_reset": "none", "fetch_max_wait_ms": 100}


class Aiokafka(Numbered):
    def work(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        waiting: set[asyncio.Task[None]] = set()
        # The default of request_timeout_ms is kept: aiokafka gives up records that wait for a leader for that long.
        while not self.ending.is_set():
            producer = AIOKafkaProducer(
                enable_idempotence=True, linger_ms=2, retry_backoff_ms=50, metadata_max_age_ms=5_000,
                **self.setting.access.aiokafka,
            )  # fmt: skip
            try:
                await producer.start()
            except AiokafkaError as failure:
                self.erred(f"starts again: {failure!r}", hard=is_hard_in_python(failure))
                continue
            failed = self.failed
            # It skips the sequence numbers of records that it gave up; brokers then reject what follows. Use a new one.
            while self.failed == failed and not self.ending.is_set():
                if len(waiting) < UNDER_WAY:
                    await self._send(producer, waiting)
                await asyncio.sleep(self.dice.random() * 2 / self.setting.rate)
            if waiting:
                _, left = await asyncio.wait(waiting, timeout=PATIENCE_S)
                if left:
                    raise Gave(f"{self.name}: {len(left)} records had no outcome within {PATIENCE_S:.0f} s")
            await asyncio.wait_for(producer.stop(), PATIENCE_S)

    async def _send(self, producer: AIOKafkaProducer, waiting: "set[asyncio.Task[None]]") -> None:
        """Send here, because tasks may run in any order; await the outcome in a task."""
        partition, value = self.next_record()
        try:
            future = await producer.send(self.setting.topic, value.encode(), partition=partition)
        except AiokafkaError as failure:
            return self.not_delivered(partition, value, repr(failure), hard=is_hard_in_python(failure))
        task = asyncio.ensure_future(self._outcome(future, partition, value))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        return None

    async def _outcome(self, future: "asyncio.Future[Any]", partition: int, value: str) -> None:
        try:
            told = await future
        except AiokafkaError as failure:
            self.not_delivered(partition, value, repr(failure), hard=is_hard_in_python(failure))
        else:
            self.delivered(partition, value, told.offset)


class KafkaPython(Numbered):
    def work(self) -> None:
        producer = KafkaProducer(
            enable_idempotence=True, linger_ms=2, delivery_timeout_ms=600_000, max_block_ms=int(PATIENCE_S * 1000),
            reconnect_backoff_max_ms=RECONNECT_MS, **HASTY, **self.setting.access.kafka_python,
        )  # fmt: skip
        while not self.ending.is_set():
            partition, value = self.next_record()
            try:
                future = producer.send(self.setting.topic, value.encode(), partition=partition)
            except KafkaPythonError as failure:
                self.not_delivered(partition, value, repr(failure), hard=is_hard_in_python(failure))
            else:
                future.add_callback(self._arrived, partition, value)
                future.add_errback(self._lost, partition, value)
            self.pause()
        producer.flush(timeout=PATIENCE_S)
        producer.close(timeout=PATIENCE_S)

    def _arrived(self, partition: int, value: str, told: Any) -> None:
        self.delivered(partition, value, told.offset)

    def _lost(self, partition: int, value: str, failure: Exception) -> None:
        self.not_delivered(partition, value, repr(failure), hard=is_hard_in_python(failure))


class PythonReader(Reader):
    """The part that both libraries share; only aiokafka's calls have to be awaited."""

    def begin(self, consumer: Any, place: type) -> None:
        places = [place(self.setting.topic, index) for index in range(self.setting.partitions)]
        consumer.assign(places)
        for each in places:
            consumer.seek(each, 0)
        self.stands_at(0)

    def take(self, found: dict[Any, list[Any]]) -> None:
        for place, records in found.items():
            self.took(place.partition, [(each.offset, each.value.decode()) for each in records])

    def missed(self, failure: Exception) -> None:
        self.erred(repr(failure), hard=is_hard_in_python(failure))


class AiokafkaReader(PythonReader):
    def work(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(enable_auto_commit=False, **READING, **self.setting.access.aiokafka)
        await consumer.start()
        self.begin(consumer, AiokafkaPlace)
        while not self.ending.is_set():
            try:
                self.take(await consumer.getmany(timeout_ms=POLL_MS))
            except AiokafkaError as failure:
                self.missed(failure)
        with contextlib.suppress(asyncio.CancelledError):  # of its own task, if it waits to fetch again
            await asyncio.wait_for(consumer.stop(), PATIENCE_S)


class KafkaPythonReader(PythonReader):
    def work(self) -> None:
        settings = {**READING, **self.setting.access.kafka_python, "reconnect_backoff_max_ms": RECONNECT_MS}
        consumer = KafkaConsumer(enable_auto_commit=False, **settings)
        self.begin(consumer, TopicPartition)
        while not self.ending.is_set():
            try:
                self.take(consumer.poll(timeout_ms=POLL_MS))
            except KafkaPythonError as failure:
                self.missed(failure)
        consumer.close()
