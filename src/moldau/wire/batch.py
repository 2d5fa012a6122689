"""The header of a record batch, format v2. Knows nothing of the records behind it.

The checksum covers all bytes from `attributes` on. Base offset and leader epoch lie before it, so a broker assigns them
without a new checksum.
"""

from struct import Struct
from typing import Final, NamedTuple

from moldau.base.crc import crc32c

MAGIC: Final = 2
HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size  # 61
PREFIX_SIZE: Final = 12  # base offset and length, which `length` does not include
ASSIGNED: Final = Struct(">qii")  # base offset, length, leader epoch: assigned by the broker
ASSIGNED_SIZE: Final = ASSIGNED.size  # 16
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21  # the first byte that the checksum covers

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def dense(self) -> bool:
        """Whether no offset is missing; compaction removes some."""
        return self.record_count == self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`, where the caller has checked that there are 61 bytes."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def checksum(batch: bytes | bytearray | memoryview) -> int:
    """CRC-32C of one whole batch, to compare with its `crc` field."""
    return crc32c(memoryview(batch)[CRC_START:])
