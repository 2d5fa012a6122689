"""Primitives of the message format: unsigned varints, tagged fields, and the errors of decoding and encoding.

Records have zigzag varints of their own (`varint`).
"""

from struct import error as struct_error
from typing import Final

from moldau.base.uuids import ZERO

ZERO_UUID: Final = ZERO  # Kafka's "no id"
MAX_STRING_BYTES: Final = 0x7FFF  # also in flexible versions, although their length could be larger
MAX_UVARINT_BYTES: Final = 5  # an unsigned 32-bit number, seven bits a byte

Buffer = bytes | bytearray | memoryview

# Raised by reading past the end: generated code leaves that check to Python.
SHORT_READ: Final = (struct_error, IndexError)


_ONE_BYTE: Final = [bytes((number,)) for number in range(0x80)]  # most counts and lengths


class MalformedMessage(ValueError):
    """Bytes that are not a message of the expected type and version."""


class Unencodable(ValueError):
    """A value that cannot be encoded in the requested version; an error of the program."""


def refuse_length(what: str, length: int) -> MalformedMessage:
    """The error of a length or count that is too large, negative, or -1 where null is not allowed."""
    wrong = "null is not allowed" if length == -1 else f"invalid length {length}"
    return MalformedMessage(f"{what}: {wrong}")


def uvarint(number: int) -> bytes:
    """An unsigned varint, least significant seven bits first."""
    if number < 0x80:
        return _ONE_BYTE[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at `position` and the position behind it; IndexError past the end (see SHORT_READ)."""
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else continue_uvarint(buffer, position + 1, first)


def continue_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """As `read_uvarint`, after a first byte that is not the last one."""
    number = first & 0x7F
    for shift in range(7, 7 * MAX_UVARINT_BYTES, 7):
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise MalformedMessage("a varint is longer than five bytes")


def skip_tags(buffer: Buffer, position: int, count: int) -> int:
    """The position behind `count` tagged fields (KIP-482: unknown ones are skipped)."""
    end = len(buffer)
    for _ in range(count):  # each takes two bytes at least, so a wrong count reaches the end
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise refuse_length("tagged field", size)
    return position
