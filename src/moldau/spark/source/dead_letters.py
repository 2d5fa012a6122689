"""Records that do not match the schema: write them to a dead-letter topic, or fail the query.

A dead letter has the record's key, value and headers, and more headers with its origin and the reason. Topic, partition
and offset of the origin identify it. It is written at least once: a task that runs again writes its dead letters again;
with `delivery=exactly-once` it is written once (dead_letters_once.py).
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Protocol

from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.produce import Producer
from moldau.client.direct.records import Headers
from moldau.spark.cluster import QueryFailed, open_cluster, unwrap
from moldau.spark.connection import Connection
from moldau.spark.options import ReadOptions
from moldau.spark.source.plan import ReadTask
from moldau.spark.value_formats import Rejected
from moldau.wire.dead_letters import Origin, letter_headers

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RecordRejected(QueryFailed):
    """A record does not match the schema, and there is no dead-letter topic."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"the record at offset {offset} of {topic}-{partition} does not match the schema: {reason}. "
            'To write such records to a topic instead, set option("deadLetters", "topic")'
        )
        self.topic, self.partition, self.offset, self.reason = topic, partition, offset, reason


class RejectHandler(Protocol):
    """Handles rejected records of a batch with Kafka's columns. A context manager: leaving it delivers them."""

    def take(self, batch: Any, rejected: Sequence[Rejected]) -> None: ...

    def __enter__(self) -> "RejectHandler": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def reject_handler(options: ReadOptions, task: ReadTask) -> RejectHandler:
    """The handler of one task. With a dead-letter topic, batches need the column headers."""
    if options.dead_letters is None:
        return FailOnReject()
    if not options.dead_letters_once:
        return DeadLetters(options.connection, options.dead_letters)
    from moldau.spark.source.dead_letters_once import DeadLettersOnce, this_query

    return DeadLettersOnce(options, task, this_query())


class FailOnReject:
    def take(self, batch: Any, rejected: Sequence[Rejected]) -> None:
        for each in rejected:
            topic, partition, offset = (
                batch.column(name)[each.row].as_py() for name in ("topic", "partition", "offset")
            )
            raise RecordRejected(topic, partition, offset, each.reason)

    def __enter__(self) -> "FailOnReject":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class DeadLetters:
    """Connects for the first dead letter: most tasks have none."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._cluster: Cluster | None = None
        self._producer: Producer | None = None

    def __enter__(self) -> "DeadLetters":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A failed task runs again, so it does not wait for its dead letters."""
        try:
            if self._producer is not None:
                self.finish(self._producer, failed=kind is not None)
        finally:
            self.close()

    def finish(self, producer: Producer, *, failed: bool) -> None:
        """Deliver the dead letters."""
        if not failed:
            self.check(producer.flush())

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
        if self._cluster is not None:
            self._cluster.close()
        self._producer = self._cluster = None

    def take(self, batch: Any, rejected: Sequence[Rejected]) -> None:
        if not rejected:
            return
        producer = self._open()
        rows = batch.take([each.row for each in rejected]).to_pylist()
        headers = [_headers(row, each.reason) for row, each in zip(rows, rejected, strict=True)]
        keys, values = [row["key"] for row in rows], [row["value"] for row in rows]
        times = [_ms(row) for row in rows]
        self.check(producer.write(self._topic, keys, values, times, headers))

    def _open(self) -> Producer:
        if self._producer is None:
            self._cluster = open_cluster(self._connection)
            self._producer = self.producer(self._cluster)
            self.check(self._producer.start())
        return self._producer

    def producer(self, cluster: Cluster) -> Producer:
        return Producer(cluster)

    def check(self, problem: Failure | None) -> None:
        """Raises QueryFailed."""
        try:
            unwrap(problem)
        except QueryFailed as failure:
            raise QueryFailed(f"cannot write dead letters to {self._topic}: {failure}") from None


def _headers(row: dict[str, Any], reason: str) -> Headers:
    own = [(header["key"], header["value"]) for header in row.get("headers") or ()]
    return [*own, *letter_headers(reason, Origin(row["topic"], row["partition"], row["offset"], _ms(row)))]


def _ms(row: dict[str, Any]) -> int:
    time: datetime = row["timestamp"]
    return (time - EPOCH) // timedelta(milliseconds=1)
