"""What a task writes with: columns to topics, through a producer of either kind. Knows nothing of Spark or batches.

A topic that does not exist is created by the broker, where it is set to do so, as it is for Java's producer.
"""

from collections.abc import Sequence
from itertools import compress, repeat
from typing import Any

from moldau.base.errors import WireError
from moldau.client.direct.failed import Failed
from moldau.client.direct.metadata import Cluster, Topic
from moldau.client.direct.patience import Patience
from moldau.client.direct.produce import Producer
from moldau.client.direct.records import MOST_OVERHEAD
from moldau.spark.link import QueryFailed
from moldau.spark.options import WriteOptions
from moldau.spark.sink.rows import Rows

CREATION_S = 10.0  # how long a topic that the broker may be creating is waited for
HINTS = {
    WireError.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes, or set kafka.batch.size below it",
    WireError.INVALID_TRANSACTION_TIMEOUT: "set kafka.transaction.timeout.ms to what brokers allow "
    "(their transaction.max.timeout.ms)",
}


class Output:
    def __init__(self, cluster: Cluster, producer: Producer, options: WriteOptions) -> None:
        self.rows = 0
        self._cluster = cluster
        self._producer = producer
        self._options = options
        self._topics: dict[str, Topic] = {}

    def write(self, rows: Rows) -> None:
        """QueryFailed if they cannot be sent; they have arrived after `flush`."""
        if not len(rows):
            return
        self._check_sizes(rows)
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
        worked(self._producer.flush())

    def topic(self, name: str) -> Topic:
        """The topic, created if need be; QueryFailed if it is not to be had."""
        if name not in self._topics:
            patience = Patience(min(CREATION_S, self._cluster.timeout_s))
            found = self._cluster.describe([name])
            if isinstance(found, dict) and isinstance(found.get(name), Failed):
                found = self._cluster.describe([name], patience, create=True)
            topic = found if isinstance(found, Failed) else found[name]
            if isinstance(topic, Failed):
                raise QueryFailed(f"{topic}: the topic {name} cannot be written to")
            self._topics[name] = topic
        return self._topics[name]

    def _send(self, topic: str, keys: Any, values: Any, headers: Any, partitions: Any) -> None:
        known = self.topic(topic)
        if partitions is not None:
            missing = {each for each in partitions if each is not None} - known.leaders.keys()
            if missing:
                self._expect(topic, missing)
        worked(self._producer.write(topic, keys, values, headers=headers, partitions=partitions))

    def _expect(self, topic: str, partitions: set[int]) -> None:
        """They may have been added since the topic was looked at."""
        self._cluster.forget(topic)
        self._topics.pop(topic)
        missing = partitions - self.topic(topic).leaders.keys()
        if missing:
            has = len(self._topics[topic].leaders)
            raise QueryFailed(f"a row is for partition {min(missing)} of {topic}, which has {has} (0 to {has - 1})")

    def _check_sizes(self, rows: Rows) -> None:
        """As Java's producer: a record that could not be sent alone is refused before it is."""
        limit = self._options.request_bytes - MOST_OVERHEAD
        if rows.size <= limit or (rows.headers is None and _longest(rows.keys) + _longest(rows.values) <= limit):
            return
        headers = repeat(()) if rows.headers is None else rows.headers
        for key, value, named in zip(rows.keys, rows.values, headers, strict=False):
            size = len(key or b"") + len(value or b"") + sum(len(name) + len(each or b"") for name, each in named)
            if size > limit:
                allowed = self._options.request_bytes
                raise QueryFailed(f"a record has {size} bytes, more than kafka.max.request.size allows ({allowed})")


def _longest(column: Any) -> int:
    return max(map(len, filter(None, column)), default=0)


def _some(column: Sequence[Any] | None, chosen: Sequence[bool]) -> Sequence[Any] | None:
    return None if column is None else list(compress(column, chosen))


def worked(problem: Failed | None) -> None:
    """QueryFailed with what to do about it, if that is known."""
    if problem is not None:
        hint = HINTS.get(problem.code)  # type: ignore[call-overload]
        raise QueryFailed(f"{problem}; {hint}" if hint else str(problem))
