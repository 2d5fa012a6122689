"""The port of serializers: what turns a key or a value into bytes, and back.

The signatures are those of Confluent's serializers: `AvroSerializer` and its siblings fit as they are.
"""

import dataclasses
from typing import Literal, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

Headers: TypeAlias = list[tuple[str, bytes | None]]


@dataclasses.dataclass(slots=True)
class SerializerContext:
    """Where a key or value goes to, or comes from. A serializer may add headers; a deserializer reads them."""

    topic: str
    field: Literal["key", "value"]
    headers: Headers = dataclasses.field(default_factory=list)
    key: bytes | None = None  # of the record, when its value is serialized or deserialized


class Serializer(Protocol[T_contra]):
    def __call__(self, obj: T_contra, ctx: SerializerContext, /) -> bytes | None: ...


class Deserializer(Protocol[T_co]):
    def __call__(self, value: bytes | None, ctx: SerializerContext, /) -> T_co: ...


class Serde(Protocol[T]):
    """Both directions of one format."""

    def serialize(self, obj: T, ctx: SerializerContext, /) -> bytes | None: ...

    def deserialize(self, value: bytes | None, ctx: SerializerContext, /) -> T: ...
