"""The package as type checkers see it: the names that `exports` loads on first use."""

from moldau import compiled as compiled
from moldau.base.ids import TopicPartition
from moldau.client import serializers
from moldau.client.errors import (
    AuthenticationFailed,
    BufferFull,
    ClientError,
    Closed,
    DeliveryFailed,
    DeserializationFailed,
    Fenced,
    InvalidUse,
    KafkaFailure,
    NotAuthorized,
    SerializationFailed,
    TimedOut,
)
from moldau.client.message import Message
from moldau.client.serializers.encryption import DecryptionFailed, Encrypted
from moldau.client.serializers.keys import KeyDirectory, KeyProvider, Keys, KeyUnknown
from moldau.client.serializers.port import Serde, SerializerContext

__all__ = [
    "AuthenticationFailed",
    "BufferFull",
    "ClientError",
    "Closed",
    "DecryptionFailed",
    "DeliveryFailed",
    "DeserializationFailed",
    "Encrypted",
    "Fenced",
    "InvalidUse",
    "KafkaFailure",
    "KeyDirectory",
    "KeyProvider",
    "KeyUnknown",
    "Keys",
    "Message",
    "NotAuthorized",
    "Serde",
    "SerializationFailed",
    "SerializerContext",
    "TimedOut",
    "TopicPartition",
    "serializers",
]

__version__: str
