"""Transaction markers: the control batches that end a producer's transaction with a partition (KIP-98)."""

from struct import Struct
from typing import NamedTuple

from moldau.base.crc import crc32c
from moldau.wire.batch import CONTROL, CRC_POSITION, CRC_START, HEADER, HEADER_SIZE, MAGIC, PREFIX_SIZE, TRANSACTIONAL
from moldau.wire.compression import CorruptRecords
from moldau.wire.varint import INT64, read_varint

ABORT, COMMIT = 0, 1
_CRC = Struct(">I")
# The one record of a marker always has the same layout: length 16, no attributes, no deltas, a key of version and
# kind, a value of version and coordinator epoch, no headers.
_RECORD = Struct(">5shhchi1s")
_RECORD_HEAD = b"\x20\0\0\0\x08"
_VALUE_LENGTH = b"\x0c"
_LENGTH = HEADER_SIZE - PREFIX_SIZE + _RECORD.size


class Marker(NamedTuple):
    commit: bool
    coordinator_epoch: int


def encode_marker(producer_id: int, producer_epoch: int, marker: Marker, now: int) -> bytes:
    """The control batch as Kafka writes it."""
    kind = COMMIT if marker.commit else ABORT
    record = _RECORD.pack(_RECORD_HEAD, 0, kind, _VALUE_LENGTH, 0, marker.coordinator_epoch, b"\0")
    flags = TRANSACTIONAL | CONTROL
    head = HEADER.pack(0, _LENGTH, -1, MAGIC, 0, flags, 0, now, now, producer_id, producer_epoch, -1, 1)
    batch = bytearray(head + record)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def read_marker(batch: bytes) -> Marker | None:
    """The outcome in an end-of-transaction marker; None for other control batches and empty ones."""
    if not HEADER.unpack_from(batch)[12]:
        return None
    try:
        position = HEADER_SIZE
        _, position = read_varint(batch, position)  # length
        position += 1  # attributes
        _, position = read_varint(batch, position, INT64)  # timestamp delta
        _, position = read_varint(batch, position)  # offset delta
        key_length, position = read_varint(batch, position)
        kind = int.from_bytes(batch[position + 2 : position + 4])
        position += key_length
        value_length, position = read_varint(batch, position)
    except (IndexError, CorruptRecords):
        return None
    if key_length < 4 or kind not in (ABORT, COMMIT) or value_length < 6 or position + 6 > len(batch):
        return None
    return Marker(kind == COMMIT, int.from_bytes(batch[position + 2 : position + 6], signed=True))
