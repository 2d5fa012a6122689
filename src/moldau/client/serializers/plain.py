"""Serdes of single values, in the bytes of Java's serializers: bytes, text, numbers, UUIDs. JSON is in `models`."""

import operator
import struct
import uuid
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from moldau.client.serializers.port import SerializerContext

T = TypeVar("T")


class Plain(Generic[T]):
    """A Serde made of two functions that see neither null nor the context."""

    __slots__ = ("_decode", "_encode", "name")

    def __init__(self, name: str, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self.name = name
        self._encode = encode
        self._decode = decode

    def serialize(self, obj: T | None, ctx: SerializerContext, /) -> bytes | None:
        return None if obj is None else self._encode(obj)

    def deserialize(self, value: bytes | None, ctx: SerializerContext, /) -> T:
        return cast(T, None) if value is None else self._decode(value)

    def __repr__(self) -> str:
        return self.name


def expected(kind: str, obj: object) -> TypeError:
    return TypeError(f"expected {kind}, not {type(obj).__name__}")


def _bytes_out(obj: bytes | bytearray | memoryview) -> bytes:
    if isinstance(obj, bytes):
        return obj
    if isinstance(obj, bytearray | memoryview):
        return bytes(obj)
    raise expected("bytes", obj)


def _bytes_in(value: bytes) -> bytes:
    return value


def _text_out(obj: str) -> bytes:
    if not isinstance(obj, str):
        raise expected("str", obj)
    return obj.encode()


def _text_in(value: bytes) -> str:
    return value.decode()


def _whole(obj: int, size: int, name: str) -> bytes:
    if isinstance(obj, bool):
        raise expected("int", obj)
    try:
        return operator.index(obj).to_bytes(size, "big", signed=True)
    except OverflowError:
        raise ValueError(f"the number does not fit into the {size} bytes of {name}") from None
    except TypeError:
        raise expected("int", obj) from None


def _sized(value: bytes, size: int, name: str) -> bytes:
    if len(value) != size:
        raise ValueError(f"{name} has {size} bytes; these are {len(value)}")
    return value


def _long_out(obj: int) -> bytes:
    return _whole(obj, 8, "Java's Long")


def _long_in(value: bytes) -> int:
    return int.from_bytes(_sized(value, 8, "Java's Long"), "big", signed=True)


def _integer_out(obj: int) -> bytes:
    return _whole(obj, 4, "Java's Integer")


def _integer_in(value: bytes) -> int:
    return int.from_bytes(_sized(value, 4, "Java's Integer"), "big", signed=True)


_double = struct.Struct(">d")


def _double_out(obj: float) -> bytes:
    try:
        return _double.pack(obj)
    except struct.error:
        raise expected("float", obj) from None


def _double_in(value: bytes) -> float:
    (number,) = _double.unpack(_sized(value, 8, "Java's Double"))
    return cast(float, number)


def _uuid_out(obj: uuid.UUID) -> bytes:
    if not isinstance(obj, uuid.UUID):
        raise expected("UUID", obj)
    return str(obj).encode()


def _uuid_in(value: bytes) -> uuid.UUID:
    return uuid.UUID(value.decode())


BYTES: Plain[bytes] = Plain("BYTES", _bytes_out, _bytes_in)
STRING: Plain[str] = Plain("STRING", _text_out, _text_in)
LONG: Plain[int] = Plain("LONG", _long_out, _long_in)
INTEGER: Plain[int] = Plain("INTEGER", _integer_out, _integer_in)
DOUBLE: Plain[float] = Plain("DOUBLE", _double_out, _double_in)
UUID: Plain[uuid.UUID] = Plain("UUID", _uuid_out, _uuid_in)
