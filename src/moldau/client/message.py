"""A record as a consumer gets it. Key and value are deserialized when they are first read."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from moldau.base.ids import Offset, TopicPartition
from moldau.client.errors import ClientError, DeserializationFailed
from moldau.client.serializers.port import Deserializer, Headers, SerializerContext

K = TypeVar("K")
V = TypeVar("V")

_UNREAD: Any = object()


class Message(Generic[K, V]):
    """One record of a partition: topic, partition, offset, timestamp (ms), headers, key and value."""

    __slots__ = (
        "_key",
        "_key_deserializer",
        "_value",
        "_value_deserializer",
        "headers",
        "leader_epoch",
        "offset",
        "partition",
        "raw_key",
        "raw_value",
        "timestamp",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        timestamp: int,
        raw_key: bytes | None,
        raw_value: bytes | None,
        headers: Headers,
        key_deserializer: Deserializer[K],
        value_deserializer: Deserializer[V],
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.raw_key = raw_key
        self.raw_value = raw_value
        self.headers = headers
        self.leader_epoch = leader_epoch
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._key: K = _UNREAD
        self._value: V = _UNREAD

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> K:
        """The key; raises `DeserializationFailed` if it cannot be read."""
        if self._key is _UNREAD:
            self._key = self._deserialize(self._key_deserializer, self.raw_key, "key")
        return self._key

    @property
    def value(self) -> V:
        """The value; raises `DeserializationFailed` if it cannot be read."""
        if self._value is _UNREAD:
            self._value = self._deserialize(self._value_deserializer, self.raw_value, "value")
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

    def _deserialize(self, deserializer: Deserializer[Any], raw: bytes | None, field: Any) -> Any:
        context = SerializerContext(self.topic, field, self.headers, None if field == "key" else self.raw_key)
        try:
            return deserializer(raw, context)
        except ClientError:
            raise
        except Exception as error:  # a deserializer of the user's, or of another library
            reason = f"{type(error).__name__}: {error}"
            raise DeserializationFailed(field, self.topic_partition, self.offset, reason) from error

    def __repr__(self) -> str:
        return f"Message({self.topic}-{self.partition} offset {self.offset})"
