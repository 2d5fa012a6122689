"""Questions to brokers that are not about fetching: committed offsets, ends of partitions, offsets by time.

They go through a client of their own, so that a slow answer never keeps the poll thread from polling.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.options import ConsumerOptions
from moldau.client.consumer.partitions import for_librdkafka, plain
from moldau.client.errors import TimedOut, client_error
from moldau.client.settings import build

if TYPE_CHECKING:
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

TIMEOUT_S = 30.0
# Properties that any client has; those of consumers only would be warned of.
SHARED = (
    "api.version.",
    "bootstrap.servers",
    "broker.",
    "client.",
    "connections.",
    "debug",
    "log",
    "oauth_cb",
    "receive.message.max.bytes",
    "reconnect.",
    "retry.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
    "ssl_",
)


class Queries:
    """An admin client, made when the first question is asked."""

    def __init__(self, options: ConsumerOptions) -> None:
        self._options = options
        self._made: AdminClient | None = None

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None where there is none."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        group = self._options.group
        if group is None or not partitions:
            return {}
        request = [ConsumerGroupTopicPartitions(group, for_librdkafka(partitions))]
        asked: Future[Any] = self._client().list_consumer_group_offsets(request, request_timeout=TIMEOUT_S)[group]
        rows = _wait(asked, f"the committed offsets of group {group!r}").topic_partitions
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for tp, row in zip(plain(rows), rows, strict=True):
            if row.error is not None:
                raise client_error(row.error)
            found[tp] = OffsetAndMetadata(row.offset, row.metadata or "") if row.offset >= 0 else None
        return found

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The log start offsets."""
        return self._list_offsets(partitions, lambda spec: spec.earliest())

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The offsets after the last record that this consumer may read."""
        return self._list_offsets(partitions, lambda spec: spec.latest())

    def at_time(self, partitions: Collection[TopicPartition], time_ms: int) -> dict[TopicPartition, Offset | None]:
        """The first records from this time on; None where there is none."""
        found = self._list_offsets(partitions, lambda spec: spec.for_timestamp(time_ms))
        return {tp: offset if offset >= 0 else None for tp, offset in found.items()}

    def _list_offsets(
        self, partitions: Collection[TopicPartition], choose: Callable[[Any], Any]
    ) -> dict[TopicPartition, Offset]:
        """Ask for offsets; `choose` makes one of the binding's OffsetSpec, which has no types."""
        from confluent_kafka.admin import OffsetSpec

        if not partitions:
            return {}
        request = dict.fromkeys(for_librdkafka(partitions), choose(OffsetSpec))
        asked: Mapping[Any, Future[Any]] = self._client().list_offsets(
            request, isolation_level=self._isolation(), request_timeout=TIMEOUT_S
        )
        until = time.monotonic() + TIMEOUT_S
        return {
            TopicPartition(each.topic, each.partition): int(_wait(future, f"offsets of {each.topic}", until).offset)
            for each, future in asked.items()
        }

    def _isolation(self) -> "IsolationLevel":
        from confluent_kafka import IsolationLevel

        uncommitted = self._options.configuration.get("isolation.level") == "read_uncommitted"
        return IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED

    def _client(self) -> "AdminClient":
        from confluent_kafka.admin import AdminClient

        if self._made is None:
            given = self._options.configuration
            shared = {name: value for name, value in given.items() if name.startswith(SHARED)}
            factory: Callable[[Any], AdminClient] = AdminClient
            self._made = build(factory, shared)
        return self._made


def _wait(future: "Future[T]", what: str, until: float | None = None) -> T:
    from confluent_kafka import KafkaException

    try:
        return future.result(TIMEOUT_S if until is None else max(until - time.monotonic(), 0))
    except KafkaException as error:
        raise client_error(error) from error
    except FutureTimeout:
        raise TimedOut(f"no broker told {what} within {TIMEOUT_S:.0f} s") from None
