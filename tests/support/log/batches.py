"""Record batches encoded and decoded without the broker's own code, so that tests can check that code.

A test can corrupt any field: counts, checksum, control bits, magic.
"""

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cramjam
from crc32c import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
PREFIX = struct.Struct(">qi")  # base offset, length
AFTER_CRC = struct.Struct(">hiqqqhii")
HEADER_SIZE = 61


def lz4(data: bytes) -> bytes:
    """Compress with independent blocks: Kafka's Java code rejects linked ones."""
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


COMPRESS: dict[int, Callable[[bytes], Any]] = {  # what they return becomes bytes
    NONE: bytes,
    GZIP: cramjam.gzip.compress,
    SNAPPY: cramjam.snappy.compress_raw,
    LZ4: lz4,
    ZSTD: cramjam.zstd.compress,
}


@dataclass(frozen=True)
class Written:
    """One record to write."""

    value: bytes | None = b""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_delta: int = 0


@dataclass(frozen=True)
class Stored:
    """The header of one batch in a file or a fetch response."""

    base_offset: int
    size: int
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
    count: int
    raw: bytes = field(repr=False)

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def crc_is_right(self) -> bool:
        return crc32c(self.raw[21:]) == self.crc


class Producer(NamedTuple):
    """Producer id and epoch of an idempotent producer's batches."""

    id: int = -1
    epoch: int = -1


NOBODY = Producer()


def varint(value: int) -> bytes:
    """Zigzag variable-length integer."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Written, delta: int) -> bytes:
    headers = b"".join(sized(name.encode()) + sized(value) for name, value in record.headers)
    times = varint(record.timestamp_delta) + varint(delta)
    body = b"\0" + times + sized(record.key) + sized(record.value) + varint(len(record.headers)) + headers
    return varint(len(body)) + body


def batch(
    *records: Written,
    codec: int = NONE,
    producer: Producer = NOBODY,
    sequence: int = -1,
    timestamp: int | None = None,
    attributes: int = 0,
    magic: int = 2,
    **spoiled: int,
) -> bytes:
    """One batch; `spoiled` may replace count, last_offset_delta, crc or max_timestamp with wrong values."""
    written = records or (Written(b"value"),)
    now = int(time.time() * 1000) if timestamp is None else timestamp
    payload = b"".join(encode_record(record, delta) for delta, record in enumerate(written))
    after = AFTER_CRC.pack(
        attributes | codec,
        spoiled.get("last_offset_delta", len(written) - 1),
        now,
        spoiled.get("max_timestamp", now + max(record.timestamp_delta for record in written)),
        producer.id,
        producer.epoch,
        sequence,
        spoiled.get("count", len(written)),
    ) + bytes(COMPRESS[codec](payload))
    head = struct.pack(">ibI", -1, magic, spoiled.get("crc", crc32c(after)))
    return PREFIX.pack(0, len(head) + len(after)) + head + after


def read_batches(data: bytes) -> list[Stored]:
    """Every complete batch in `data`; a truncated one at the end is ignored, as consumers do."""
    found, position = [], 0
    while len(data) - position >= HEADER_SIZE:
        base_offset, length = PREFIX.unpack_from(data, position)
        end = position + PREFIX.size + length
        if length < HEADER_SIZE - PREFIX.size or end > len(data):
            break
        raw = data[position:end]
        epoch, magic, crc = struct.unpack_from(">ibI", raw, PREFIX.size)
        found.append(Stored(base_offset, len(raw), epoch, magic, crc, *AFTER_CRC.unpack_from(raw, 21), raw))  # type: ignore[call-arg]
        position = end
    return found


def plain_values(stored: Stored) -> list[bytes | None]:
    """The values in an uncompressed batch."""
    assert stored.codec == NONE
    data, position, values = stored.raw, HEADER_SIZE, []
    for _ in range(stored.count):
        _, position = read_varint(data, position)
        position += 1
        for _ in range(2):
            _, position = read_varint(data, position)
        _, position = read_sized(data, position)
        value, position = read_sized(data, position)
        values.append(value)
        headers, position = read_varint(data, position)
        for _ in range(headers * 2):
            _, position = read_sized(data, position)
    return values


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position


def read_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    return (None, position) if length < 0 else (data[position : position + length], position + length)
