"""A record of the user's as librdkafka takes it: interceptors, serializers, partitioner, headers, timestamp."""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from moldau.client.errors import ClientError, InvalidUse, SerializationFailed
from moldau.client.interceptors import Interceptors, OutgoingRecord, ProducerInterceptor
from moldau.client.producer.delivery import Delivered
from moldau.client.producer.partitioners import PartitionCounts, Partitioner, choose
from moldau.client.producer.reports import ReportThread
from moldau.client.serializers.choose import serializer_for
from moldau.client.serializers.port import Headers, Serializer, SerializerContext, SerializerKind

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

GivenHeaders: TypeAlias = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
Timestamp: TypeAlias = int | datetime.datetime
Settle: TypeAlias = "Callable[[KafkaError | None, Message], None]"
# Of librdkafka's produce: topic, value, key, partition, callback, its other name, timestamp (0 is now), headers.
Arguments: TypeAlias = tuple[str, bytes | None, bytes | None, int, Settle, None, int, Headers | None]

_SIMPLE = {bytes, type(None)}
_OTHER: Any = object()


class RecordMaker:
    """Makes the arguments of librdkafka's `produce`."""

    def __init__(
        self,
        key: SerializerKind[Any] | None,
        value: SerializerKind[Any] | None,
        interceptors: Sequence[ProducerInterceptor],
        partitioner: Partitioner | None,
        reports: ReportThread,
        counts: PartitionCounts,
    ) -> None:
        self._key_serializer: Serializer[Any] = serializer_for(key)
        self._value_serializer: Serializer[Any] = serializer_for(value)
        self._interceptors = Interceptors()
        self._on_send = [each.on_send for each in interceptors]
        self._on_delivery = [each.on_delivery for each in interceptors]
        self._reports = reports
        self._counts = counts
        self.partitioner = partitioner
        # Whether bytes need no work, and text nothing but UTF-8: so it is too if the type of each value decides.
        simple = not interceptors and partitioner is None
        self.takes_bytes = simple and all(kind is None or kind is bytes for kind in (key, value))
        self.takes_text = simple and key is None and value is None

    def make(
        self,
        topic: str,
        value: object,
        key: object,
        headers: GivenHeaders | None,
        props: Mapping[str, str] | None,
        partition: int | None,
        timestamp: Timestamp | None,
        settle: Settle,
        max_block: float,
    ) -> Arguments:
        """The record's arguments. May ask a broker for the number of partitions, if there is a partitioner."""
        if headers is None and props is None and self.takes_bytes:
            raw, raw_key = self._plain(value, topic), self._plain(key, topic)
            if raw is not _OTHER and raw_key is not _OTHER:
                return (
                    topic,
                    raw,
                    raw_key,
                    _read_partition(partition),
                    settle,
                    None,
                    read_timestamp(timestamp) or 0,
                    None,
                )
        record = OutgoingRecord(topic, value, key, read_headers(headers, props), partition, read_timestamp(timestamp))
        if not self._on_send:
            return self._written(record, settle, max_block)
        record = self._interceptors.pass_through(self._on_send, record)
        told = Intercepted(settle, record, self._tell, self._reports)
        try:
            return self._written(record, told, max_block)
        except ClientError as error:
            told.refused(error)
            raise

    def _written(self, record: OutgoingRecord, settle: Settle, max_block: float) -> Arguments:
        topic = record.topic
        written_key = _serialize(self._key_serializer, record.key, SerializerContext(topic, "key", record.headers))
        context = SerializerContext(topic, "value", record.headers, written_key)
        written = _serialize(self._value_serializer, record.value, context)
        chosen = _read_partition(record.partition)
        if record.partition is None and self.partitioner is not None:
            chosen = choose(self.partitioner, topic, written_key, written, self._counts.get(topic, max_block))
        return (topic, written, written_key, chosen, settle, None, record.timestamp or 0, record.headers)

    def _plain(self, obj: Any, topic: str) -> Any:
        """Bytes that need no serializer, or `_OTHER`."""
        if obj is None or type(obj) is bytes:
            return obj
        return utf8(obj, topic) if type(obj) is str and self.takes_text else _OTHER

    def make_many(
        self, topic: str, values: list[Any], keys: list[Any], settle: Settle, max_block: float
    ) -> list[Arguments]:
        """The arguments of several records; raises if one of them cannot be written."""
        return [
            self.make(topic, value, key, None, None, None, None, settle, max_block)
            for value, key in zip(values, keys, strict=True)
        ]

    def are_simple(self, values: list[Any], keys: list[Any]) -> bool:
        """Whether librdkafka takes all of them as they are."""
        return self.takes_bytes and _SIMPLE.issuperset({*map(type, values), *map(type, keys)})

    def _tell(self, record: OutgoingRecord, outcome: Delivered | ClientError) -> None:
        self._interceptors.tell(self._on_delivery, record, outcome)


class Intercepted:
    """The delivery report of a record that interceptors are told of, after the record's own outcome is known."""

    __slots__ = ("_record", "_reports", "_settle", "_tell")

    def __init__(
        self,
        settle: Settle,
        record: OutgoingRecord,
        tell: Callable[[OutgoingRecord, Delivered | ClientError], None],
        reports: ReportThread,
    ) -> None:
        self._settle = settle
        self._record = record
        self._tell = tell
        self._reports = reports

    def __call__(self, error: "KafkaError | None", message: "Message") -> None:
        self._settle(error, message)
        if error is not None:
            self.refused(self._reports.failure(error, self._record.topic))
            return
        partition, offset, timestamp = message.partition(), message.offset(), message.timestamp()[1]
        delivered = Delivered(self._record.topic, partition or 0, -1 if offset is None else offset, timestamp)
        self._reports.call_later(self._tell, self._record, delivered)

    def refused(self, error: ClientError) -> None:
        """The record failed, or did not even get into the buffer."""
        self._reports.call_later(self._tell, self._record, error)


MOST_MS = 2**63 - 1


def _serialize(serializer: Serializer[Any], obj: object, context: SerializerContext) -> bytes | None:
    try:
        found = serializer(obj, context)
    except ClientError:
        raise
    except Exception as error:  # a serializer of the user's, or of another library
        problem = f"{type(error).__name__}: {error}"
        raise SerializationFailed(f"the {context.field} for {context.topic} cannot be written: {problem}") from error
    if found is not None and not isinstance(found, bytes):
        problem = f"its serializer returned {type(found).__name__}, not bytes"
        raise SerializationFailed(f"the {context.field} for {context.topic} cannot be written: {problem}")
    return found


def listed(values: Iterable[Any], keys: Iterable[Any] | None) -> tuple[list[Any], list[Any]]:
    """Values and keys of several records."""
    for name, given in (("values", values), ("keys", keys)):
        if given is not None and (isinstance(given, str | bytes) or not isinstance(given, Iterable)):
            raise InvalidUse(f"{name}={given!r}: give a list of them")
    listed_values = list(values)
    listed_keys = [None] * len(listed_values) if keys is None else list(keys)
    if len(listed_values) != len(listed_keys):
        raise InvalidUse(f"there are {len(listed_values)} values and {len(listed_keys)} keys")
    return listed_values, listed_keys


def _read_partition(partition: int | None) -> int:
    if partition is None:
        return -1
    if not isinstance(partition, int) or partition < 0:
        raise InvalidUse(f"partition must be a number, 0 or more, not {partition!r}")
    return partition


def utf8(text: str, topic: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise SerializationFailed(f"a text for {topic} cannot be written: {error}") from None


def read_headers(headers: GivenHeaders | None, props: Mapping[str, str] | None) -> Headers:
    """Headers and props as one list; text is written in UTF-8."""
    found: Headers = []
    if props is not None and not isinstance(props, Mapping):
        raise InvalidUse(f"props={props!r}: give a mapping of names to texts")
    try:
        pairs = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers or ())]
    except (TypeError, ValueError):
        raise InvalidUse(f"headers={headers!r}: give a mapping, or a list of pairs of a name and a value") from None
    for name, value in [*pairs, *(props or {}).items()]:
        if not isinstance(name, str):
            raise InvalidUse(f"the name of a header must be text, not {type(name).__name__}")
        if isinstance(value, str):
            found.append((name, value.encode()))
        elif value is None or isinstance(value, bytes):
            found.append((name, value))
        else:
            raise InvalidUse(f"header {name!r} must be bytes, text or None, not {type(value).__name__}")
    return found


def read_timestamp(timestamp: Timestamp | None) -> int | None:
    """In ms since 1970; None for now."""
    if timestamp is None:
        return None
    if isinstance(timestamp, datetime.datetime):
        if timestamp.tzinfo is None:
            raise InvalidUse("a timestamp must have a time zone; datetime.now(UTC) has one")
        timestamp = round(timestamp.timestamp() * 1000)
    if not isinstance(timestamp, int) or timestamp > MOST_MS:
        raise InvalidUse(f"timestamp={timestamp!r}: give a datetime, or whole ms since 1970")
    if timestamp <= 0:  # librdkafka takes 0 for now
        raise InvalidUse(f"a timestamp must be after 1970, in ms, not {timestamp}")
    return timestamp
