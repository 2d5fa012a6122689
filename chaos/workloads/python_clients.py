"""Idempotent producers of the other Python clients, aiokafka and kafka-python."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from chaos.workloads.base import PATIENCE_S, Numbered

UNDER_WAY = 500


class Aiokafka(Numbered):
    def work(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        waiting: set[asyncio.Task[None]] = set()
        while not self.ending.is_set():
            producer = AIOKafkaProducer(
                bootstrap_servers=self.setting.bootstrap, enable_idempotence=True, request_timeout_ms=5_000,
                retry_backoff_ms=50, metadata_max_age_ms=5_000, linger_ms=2,
            )  # fmt: skip
            try:
                await producer.start()
            except AiokafkaError as failure:
                self.note(f"starts again: {failure!r}")
                continue
            failed = self.failed
            # It numbers on behind a record that it gave up, which no broker takes then: only another producer helps.
            while self.failed == failed and not self.ending.is_set():
                if len(waiting) < UNDER_WAY:
                    await self._send(producer, waiting)
                await asyncio.sleep(self.dice.random() * 2 / self.setting.rate)
            if waiting:
                await asyncio.wait(waiting, timeout=PATIENCE_S)
            await asyncio.wait_for(producer.stop(), PATIENCE_S)

    async def _send(self, producer: AIOKafkaProducer, waiting: "set[asyncio.Task[None]]") -> None:
        """Handed over here, because tasks may run in any order; awaited apart."""
        partition, value = self.next_record()
        try:
            future = await producer.send(self.setting.topic, value.encode(), partition=partition)
        except AiokafkaError as failure:
            return self.not_delivered(partition, value, repr(failure))
        task = asyncio.ensure_future(self._outcome(future, partition, value))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        return None

    async def _outcome(self, future: "asyncio.Future[Any]", partition: int, value: str) -> None:
        try:
            told = await future
        except AiokafkaError as failure:
            self.not_delivered(partition, value, repr(failure))
        else:
            self.delivered(partition, value, told.offset)


class KafkaPython(Numbered):
    def work(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.setting.bootstrap, enable_idempotence=True, request_timeout_ms=5_000,
            retry_backoff_ms=50, metadata_max_age_ms=5_000, linger_ms=2, delivery_timeout_ms=600_000,
            max_block_ms=int(PATIENCE_S * 1000),
        )  # fmt: skip
        while not self.ending.is_set():
            partition, value = self.next_record()
            try:
                future = producer.send(self.setting.topic, value.encode(), partition=partition)
            except KafkaPythonError as failure:
                self.not_delivered(partition, value, repr(failure))
            else:
                future.add_callback(self._arrived, partition, value)
                future.add_errback(self._lost, partition, value)
            self.pause()
        producer.flush(timeout=PATIENCE_S)
        producer.close(timeout=PATIENCE_S)

    def _arrived(self, partition: int, value: str, told: Any) -> None:
        self.delivered(partition, value, told.offset)

    def _lost(self, partition: int, value: str, failure: Exception) -> None:
        self.not_delivered(partition, value, repr(failure))
