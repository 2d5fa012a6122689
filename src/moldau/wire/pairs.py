"""Batches of keys and values with one timestamp: the records of coordinators. `records` has the general encoder."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from moldau.base.crc import crc32c
from moldau.wire.batch import CRC_POSITION, CRC_START, HEADER, HEADER_SIZE, MAGIC, PREFIX_SIZE
from moldau.wire.varint import write_varint

_CRC: Final = Struct(">I")
_NULL: Final = write_varint(-1)
_FRAME: Final = 3  # bytes of attributes, timestamp delta and the count of headers


def encode_pairs(
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    timestamp: int,
    *,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """One whole batch, uncompressed and without headers; the bytes are those of `records.encode_batch`."""
    parts: list[bytes] = [b""]  # the batch header
    body_size = 0
    for offset, (key, value) in enumerate(pairs):
        offset_delta = write_varint(offset)
        key_size = _NULL if key is None else write_varint(len(key))
        value_size = _NULL if value is None else write_varint(len(value))
        key, value = key or b"", value or b""
        size = _FRAME + len(offset_delta) + len(key_size) + len(key) + len(value_size) + len(value)
        packed_size = write_varint(size)
        body_size += len(packed_size) + size
        parts += (packed_size, b"\0\0", offset_delta, key_size, key, value_size, value, b"\0")
    count = len(pairs)
    parts[0] = HEADER.pack(
        0,
        HEADER_SIZE - PREFIX_SIZE + body_size,
        -1,
        MAGIC,
        0,
        attributes,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        -1,
        count,
    )
    batch = bytearray().join(parts)
    with memoryview(batch) as whole:
        _CRC.pack_into(batch, CRC_POSITION, crc32c(whole[CRC_START:]))
    return bytes(batch)
