"""The port of serializers: what turns a key or a value into bytes, and back.

The signatures are those of Confluent's serializers: `AvroSerializer` and its siblings fit as they are.

A producer serializes the key first, then the value with that key in its context. A serializer that does not take an
object, or bytes, raises any exception; the client adds topic, partition and offset to it. None is a record's null key
or value (a tombstone): the serializers here turn None into null and null into None, whatever their type.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

# Of keys and values: bytes or null unless the user says more. Python 3.11 has no defaults (PEP 696); checkers have.
if TYPE_CHECKING:
    import typing_extensions

    K = typing_extensions.TypeVar("K", default=bytes | None)
    V = typing_extensions.TypeVar("V", default=bytes | None)
else:
    K = TypeVar("K")
    V = TypeVar("V")

Headers: TypeAlias = list[tuple[str, bytes | None]]


@dataclasses.dataclass(slots=True)
class SerializerContext:
    """Where a key or value goes to, or comes from. A serializer may add headers; a deserializer reads them."""

    topic: str
    field: Literal["key", "value"]
    headers: Headers = dataclasses.field(default_factory=list)
    key: bytes | None = None  # of the record, when its value is serialized or deserialized


# ctx is a SerializerContext; Confluent's serializers declare a class of their own, with the same attributes.
class Serializer(Protocol[T_contra]):
    def __call__(self, obj: T_contra, ctx: Any, /) -> bytes | None: ...


class Deserializer(Protocol[T_co]):
    def __call__(self, value: bytes | None, ctx: Any, /) -> T_co: ...


@runtime_checkable
class Serde(Protocol[T]):
    """Both directions of one format."""

    def serialize(self, obj: T, ctx: SerializerContext, /) -> bytes | None: ...

    def deserialize(self, value: bytes | None, ctx: SerializerContext, /) -> T: ...


# What users may say of a key or value: its type, or the object that converts it.
SerializerKind: TypeAlias = type[T] | Serde[T] | Serializer[T]
DeserializerKind: TypeAlias = type[T] | Serde[T] | Deserializer[T]
