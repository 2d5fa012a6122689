"""The package as type checkers see it: the names that `exports` loads on first use."""

from moldau import compiled as compiled
from moldau.base.ids import TopicPartition
from moldau.client import serializers
from moldau.client.consumer.aio import AsyncConsumer, AsyncRebalanceListener
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.rebalances import RebalanceListener
from moldau.client.consumer.retries import Backoff, Retry
from moldau.client.errors import (
    Aborted,
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
    RecordTooLarge,
    SerializationFailed,
    TimedOut,
    UnknownTopicOrPartition,
)
from moldau.client.interceptors import ConsumerInterceptor, OutgoingRecord, ProducerInterceptor
from moldau.client.message import Message
from moldau.client.producer.aio import AsyncProducer
from moldau.client.producer.delivery import AsyncDelivery, Delivered, Delivery, DeliveryBatch
from moldau.client.producer.producer import Producer
from moldau.client.serializers.encryption import DecryptionFailed, Encrypted
from moldau.client.serializers.keys import KeyDirectory, KeyProvider, Keys, KeyUnknown
from moldau.client.serializers.port import Serde, SerializerContext

__all__ = [
    "Aborted",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncRebalanceListener",
    "AuthenticationFailed",
    "Backoff",
    "BufferFull",
    "ClientError",
    "Closed",
    "Consumer",
    "ConsumerInterceptor",
    "DecryptionFailed",
    "Delivered",
    "Delivery",
    "DeliveryBatch",
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
    "OffsetAndMetadata",
    "OutgoingRecord",
    "Producer",
    "ProducerInterceptor",
    "RebalanceListener",
    "RecordTooLarge",
    "Retry",
    "Serde",
    "SerializationFailed",
    "SerializerContext",
    "TimedOut",
    "TopicPartition",
    "UnknownTopicOrPartition",
    "serializers",
]

__version__: str
