"""A producer that writes numbered records all the time, over broker restarts, and counts acknowledgements."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from support.clients.confluent import read_partitions

PATIENCE = 90
KEYS = 50  # of the records, in rotation
Place = tuple[str, int]


class Steady:
    """Writes 0, 1, 2, … to each partition from its own thread, until it is stopped. Idempotent."""

    def __init__(self, bootstrap: str, places: Sequence[Place]) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.num.messages": 50,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.max.ms": 100,
            "queue.buffering.max.messages": 3_000,
            "log_level": 0,
        }
        self.acknowledged: dict[Place, int] = dict.fromkeys(places, 0)  # the count, which is also the next number
        self.errors: list[object] = []
        self._places = places
        self._producer = Producer(settings)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            try:
                for topic, partition in self._places:
                    key, value = b"%d" % (number % KEYS), b"%d" % number
                    self._produce(topic, partition, key, value)
                number += 1
                self._producer.poll(0)
            except KafkaException as error:
                self.errors.append(error)
        self._producer.flush(PATIENCE)

    def _produce(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        while True:
            try:
                return self._producer.produce(topic, value, key, partition, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.02)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        place = (str(message.topic()), int(message.partition() or 0))
        if error is not None:
            self.errors.append(error)
        elif int(message.value() or b"-1") != self.acknowledged[place]:
            self.errors.append(f"{place}: {message.value()!r} after {self.acknowledged[place] - 1}")
        else:
            self.acknowledged[place] += 1

    def wait_for_more(self, many: int) -> None:
        """Wait until this many more records are acknowledged in every partition."""
        wanted = {place: count + many for place, count in self.acknowledged.items()}
        self.wait_until(lambda: all(self.acknowledged[place] >= count for place, count in wanted.items()))

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert not self.errors, self.errors[:3]
            assert time.monotonic() < deadline, self.acknowledged
            time.sleep(0.01)


@contextmanager
def writing(bootstrap: str, places: Sequence[Place]) -> Iterator[Steady]:
    steady = Steady(bootstrap, places)
    steady._thread.start()
    try:
        yield steady
    finally:
        steady._ending.set()
        steady._thread.join()


def stored(bootstrap: str, place: Place) -> list[tuple[int, int, int]]:
    """Offset, key and number of every record of a partition."""
    topic, partition = place
    found = read_partitions(bootstrap, topic, [partition])
    return [(record.offset, int(record.key or b""), int(record.value or b"")) for record in found]
