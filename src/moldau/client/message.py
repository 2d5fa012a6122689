"""A record as a consumer gets it. Everything is read from librdkafka's message when it is first asked for."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

from moldau.base.ids import NO_TIMESTAMP, Offset, TopicPartition
from moldau.client.errors import ClientError, DeserializationFailed
from moldau.client.serializers.choose import raw
from moldau.client.serializers.port import Deserializer, Headers, K, SerializerContext, V

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage


class Deserializers(NamedTuple):
    """Of a consumer's keys and values."""

    key: Deserializer[Any] = raw
    value: Deserializer[Any] = raw


RAW = Deserializers()


class Message(Generic[K, V]):
    """One record of a partition: topic, partition, offset, timestamp (ms), headers, key and value."""

    __slots__ = ("_deserializers", "_key", "_value", "is_done", "record")

    def __init__(self, record: "KafkaMessage", deserializers: Deserializers) -> None:
        self.record = record  # librdkafka's
        self._deserializers = deserializers
        self.is_done = False
        # _key and _value are set when they are first deserialized: making a message is what a fast loop costs.

    @classmethod
    def of(
        cls,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Headers | None = None,
        timestamp: int = NO_TIMESTAMP,
        deserializers: Deserializers = RAW,
    ) -> "Message[K, V]":
        """A message that no broker sent, for tests of handlers."""
        from confluent_kafka import TIMESTAMP_CREATE_TIME
        from confluent_kafka import Message as KafkaMessage

        stamp = (TIMESTAMP_CREATE_TIME, timestamp)
        record = KafkaMessage(topic, partition, offset, key, value, list(headers or ()), None, stamp)
        return cls(record, deserializers)

    @property
    def topic(self) -> str:
        return self.record.topic()  # type: ignore[return-value]  # None only in messages that are errors

    @property
    def partition(self) -> int:
        return self.record.partition()  # type: ignore[return-value]  # likewise

    @property
    def offset(self) -> Offset:
        return self.record.offset()  # type: ignore[return-value]  # likewise

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp(self) -> int:
        """Milliseconds since the Unix epoch; -1 if the record has none."""
        return self.record.timestamp()[1]

    @property
    def leader_epoch(self) -> int | None:
        return self.record.leader_epoch()

    @property
    def raw_key(self) -> bytes | None:
        return self.record.key()

    @property
    def raw_value(self) -> bytes | None:
        return self.record.value()

    @property
    def headers(self) -> Headers:
        return self.record.headers() or []  # type: ignore[return-value]  # a list when it comes from a broker

    @property
    def key(self) -> K:
        """The key; raises `DeserializationFailed` if it cannot be read."""
        deserializer: Any = self._deserializers.key
        if deserializer is raw:
            return self.record.key()  # type: ignore[return-value]  # K is bytes or None
        try:
            return self._key
        except AttributeError:
            self._key: K = self._deserialize(deserializer, self.record.key(), "key")
        return self._key

    @property
    def value(self) -> V:
        """The value; raises `DeserializationFailed` if it cannot be read."""
        deserializer: Any = self._deserializers.value
        if deserializer is raw:
            return self.record.value()  # type: ignore[return-value]  # V is bytes or None
        try:
            return self._value
        except AttributeError:
            self._value: V = self._deserialize(deserializer, self.record.value(), "value")
        return self._value

    @property
    def props(self) -> Mapping[str, str]:
        """The headers that are UTF-8 text, by name; the last one of a name."""
        found = {}
        for name, value in self.headers:
            try:
                found[name] = (value or b"").decode()
            except UnicodeDecodeError:
                continue
        return found

    def _deserialize(self, deserializer: Deserializer[Any], data: bytes | None, field: Any) -> Any:
        context = SerializerContext(self.topic, field, self.headers, None if field == "key" else self.raw_key)
        try:
            return deserializer(data, context)
        except ClientError:
            raise
        except Exception as error:  # a deserializer of the user's, or of another library
            reason = f"{type(error).__name__}: {error}"
            raise DeserializationFailed(field, self.topic_partition, self.offset, reason) from error

    def __repr__(self) -> str:
        return f"Message({self.topic}-{self.partition} offset {self.offset})"


class MessageBatch(Sequence[Message[K, V]]):
    """Messages that were taken together. Each is made when it is asked for, which is cheaper than to keep them all; if
    there is something to deserialize they are kept, so that this happens once.
    """

    __slots__ = ("_deserializers", "_kept", "records")

    def __init__(self, records: "list[KafkaMessage]", deserializers: Deserializers) -> None:
        self.records = records  # librdkafka's
        self._deserializers = deserializers
        self._kept: list[Message[K, V]] | None = None

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Message[K, V]]:
        if self._deserializers == RAW:
            return map(Message, self.records, repeat(self._deserializers))
        return iter(self._messages())

    @overload
    def __getitem__(self, index: int) -> Message[K, V]: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message[K, V]]: ...

    def __getitem__(self, index: int | slice) -> Message[K, V] | list[Message[K, V]]:
        if self._deserializers == RAW:
            found = self.records[index]
            return list(map(self._message, found)) if isinstance(found, list) else self._message(found)
        return self._messages()[index]

    def __repr__(self) -> str:
        return f"MessageBatch({len(self)} messages)"

    def _messages(self) -> list[Message[K, V]]:
        if self._kept is None:
            self._kept = list(map(self._message, self.records))
        return self._kept

    def _message(self, record: "KafkaMessage") -> Message[K, V]:
        return Message(record, self._deserializers)
