"""Which partition a record goes to: a partitioner of the user's, and the number of partitions that it is given.

librdkafka's partitioners, with murmur2 as in Java by default, need nothing of this.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from moldau.client.errors import ClientError, Closed, InvalidUse, KafkaFailure, client_error
from moldau.client.producer.failures import Connection

if TYPE_CHECKING:
    from confluent_kafka import Producer as KafkaProducer

# (topic, key, value, number of partitions) → partition
Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]

DEFAULT = "murmur2_random"  # as Java's: murmur2 of the key; records without key stick to a random partition for a while
REFRESH_S = 60.0
RETRY_S = 0.1
ASK_S = 5.0  # for one answer
REFRESH_TIMEOUT_S = 1.0


class PartitionCounts:
    """The number of partitions of topics, asked for once a minute."""

    def __init__(self, kafka: "KafkaProducer", connection: Connection) -> None:
        self._kafka = kafka
        self._connection = connection
        self._known: dict[str, tuple[int, float]] = {}  # and until when it is fresh

    def fresh(self, topic: str) -> int | None:
        """The number if it is known and not old; asks nobody."""
        count, until = self._known.get(topic, (0, 0.0))
        return count if time.monotonic() < until else None

    def get(self, topic: str, timeout: float) -> int:
        """Ask if needed. An old number is used on if brokers do not answer."""
        count = self.fresh(topic)
        if count is not None:
            return count
        old = self._known.get(topic)
        try:
            count = self.ask(topic, timeout if old is None else min(timeout, REFRESH_TIMEOUT_S))
        except KafkaFailure as failure:
            if old is None or not failure.retriable:
                raise
            count = old[0]
        self._known[topic] = (count, time.monotonic() + REFRESH_S)
        return count

    def ask(self, topic: str, timeout: float) -> int:
        """Ask a broker; one with auto.create.topics.enable creates the topic, which takes a moment."""
        deadline = time.monotonic() + timeout
        while True:
            found = self._ask_once(topic, max(0.0, min(deadline - time.monotonic(), ASK_S)))
            if isinstance(found, int):
                return found
            if not found.retriable or time.monotonic() + RETRY_S > deadline:
                raise found
            time.sleep(RETRY_S)

    def _ask_once(self, topic: str, timeout: float) -> int | ClientError:
        """librdkafka waits for a broker's answer without looking at signals; so Ctrl-C needs another thread for it."""
        found: list[int | ClientError] = []
        asking = threading.Thread(target=lambda: found.append(self._list(topic, timeout)), daemon=True)
        asking.start()
        while asking.is_alive():
            asking.join(RETRY_S)
            if self._connection.refused():
                break
        return found[0] if found else self._connection.explain(KafkaFailure("TIMED_OUT", topic))

    def _list(self, topic: str, timeout: float) -> int | ClientError:
        from confluent_kafka import KafkaException

        try:
            found = self._kafka.list_topics(topic, timeout=timeout).topics[topic]
        except KafkaException as error:
            return self._connection.explain(client_error(error, topic))
        except Closed as error:
            return error
        return len(found.partitions) if found.error is None else client_error(found.error, topic)


def choose(partitioner: Partitioner, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
    """The partition that the user's function chooses."""
    chosen = partitioner(topic, key, value, partitions)
    if not isinstance(chosen, int) or not 0 <= chosen < partitions:
        raise InvalidUse(f"the partitioner returned {chosen!r} for {topic}, which has {partitions} partitions")
    return chosen
