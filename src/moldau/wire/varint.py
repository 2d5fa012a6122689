"""Zigzag varints of the record format. Messages have unsigned varints (`primitives`)."""

from typing import Final

from moldau.wire.compression import CorruptRecords
from moldau.wire.primitives import uvarint

INT32: Final = 32  # bits
INT64: Final = 64


def read_varint(data: bytes, position: int, bits: int = INT32) -> tuple[int, int]:
    """The value at `position` and the position behind it; IndexError where the data ends."""
    first = data[position]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        return (((first & 0x7F) >> 1) | second << 6) ^ -(first & 1), position + 2
    return _read(data, position, bits)


def _read(data: bytes, position: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise CorruptRecords(f"varint of more than {bits} bits")
    if value >> bits:
        raise CorruptRecords(f"varint of more than {bits} bits")
    return (value >> 1) ^ -(value & 1), position


def write_varint(value: int) -> bytes:
    """Encode `value`, which has at most 64 bits."""
    if -_CACHED <= value < _CACHED:
        return _CACHE[value]
    return _write(value)


def _write(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


# Most lengths and deltas are small. With negative indices one tuple serves both signs.
_CACHED: Final = 2048
_CACHE: Final = tuple(_write(value) for value in (*range(_CACHED), *range(-_CACHED, 0)))
