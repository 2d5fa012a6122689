"""A record as a consumer gets it. Everything is read from librdkafka's message when it is first asked for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from moldau.base.ids import NO_TIMESTAMP, Offset, TopicPartition
from moldau.client.errors import ClientError, DeserializationFailed
from moldau.client.serializers.choose import raw
from moldau.client.serializers.port import Deserializer, Headers, K, SerializerContext, V

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

_UNREAD: Any = object()


class Deserializers(NamedTuple):
    """Of a consumer's keys and values."""

    key: Deserializer[Any] = raw
    value: Deserializer[Any] = raw


class Message(Generic[K, V]):
    """One record of a partition: topic, partition, offset, timestamp (ms), headers, key and value."""

    __slots__ = ("_deserializers", "_key", "_value", "is_done", "record")

    def __init__(self, record: "KafkaMessage", deserializers: Deserializers) -> None:
        self.record = record  # librdkafka's
        self._deserializers = deserializers
        self._key: K = _UNREAD
        self._value: V = _UNREAD
        self.is_done = False

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
        deserializers: Deserializers = Deserializers(),  # noqa: B008  # an immutable value
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
        if self._key is _UNREAD:
            self._key = self._deserialize(self._deserializers.key, self.record.key(), "key")
        return self._key

    @property
    def value(self) -> V:
        """The value; raises `DeserializationFailed` if it cannot be read."""
        if self._value is _UNREAD:
            deserializer = self._deserializers.value
            data: Any = self.record.value()
            self._value = data if deserializer is raw else self._deserialize(deserializer, data, "value")
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
        if deserializer is raw:
            return data
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
