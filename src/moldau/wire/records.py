"""Records of a batch, format v2: decode, encode, search, recompress. Knows no files and no partitions.

A batch is a 61-byte header (`batch.py`) and a body, compressed or not, of records with offsets and timestamps relative
to the header. Every length is checked against the remaining bytes; a wrong one raises CorruptRecords.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from moldau.base.crc import crc32c
from moldau.base.ids import NO_TIMESTAMP
from moldau.wire.batch import (
    CODEC_MASK,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_SIZE,
    BatchHeader,
    checksum,
    read_header,
)
from moldau.wire.compression import Buffer, Codec, CorruptRecords, compress, decompress
from moldau.wire.varint import INT64, read_varint, write_varint

__all__ = [
    "ControlMarker",
    "ControlType",
    "CorruptRecords",
    "Found",
    "Header",
    "Record",
    "check_batch",
    "decode_control",
    "decode_records",
    "encode_batch",
    "find_first",
    "iter_records",
    "max_timestamp_record",
    "recompress",
    "seal",
]

SMALLEST_RECORD = 7  # length, attributes, two deltas, two lengths, header count: one byte each
NULL = 0x01  # the one byte of length -1
_CRC = Struct(">I")
_LEAST_INT64, _MOST_INT64 = -(1 << 63), (1 << 63) - 1

Header: TypeAlias = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. A header key that is not UTF-8 is kept with surrogate escapes, so that it is encoded unchanged."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Found(NamedTuple):
    """An offset and timestamp, as ListOffsets returns them."""

    offset: int
    timestamp: int


# ── decode ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_batch(batch: Buffer) -> BatchHeader:
    """The header of exactly one whole batch, after checking its format, size and checksum."""
    if len(batch) < HEADER_SIZE:
        raise CorruptRecords(f"a batch of {len(batch)} bytes is shorter than its header")
    header = read_header(batch)
    if header.magic != MAGIC:
        raise CorruptRecords(f"batch format {header.magic} is not supported, only {MAGIC}")
    if header.size != len(batch):
        raise CorruptRecords(f"the batch should have {header.size} bytes but has {len(batch)}")
    if checksum(batch) != header.crc:
        raise CorruptRecords(f"the checksum is {checksum(batch):#010x}, the batch has {header.crc:#010x}")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise CorruptRecords(
            f"negative record count {header.record_count} or last offset delta {header.last_offset_delta}"
        )
    return header


def decode_records(batch: Buffer, *, limit: int) -> list[Record]:
    """All records of one batch; its body may have at most `limit` bytes when decompressed."""
    return list(iter_records(batch, limit=limit))


def iter_records(batch: Buffer, *, limit: int) -> Iterator[Record]:
    """As `decode_records`, one at a time; some checks of the batch follow its last record."""
    header = check_batch(batch)
    return _walk(header, _body(header, batch, limit))


def _body(header: BatchHeader, batch: Buffer, limit: int) -> bytes:
    raw = memoryview(batch)[HEADER_SIZE:]
    if header.record_count == 0 and not raw:  # compaction keeps a producer's last sequence in such a header
        return b""
    body = decompress(header.codec, raw, limit) if header.codec else bytes(raw)
    if header.record_count * SMALLEST_RECORD > len(body):
        raise CorruptRecords(f"{len(body)} bytes cannot hold the {header.record_count} records of the batch")
    return body


def _walk(header: BatchHeader, body: bytes) -> Iterator[Record]:
    """The records of an uncompressed body. One-byte varints, by far the most frequent, are read inline.

    Positions only grow, so a wrong length ends in a wrong position or in an IndexError.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    last_delta, previous = header.last_offset_delta, -1
    make = tuple.__new__
    position = 0
    try:
        for number in range(1, header.record_count + 1):
            size, position = read_varint(body, position)
            end = position + size
            position += 1  # attributes of a record, which are unused

            delta = body[position]
            position += 1
            if delta < 0x80:
                delta = (delta >> 1) ^ -(delta & 1)
            else:
                delta, position = read_varint(body, position - 1, INT64)
            timestamp = base_timestamp + delta

            delta = body[position]
            position += 1
            if delta < 0x80:
                delta = (delta >> 1) ^ -(delta & 1)
            else:
                delta, position = read_varint(body, position - 1)
            if not previous < delta <= last_delta:
                raise CorruptRecords(f"offset delta {delta} after {previous}; the last of the batch is {last_delta}")
            previous = delta

            key: bytes | None = None
            if body[position] == NULL:
                position += 1
            else:
                key, position = _read_bytes(body, position)
            value, position = _read_bytes(body, position)
            headers: tuple[Header, ...] = ()
            if body[position]:
                headers, position = _read_headers(body, position, end)
            else:
                position += 1
            if position != end:
                raise CorruptRecords(f"record {number} of {size} bytes ends {position - end:+d} bytes from its end")
            if append_time is not None:
                timestamp = append_time
            elif not _LEAST_INT64 <= timestamp <= _MOST_INT64:
                raise CorruptRecords(f"timestamp {timestamp} does not fit 64 bits")
            yield make(Record, (base_offset + delta, timestamp, key, value, headers))
    except IndexError:
        raise CorruptRecords(f"the body ends inside record {number} of {header.record_count}") from None
    if position != len(body):
        raise CorruptRecords(f"{len(body) - position} bytes are left after {header.record_count} records")


def _read_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    first = body[position]
    if first < 0x80:
        size = (first >> 1) ^ -(first & 1)
        position += 1
    else:
        size, position = read_varint(body, position)
    if size < 0:
        if size != -1:
            raise CorruptRecords(f"negative length {size}")
        return None, position
    end = position + size
    return body[position:end], end


def _read_headers(body: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(body, position)
    left = max(0, end - position)
    if not 0 <= count <= left:
        raise CorruptRecords(f"{count} headers in a record with {left} bytes left")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position)
        if name is None:
            raise CorruptRecords("a record header without a key")
        value, position = _read_bytes(body, position)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


# ── encode ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    attributes: int = 0,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Encode one whole batch.

    `attributes` are the flags of `batch.py` without the codec. `last_offset` and `max_timestamp` are those of the
    records unless given: a compacted batch keeps its last offset, and with LOG_APPEND_TIME every record has
    `max_timestamp`.
    """
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    body = _encode_body(records, base_offset, base_timestamp)
    if codec and body:
        body = compress(codec, body, level)
    header = BatchHeader(
        base_offset=base_offset,
        length=HEADER_SIZE - PREFIX_SIZE + len(body),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes & ~CODEC_MASK | (codec if body else Codec.NONE),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal(header, body)


def seal(header: BatchHeader | tuple[int, ...], body: bytes) -> bytes:
    """Join header and body, and set the checksum."""
    head = bytearray(HEADER.pack(*header))
    _CRC.pack_into(head, CRC_POSITION, crc32c(body, crc32c(memoryview(head)[CRC_START:])))
    return bytes(head) + body


def _encode_body(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    parts: list[bytes] = []
    null = write_varint(-1)
    for offset, timestamp, key, value, headers in records:
        deltas = b"\x00" + write_varint(timestamp - base_timestamp) + write_varint(offset - base_offset)
        key_size = null if key is None else write_varint(len(key))
        value_size = null if value is None else write_varint(len(value))
        tail = _encode_headers(headers) if headers else b"\x00"
        key, value = key or b"", value or b""
        size = len(deltas) + len(key_size) + len(key) + len(value_size) + len(value) + len(tail)
        parts += (write_varint(size), deltas, key_size, key, value_size, value, tail)
    return b"".join(parts)


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [write_varint(len(headers))]
    for name, value in headers:
        raw = name.encode("utf-8", "surrogateescape")
        parts += (write_varint(len(raw)), raw)
        parts += (write_varint(-1),) if value is None else (write_varint(len(value)), value)
    return b"".join(parts)


def recompress(batch: Buffer, codec: int, level: int | None, limit: int) -> bytes:
    """Compress the records with another codec. In the header codec, length and checksum change."""
    header = check_batch(batch)
    body = _body(header, batch, limit)
    for _ in _walk(header, body):
        continue
    attributes = header.attributes & ~CODEC_MASK
    if body and codec:
        attributes |= codec
        body = compress(codec, body, level)
    return seal(header._replace(attributes=attributes, length=HEADER_SIZE - PREFIX_SIZE + len(body)), body)


# ── search ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def find_first(batch: Buffer, timestamp: int, *, limit: int) -> Found | None:
    """The first record at or after `timestamp`; None if the batch has none."""
    if len(batch) >= HEADER_SIZE and read_header(batch).max_timestamp < timestamp:
        return None
    for record in iter_records(batch, limit=limit):
        if record.timestamp >= timestamp:
            return Found(record.offset, record.timestamp)
    return None


def max_timestamp_record(batch: Buffer, *, limit: int) -> Found | None:
    """The first of the records with the latest timestamp; None if the batch is empty."""
    latest = max(iter_records(batch, limit=limit), key=lambda record: record.timestamp, default=None)
    return Found(latest.offset, latest.timestamp) if latest else None


# ── control records ─────────────────────────────────────────────────────────────────────────────────────────────────


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlMarker(NamedTuple):
    """A decoded control record; ABORT and COMMIT have the epoch of the transaction coordinator."""

    type: ControlType | int  # an int for an unknown type
    coordinator_epoch: int | None


_CONTROL_KEY = Struct(">hh")  # version, type
_END_OF_TRANSACTION = Struct(">hi")  # version, coordinator epoch


def decode_control(record: Record) -> ControlMarker:
    """Decode a record of a control batch (KIP-98)."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptRecords(f"the control record at offset {record.offset} has an incomplete key")
    _, number = _CONTROL_KEY.unpack_from(record.key)
    kind = ControlType(number) if number in tuple(ControlType) else number
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlMarker(kind, None)
    if record.value is None or len(record.value) < _END_OF_TRANSACTION.size:
        raise CorruptRecords(f"the transaction marker at offset {record.offset} has an incomplete value")
    return ControlMarker(kind, _END_OF_TRANSACTION.unpack_from(record.value)[1])
