"""What compiled codecs and headers stand on: variable-length integers, tag sections, and the ways bytes can be wrong.

Not the codecs themselves (`codec`), and nothing of record batches, which bring their own zigzag varints.
"""

from struct import error as struct_error

from moldau.base.uuids import ZERO

ZERO_UUID = ZERO  # Kafka's "no id"
MAX_STRING_BYTES = 0x7FFF  # also in flexible versions, whose length prefix could say more
MAX_UVARINT_BYTES = 5  # an unsigned 32-bit number, seven bits a byte

Buffer = bytes | bytearray | memoryview

# What reading past the end raises in generated code, which leaves those checks to Python.
SHORT_READ = (struct_error, IndexError)


class MalformedMessage(ValueError):
    """The bytes are not a message of this kind and version. The peer is broken; nothing was guessed."""


class Unencodable(ValueError):
    """The value cannot be said in this version: the program asks for what the wire does not have."""


def refuse_length(what: str, length: int) -> MalformedMessage:
    """For a length or count beyond the bytes that are there, a negative one, or -1 where null is not allowed."""
    wrong = "null is not allowed" if length == -1 else f"a length of {length} cannot be"
    return MalformedMessage(f"{what}: {wrong}")


def uvarint(number: int) -> bytes:
    """An unsigned varint, least significant seven bits first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at `position` and the position behind it. Past the end it is an IndexError, as all of SHORT_READ."""
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else continue_uvarint(buffer, position + 1, first)


def continue_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, already taken, said that there is more."""
    number = first & 0x7F
    for shift in range(7, 7 * MAX_UVARINT_BYTES, 7):
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise MalformedMessage("a varint is longer than five bytes")


def skip_tags(buffer: Buffer, position: int, count: int) -> int:
    """The position behind `count` tagged fields that this version does not know (KIP-482: skipped, never an error)."""
    end = len(buffer)
    for _ in range(count):  # each takes two bytes at least, so a false count runs into the end
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise refuse_length("tagged field", size)
    return position
