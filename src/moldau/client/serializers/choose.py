"""Which serializer a key or value gets: by what the user said of it, else by the type of each value."""

import dataclasses
import inspect
import types
import uuid
from collections.abc import Callable
from typing import Any, TypeVar, get_origin

from moldau.client.errors import InvalidUse
from moldau.client.serializers.models import Model
from moldau.client.serializers.plain import BYTES, DOUBLE, LONG, STRING, UUID, Plain
from moldau.client.serializers.port import (
    Deserializer,
    DeserializerKind,
    Serde,
    Serializer,
    SerializerContext,
    SerializerKind,
)
from moldau.client.serializers.scalars import Unsupported

T = TypeVar("T")

PLAIN: dict[object, Plain[Any]] = {bytes: BYTES, str: STRING, int: LONG, float: DOUBLE, uuid.UUID: UUID}
MOST_TYPES = 1024  # of values, whose serializers AUTO remembers


def serializer_for(kind: SerializerKind[T] | None = None) -> Serializer[T]:
    """The serializer of a type, a Serde, or a function of (object, context); None: by the type of each value."""
    if kind is None:
        return auto
    serde = _serde_of(kind)
    return _function(kind, "serializer") if serde is None else serde.serialize


def deserializer_for(kind: DeserializerKind[T] | None = None) -> Deserializer[T]:
    """The deserializer of a type, a Serde, or a function of (bytes, context); None: the bytes as they are."""
    if kind is None or kind is bytes:
        return raw
    serde = _serde_of(kind)
    return _function(kind, "deserializer") if serde is None else serde.deserialize


def auto(obj: Any, ctx: SerializerContext, /) -> bytes | None:
    """bytes as they are, str as UTF-8, int as Java's Long, float as its Double, UUID as text, all else as JSON."""
    kind = type(obj)
    if kind is bytes or obj is None:
        return obj  # type: ignore[no-any-return]  # a cast would be a call
    serializer = _remembered.get(kind) or _remember(kind)
    return serializer(obj, ctx)


def raw(value: bytes | None, ctx: SerializerContext, /) -> Any:
    """The bytes as they are; None for null."""
    return value


_remembered: dict[type, Serializer[Any]] = {bytearray: BYTES.serialize, memoryview: BYTES.serialize}


def _remember(kind: type) -> Serializer[Any]:
    try:
        serializer = serde_of_type(kind).serialize
    except Unsupported as error:
        raise TypeError(f"{error}; or give the producer a serializer") from None
    if len(_remembered) < MOST_TYPES:
        _remembered[kind] = serializer
    return serializer


def serde_of_type(kind: Any) -> Serde[Any]:
    """The Serde of a type: plain ones in Java's formats, all others as JSON."""
    return PLAIN.get(kind) or Model(kind)


def _serde_of(kind: object) -> Serde[Any] | None:
    """The Serde that `kind` is or that its type has; None if it is a function."""
    if _is_type(kind):
        if isinstance(kind, type) and (callable(getattr(kind, "serialize", None)) or _makes_functions(kind)):
            raise InvalidUse(f"{kind.__name__} is the class of a serializer: pass an object of it, {kind.__name__}(…)")
        try:
            return serde_of_type(kind)
        except Unsupported as error:
            raise InvalidUse(f"{error}; or pass a serializer: a function of (value, context)") from None
    return kind if isinstance(kind, Serde) else None


def _is_type(kind: object) -> bool:
    return isinstance(kind, type | types.UnionType) or get_origin(kind) is not None or kind is Any


def _makes_functions(kind: type) -> bool:
    return any("__call__" in vars(base) for base in kind.__mro__) and not dataclasses.is_dataclass(kind)


def _function(kind: object, role: str) -> Callable[..., Any]:
    if not callable(kind):
        raise InvalidUse(f"{kind!r} is no {role}: pass a type, a Serde, or a function of (value, context)")
    try:
        inspect.signature(kind).bind(None, None)
    except TypeError:
        raise InvalidUse(f"the {role} {kind!r} must take two arguments: (value, context)") from None
    except ValueError:  # a function in C that does not tell its signature
        return kind
    return kind
