"""The client's names, importable from `moldau` itself: a module is loaded when one of its names is first asked for.

The command line imports `moldau`, and must not load librdkafka. `__init__.pyi` tells type checkers the same names.
"""

import importlib
import sys

MODULES = {
    "moldau.base.ids": ("TopicPartition",),
    "moldau.client": ("serializers",),
    "moldau.client.consumer.aio": ("AsyncConsumer", "AsyncRebalanceListener"),
    "moldau.client.consumer.commits": ("OffsetAndMetadata",),
    "moldau.client.consumer.consumer": ("Consumer",),
    "moldau.client.consumer.rebalances": ("RebalanceListener",),
    "moldau.client.consumer.retries": ("Backoff", "Retry"),
    "moldau.client.errors": (
        "Aborted",
        "AuthenticationFailed",
        "BufferFull",
        "ClientError",
        "Closed",
        "DeliveryFailed",
        "DeserializationFailed",
        "Fenced",
        "InvalidUse",
        "KafkaFailure",
        "NotAuthorized",
        "RecordTooLarge",
        "SerializationFailed",
        "TimedOut",
        "UnknownTopicOrPartition",
    ),
    "moldau.client.interceptors": ("ConsumerInterceptor", "OutgoingRecord", "ProducerInterceptor"),
    "moldau.client.message": ("Message",),
    "moldau.client.producer.aio": ("AsyncProducer",),
    "moldau.client.producer.delivery": ("AsyncDelivery", "Delivered", "Delivery", "DeliveryBatch"),
    "moldau.client.producer.producer": ("Producer",),
    "moldau.client.serializers.encryption": ("DecryptionFailed", "Encrypted"),
    "moldau.client.serializers.keys": ("KeyDirectory", "KeyProvider", "KeyUnknown", "Keys"),
    "moldau.client.serializers.port": ("Serde", "SerializerContext"),
}
NAMES = {name: module for module, names in MODULES.items() for name in names}
__all__ = [*NAMES]  # of the package


def __getattr__(name: str) -> object:
    """Of the package, too (PEP 562)."""
    module = NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'moldau' has no attribute {name!r}")
    loaded = importlib.import_module(module)
    found: object = getattr(loaded, name, None) or importlib.import_module(f"{module}.{name}")
    setattr(sys.modules["moldau"], name, found)  # the next time it is found at once
    return found


def __dir__() -> list[str]:
    return sorted({*vars(sys.modules["moldau"]), *NAMES})
