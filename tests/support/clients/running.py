"""Consumer.run in a thread of a test, records for it, and what it committed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from moldau.base.ids import TopicPartition
from moldau.client.consumer.consumer import Consumer
from moldau.client.message import Message
from support.clients.confluent import write
from support.eventually import PATIENCE_S

AnyMessage: TypeAlias = Message[Any, Any]
AnyConsumer: TypeAlias = Consumer[Any, Any]


class Running:
    """A run in a thread of its own."""

    def __init__(self, consumer: AnyConsumer, handler: Callable[[AnyMessage], object]) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(handler,), daemon=True)
        self.thread.start()

    def _run(self, handler: Callable[[AnyMessage], object]) -> None:
        try:
            self.consumer.run(handler)
        except BaseException as error:  # noqa: BLE001  # raised by `end`
            self.error = error

    def end(self) -> None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), "the run does not end"
        if self.error is not None:
            raise self.error


@contextmanager
def running(consumer: AnyConsumer, handler: Callable[[AnyMessage], object]) -> Iterator[Running]:
    """Run until the body ends."""
    run = Running(consumer, handler)
    try:
        yield run
        consumer.wakeup()
        run.end()
    finally:
        consumer.close()


def fill(bootstrap: str, topic: str, *partitions: int, keys: int = 0) -> None:
    """So many records for each partition: 0, 1, 2… with keys 0, 1, 2… in turn."""
    records = [
        {"value": str(number), "partition": partition, **({"key": str(number % keys)} if keys else {})}
        for partition, count in enumerate(partitions)
        for number in range(count)
    ]
    write(bootstrap, topic, records)


def place(message: AnyMessage) -> tuple[int, int]:
    return message.partition, message.offset


def committed(consumer: AnyConsumer, topic: str, partitions: int = 1) -> list[int]:
    found = consumer.committed(*(TopicPartition(topic, partition) for partition in range(partitions)))
    return [each.offset if each is not None else 0 for _, each in sorted(found.items())]
