"""Keys and byte spans of the records in a batch's body, without copying more than keys.

These loops run for every record of a compacted log, so varints of one byte are read inline and unneeded fields are
skipped. The caller has checked the batch's checksum; malformed records raise CorruptRecords.
"""

from hashlib import blake2b
from typing import NamedTuple

from moldau.wire.batch import HEADER_SIZE, BatchHeader
from moldau.wire.compression import CorruptRecords, decompress
from moldau.wire.varint import INT64, read_varint, write_varint

LARGEST_BODY = 256 * 1024 * 1024  # bytes of one batch's records, uncompressed
NULL = 0x01  # the one byte of length -1


class RecordSpan(NamedTuple):
    """A record: its bytes in the body, and the fields that compaction needs."""

    start: int
    end: int
    time_delta: int
    offset_delta: int
    key: bytes | None  # as in `read_keys`
    tombstone: bool


def body_of(header: BatchHeader, batch: memoryview) -> bytes:
    """The uncompressed records of a batch."""
    raw = batch[HEADER_SIZE:]
    return decompress(header.codec, raw, LARGEST_BODY) if header.codec else bytes(raw)


def read_keys(body: bytes, count: int) -> tuple[list[bytes | None], bool]:
    """The keys of all records, in order, and whether one of them is a tombstone.

    A key of 64 bytes or more is its digest, which no shorter key can equal.
    """
    keys: list[bytes | None] = []
    add = keys.append
    tombstones = False
    position = 0
    try:
        for _ in range(count):
            size = body[position]
            if size < 0x80:
                position += 2  # and attributes
                end = position + (size >> 1) - 1
            else:
                more = body[position + 1]
                if more < 0x80:
                    position += 3
                    end = position + ((size & 0x7F | more << 7) >> 1) - 1
                else:
                    size, position = read_varint(body, position)
                    end = position + size
                    position += 1
            while body[position] > 0x7F:  # timestamp delta
                position += 1
            position += 1
            while body[position] > 0x7F:  # offset delta
                position += 1
            size = body[position + 1]
            position += 2
            if size == NULL:
                key = None
            elif size < 0x80:
                start = position
                position += size >> 1
                key = body[start:position]
            else:
                key, position = _digest(body, position - 1, end)
            add(key)
            if body[position] == NULL:
                tombstones = True
            position = end
    except IndexError:
        raise CorruptRecords(f"the body ends inside one of {count} records") from None
    if position != len(body):
        raise CorruptRecords(f"{count} records end at {position} of {len(body)} bytes")
    return keys, tombstones


def read_spans(body: bytes, count: int) -> list[RecordSpan]:
    """All records, in order."""
    spans: list[RecordSpan] = []
    position = 0
    try:
        for _ in range(count):
            span = _span(body, position)
            spans.append(span)
            position = span.end
    except IndexError:
        raise CorruptRecords(f"the body ends inside one of {count} records") from None
    if position != len(body):
        raise CorruptRecords(f"{count} records end at {position} of {len(body)} bytes")
    return spans


def pick_spans(body: bytes, wanted: list[int], *, tombstones: bool) -> list[RecordSpan]:
    """Some of the records, by their numbers, in ascending order. The others are skipped.

    The spans have no keys, and are marked as tombstones only if there may be `tombstones`.
    """
    spans: list[RecordSpan] = []
    add, make = spans.append, tuple.__new__
    position = number = 0
    try:
        for want in wanted:
            while True:
                start = position
                size = body[position]
                if size < 0x80:
                    position += 1
                    end = position + (size >> 1)
                else:
                    more = body[position + 1]
                    if more < 0x80:
                        position += 2
                        end = position + ((size & 0x7F | more << 7) >> 1)
                    else:
                        size, position = read_varint(body, position)
                        end = position + size
                number += 1
                if number > want:
                    break
                position = end
            if tombstones:
                add(_span(body, start))
            else:
                time = body[position + 1]  # after the attributes
                time = (time >> 1) ^ -(time & 1) if time < 0x80 else read_varint(body, position + 1, INT64)[0]
                add(make(RecordSpan, (start, end, time, want, None, False)))
            position = end
    except IndexError:
        raise CorruptRecords("the body ends inside a record") from None
    if position > len(body):
        raise CorruptRecords(f"a record ends at {position} of {len(body)} bytes")
    return spans


def _span(body: bytes, start: int) -> RecordSpan:
    """The record that begins at `start`."""
    size, position = read_varint(body, start)
    end = position + size
    position += 1  # attributes
    time = body[position]
    position += 1
    if time < 0x80:
        time = (time >> 1) ^ -(time & 1)
    else:
        time, position = read_varint(body, position - 1, INT64)
    delta = body[position]
    position += 1
    if delta < 0x80:
        delta >>= 1
    else:
        delta, position = read_varint(body, position - 1)
    size = body[position]
    position += 1
    key: bytes | None = None
    if size >= 0x80:
        key, position = _digest(body, position - 1, end)
    elif size != NULL:
        size >>= 1
        key = body[position : position + size]
        position += size
    if not start < position < end <= len(body):
        raise CorruptRecords(f"a record from {start} to {end} with a key up to {position}")
    return tuple.__new__(RecordSpan, (start, end, time, delta, key, body[position] == NULL))


def _digest(body: bytes, position: int, end: int) -> tuple[bytes, int]:
    """The digest of a long key with its length at `position`, and the position after it."""
    size, position = read_varint(body, position)
    if size < 0 or position + size > end:
        raise CorruptRecords(f"a key of {size} bytes at {position} in a record that ends at {end}")
    return blake2b(memoryview(body)[position : position + size]).digest(), position + size


def moved_in_time(body: bytes, span: RecordSpan, shift: int) -> bytes:
    """The record with `shift` subtracted from its timestamp delta: the base timestamp has grown by it."""
    _, position = read_varint(body, span.start)
    _, behind = read_varint(body, position + 1, INT64)
    record = body[position : position + 1] + write_varint(span.time_delta - shift) + body[behind : span.end]
    return write_varint(len(record)) + record
