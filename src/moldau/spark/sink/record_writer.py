"""What a task writes with: columns to topics, through a producer of either kind. Knows nothing of Spark or batches.

A topic that does not exist is created by the broker, where it is set to do so, as it is for Java's producer.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Any

from moldau.base.errors import WireError
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster, Topic
from moldau.client.direct.produce import Producer
from moldau.spark.cluster import QueryFailed
from moldau.spark.options import WriteOptions
from moldau.spark.sink.rows import Rows

HINTS = {
    WireError.MESSAGE_TOO_LARGE: "a single record is larger than the topic's max.message.bytes or than "
    "kafka.max.request.size",
    WireError.INVALID_TRANSACTION_TIMEOUT: "set kafka.transaction.timeout.ms to what brokers allow "
    "(their transaction.max.timeout.ms)",
}


class RecordWriter:
    def __init__(self, cluster: Cluster, producer: Producer, options: WriteOptions) -> None:
        self.rows = 0
        self._cluster = cluster
        self._producer = producer
        self._options = options

    def write(self, rows: Rows) -> None:
        """QueryFailed if they cannot be sent; they have arrived after `flush`."""
        if not len(rows):
            return
        keys, values = rows.keys.tolist(), rows.values.tolist()
        if self._options.topic:
            self._send(self._options.topic, keys, values, rows.headers, rows.partitions)
        else:
            topics = rows.topics.tolist()
            for topic in dict.fromkeys(topics):
                chosen = [each == topic for each in topics]
                self._send(topic, *(_some(column, chosen) for column in (keys, values, rows.headers, rows.partitions)))
        self.rows += len(rows)

    def flush(self) -> None:
        unwrap(self._producer.flush())

    def topic(self, name: str) -> Topic:
        """The topic, created if need be; QueryFailed if it is not to be had."""
        found = self._cluster.topic(name, create=True)
        if isinstance(found, Failure):
            raise QueryFailed(f"the topic {name} cannot be written to: {found}")
        return found

    def _send(self, topic: str, keys: Any, values: Any, headers: Any, partitions: Any) -> None:
        known = self.topic(topic)
        if partitions is not None:
            missing = {each for each in partitions if each is not None} - known.leaders.keys()
            if missing:
                self._expect(topic, missing)
        unwrap(self._producer.write(topic, keys, values, headers=headers, partitions=partitions))

    def _expect(self, topic: str, partitions: set[int]) -> None:
        """They may have been added since the topic was looked at."""
        self._cluster.forget(topic)
        known = self.topic(topic).leaders
        missing = partitions - known.keys()
        if missing:
            has = f"which has {len(known)} (0 to {len(known) - 1})"
            raise QueryFailed(f"a row is for partition {min(missing)} of {topic}, {has}")


def _some(column: Sequence[Any] | None, chosen: Sequence[bool]) -> Sequence[Any] | None:
    return None if column is None else list(compress(column, chosen))


def unwrap(problem: Failure | None) -> None:
    """QueryFailed with what to do about it, if that is known."""
    if problem is not None:
        hint = HINTS.get(problem.code)  # type: ignore[call-overload]
        raise QueryFailed(f"{problem}; {hint}" if hint else str(problem))
