"""Records of batches in bulk: decoded into columns, encoded from columns. The one file that knows aiokafka.

`aiokafka.record._crecords` is compiled and many times faster than Python, but private: its version is pinned, and
nothing else imports it. Checksums and compression are `wire`'s own, which stop at a limit and know every framing
that clients write. What the compiled classes cannot do (header names that are not UTF-8, negative timestamps) is
done by `wire.records`, slowly and rightly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from moldau.wire.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_SIZE,
    TRANSACTIONAL,
    BatchHeader,
)
from moldau.wire.compression import Buffer, Codec, CorruptRecords, compress, decompress
from moldau.wire.records import Header, Record, check_batch, encode_batch, iter_records, seal

try:
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder
except ImportError as missing:
    raise ImportError(
        "reading and writing records in bulk needs aiokafka 0.14.0 with its compiled record classes: "
        "pip install 'moldau[spark]'"
    ) from missing

BATCH_BYTES: Final = 512 * 1024  # of a batch before compression: half of what topics accept by default
DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024  # one batch may have so much: a limit against bombs

Headers = Sequence[Header]


@dataclass(slots=True)
class Columns:
    """Records, column by column. `headers` is empty if nobody asked for them."""

    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    timestamp_types: list[int] = field(default_factory=list)  # 0: when created, 1: when appended
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)


# ── decode ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode(
    batches: Iterable[Buffer],
    *,
    start: int = 0,
    end: int | None = None,
    headers: bool = True,
    checked: bool = False,
    limit: int = DECOMPRESSED_BYTES,
) -> Columns:
    """The records of whole batches whose offsets are in [start, end). CorruptRecords if a batch is broken.

    `checked` says that somebody has looked at the checksums already.
    """
    columns = Columns()
    for batch in batches:
        header = BatchHeader._make(HEADER.unpack_from(batch)) if checked else check_batch(batch)
        _decode_one(header, batch, columns, start, end, headers, limit)
    return columns


def _decode_one(
    header: BatchHeader, batch: Buffer, columns: Columns, start: int, end: int | None, headers: bool, limit: int
) -> None:
    if header.record_count == 0:
        return
    rows = _rows(header, batch, limit)
    if header.base_offset < start or (end is not None and header.last_offset >= end):
        rows = [row for row in rows if row.offset >= start and (end is None or row.offset < end)]
        columns.offsets += [row.offset for row in rows]
    elif header.record_count == header.last_offset_delta + 1:
        columns.offsets += range(header.base_offset, header.last_offset + 1)
    else:
        columns.offsets += [row.offset for row in rows]
    columns.timestamps += [row.timestamp for row in rows]
    columns.timestamp_types += [1 if header.attributes & LOG_APPEND_TIME else 0] * len(rows)
    columns.keys += [row.key for row in rows]
    columns.values += [row.value for row in rows]
    if headers:
        columns.headers += [row.headers for row in rows]


def _rows(header: BatchHeader, batch: Buffer, limit: int) -> list[Any]:
    """Objects with the attributes of `wire.records.Record`."""
    plain = batch
    if header.codec:
        body = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit)
        attributes = header.attributes & ~CODEC_MASK
        plain = HEADER.pack(*header._replace(attributes=attributes, length=len(body))) + body
    try:
        return list(DefaultRecordBatch(plain))
    except UnicodeDecodeError:
        return list(iter_records(batch, limit=limit))
    except (CorruptRecordException, OverflowError, MemoryError, ValueError) as bad:
        raise CorruptRecords(f"batch at offset {header.base_offset}: {bad}") from bad


# ── encode ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Writer(NamedTuple):
    """Who writes a batch: -1 for nobody in particular."""

    producer_id: int = -1
    epoch: int = -1
    transactional: bool = False


class Encoded(NamedTuple):
    data: bytes
    records: int
    sequence: int  # of its first record


def encode(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers] | None = None,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    writer: Writer = Writer(),  # noqa: B008  # an immutable value
    sequence: int = -1,
) -> list[Encoded]:
    """Batches of at most `batch_bytes` before compression, or of one record that is larger."""
    encoded: list[Encoded] = []
    slow = bool(timestamps) and min(timestamps) < 0  # the compiled builder takes -1 for "none yet"
    first = 0
    while first < len(values):
        built, count = _build(keys, values, timestamps, headers, first, batch_bytes, writer, sequence, slow)
        encoded.append(Encoded(_compressed(built, codec, level), count, sequence))
        first += count
        if sequence >= 0:
            sequence = next_sequence(sequence, count)
    return encoded


def next_sequence(sequence: int, count: int) -> int:
    """Sequences wrap to 0 behind 2³¹ - 1."""
    return (sequence + count) & 0x7FFFFFFF


def _build(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers] | None,
    first: int,
    batch_bytes: int,
    writer: Writer,
    sequence: int,
    slow: bool,
) -> tuple[Buffer, int]:
    """One uncompressed batch from row `first` on, and how many rows it took."""
    builder = DefaultRecordBatchBuilder(
        MAGIC, Codec.NONE, writer.transactional, writer.producer_id, writer.epoch, sequence, batch_bytes
    )
    append = builder.append
    none: list[Header] = []
    count = 0
    try:
        for row in range(first, len(values)):
            named = none if headers is None else list(headers[row])
            time = max(0, timestamps[row])
            if append(count, time, keys[row], values[row], named) is None:
                break
            count += 1
    except UnicodeEncodeError:  # raised before the row left a trace in the builder
        if count == 0:
            slow, count = True, 1
    if not slow:
        return builder.build(), count
    records = [
        Record(offset, timestamps[row], keys[row], values[row], () if headers is None else tuple(headers[row]))
        for offset, row in enumerate(range(first, first + count))
    ]
    attributes = TRANSACTIONAL if writer.transactional else 0
    producer = {"producer_id": writer.producer_id, "producer_epoch": writer.epoch, "base_sequence": sequence}
    return encode_batch(records, attributes=attributes, **producer), count


def _compressed(batch: Buffer, codec: Codec, level: int | None) -> bytes:
    if codec is Codec.NONE:
        return bytes(batch)
    header = BatchHeader._make(HEADER.unpack_from(batch))
    body = compress(codec, memoryview(batch)[HEADER_SIZE:], level)
    length = HEADER_SIZE - PREFIX_SIZE + len(body)
    return seal(header._replace(attributes=header.attributes | codec, length=length), body)
