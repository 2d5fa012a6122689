"""RecordWriter: writes rows of a task to topics through a producer, transactional or not.

As with Java's producer, a broker may create a missing topic.
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
    WireError.INVALID_TRANSACTION_TIMEOUT: "set kafka.transaction.timeout.ms to at most the brokers' "
    "transaction.max.timeout.ms",
}


class RecordWriter:
    def __init__(self, cluster: Cluster, producer: Producer, options: WriteOptions) -> None:
        self.rows = 0
        self._cluster = cluster
        self._producer = producer
        self._options = options

    def write(self, rows: Rows) -> None:
        """Send rows; they are acknowledged after `flush`. Raises QueryFailed."""
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
        """The topic, created if the broker does so; raises QueryFailed."""
        found = self._cluster.topic(name, create=True)
        if isinstance(found, Failure):
            raise QueryFailed(f"cannot write to the topic {name}: {found}")
        return found

    def _send(self, topic: str, keys: Any, values: Any, headers: Any, partitions: Any) -> None:
        known = self.topic(topic)
        if partitions is not None:
            missing = {each for each in partitions if each is not None} - known.leaders.keys()
            if missing:
                self._expect(topic, missing)
        unwrap(self._producer.write(topic, keys, values, headers=headers, partitions=partitions))

    def _expect(self, topic: str, partitions: set[int]) -> None:
        """Refresh the metadata: the partitions may be new."""
        self._cluster.forget(topic)
        known = self.topic(topic).leaders
        missing = partitions - known.keys()
        if missing:
            has = f"which has {len(known)} (0 to {len(known) - 1})"
            raise QueryFailed(f"a row is for partition {min(missing)} of {topic}, {has}")


def _some(column: Sequence[Any] | None, chosen: Sequence[bool]) -> Sequence[Any] | None:
    return None if column is None else list(compress(column, chosen))


def unwrap(problem: Failure | None) -> None:
    """Raise QueryFailed for a failure, with a hint if there is one."""
    if problem is not None:
        hint = HINTS.get(problem.code)  # type: ignore[call-overload]
        raise QueryFailed(f"{problem}; {hint}" if hint else str(problem))
