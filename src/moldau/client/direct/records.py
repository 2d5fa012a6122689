"""Record batches to and from columns, in bulk. The only module that imports aiokafka.

`aiokafka.record._crecords` is compiled and many times faster than Python, but private, so its version is pinned.
`wire` computes checksums and compresses: it enforces limits and reads every framing that clients write. `wire.records`
also handles what the compiled classes cannot: header names that are not UTF-8, and negative timestamps.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
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
        "pip install '.[spark]' in a clone of Moldau"
    ) from missing

BATCH_BYTES: Final = 512 * 1024  # of a batch before compression: half of what topics accept by default
DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024  # limit of one batch, against decompression bombs

MAX_OVERHEAD: Final = 32  # bytes of lengths and deltas of a record or header

Headers = Sequence[Header]
NO_HEADERS: Final[Headers] = ()


@dataclass(slots=True)
class Columns:
    """Records by column. `headers` is empty if headers were not requested."""

    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    timestamp_types: list[int] = field(default_factory=list)  # 0: CreateTime, 1: LogAppendTime
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def cut(self, length: int) -> None:
        for column in (self.offsets, self.timestamps, self.timestamp_types, self.keys, self.values, self.headers):
            del column[length:]


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
    """Decode the records of whole batches with offsets in [start, end); raises CorruptRecords.

    `checked`: the checksums were already verified.
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
    before = len(columns)
    outside = header.base_offset < start or (end is not None and header.last_offset >= end)
    holes = header.record_count != header.last_offset_delta + 1
    append = _append_some if outside or holes else _append_all
    last = header.last_offset if end is None else end - 1
    try:
        append(_rows(header, batch, limit), columns, start, last, headers)
    except UnicodeDecodeError:
        columns.cut(before)
        append(iter_records(batch, limit=limit), columns, start, last, headers)
    except (CorruptRecordException, OverflowError, MemoryError, ValueError) as bad:
        raise CorruptRecords(f"batch at offset {header.base_offset}: {bad}") from bad
    if append is _append_all:
        columns.offsets += range(header.base_offset, header.last_offset + 1)
    appended = 1 if header.attributes & LOG_APPEND_TIME else 0
    columns.timestamp_types += [appended] * (len(columns.values) - before)


def _rows(header: BatchHeader, batch: Buffer, limit: int) -> Iterable[Any]:
    """Objects with the attributes of `wire.records.Record`."""
    if not header.codec:
        return DefaultRecordBatch(batch)  # type: ignore[no-any-return]
    body = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit)
    attributes = header.attributes & ~CODEC_MASK
    return DefaultRecordBatch(HEADER.pack(*header._replace(attributes=attributes)) + body)  # type: ignore[no-any-return]


def _append_all(rows: Iterable[Any], columns: Columns, first: int, last: int, headers: bool) -> None:
    """Append all columns but the offsets, which are consecutive. One loop, so that each row is freed at once."""
    key, value, time = columns.keys.append, columns.values.append, columns.timestamps.append
    if not headers:
        for row in rows:
            key(row.key)
            value(row.value)
            time(row.timestamp)
        return
    named = columns.headers.append
    for row in rows:
        key(row.key)
        value(row.value)
        time(row.timestamp)
        named(row.headers or NO_HEADERS)


def _append_some(rows: Iterable[Any], columns: Columns, first: int, last: int, headers: bool) -> None:
    for row in rows:
        if first <= row.offset <= last:
            columns.offsets.append(row.offset)
            columns.keys.append(row.key)
            columns.values.append(row.value)
            columns.timestamps.append(row.timestamp)
            if headers:
                columns.headers.append(row.headers or NO_HEADERS)


# ── encode ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class ProducerIdAndEpoch(NamedTuple):
    """Producer of a batch; -1 without idempotence."""

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
    writer: ProducerIdAndEpoch = ProducerIdAndEpoch(),  # noqa: B008  # an immutable value
    sequence: int = -1,
) -> list[Encoded]:
    """Encode into batches of at most `batch_bytes` before compression, or of a single larger record."""
    named = repeat([]) if headers is None else map(list, headers)
    columns = (keys, values, timestamps, *(() if headers is None else (headers,)))
    if len({len(column) for column in columns}) > 1:
        raise ValueError("columns of different lengths")
    # The compiled builder takes a timestamp of -1 for "none yet".
    split = _split if not timestamps or min(timestamps) >= 0 else _split_slowly
    try:
        batches = list(split(zip(timestamps, keys, values, named, strict=False), batch_bytes, writer))
    except UnicodeEncodeError:
        named = repeat([]) if headers is None else map(list, headers)
        batches = list(_split_slowly(zip(timestamps, keys, values, named, strict=False), batch_bytes, writer))
    encoded = []
    for built in batches:
        done = _finished(built, codec, level, sequence)
        encoded.append(done)
        if sequence >= 0:
            sequence = next_sequence(sequence, done.records)
    return encoded


def next_sequence(sequence: int, count: int) -> int:
    """Sequence numbers wrap to 0 after 2³¹ - 1."""
    return (sequence + count) & 0x7FFFFFFF


Row = tuple[int, bytes | None, bytes | None, list[Header]]  # time, key, value, headers: the order of `append`


def _split(rows: Iterable[Row], batch_bytes: int, writer: ProducerIdAndEpoch) -> Iterator[Buffer]:
    """Uncompressed batches; sequence and checksum are set by `_finished`."""

    def new() -> Any:
        producer = (writer.transactional, writer.producer_id, writer.epoch)
        return DefaultRecordBatchBuilder(MAGIC, Codec.NONE, *producer, -1, batch_bytes)

    builder = new()
    append = builder.append
    count = 0
    for time, key, value, headers in rows:
        if append(count, time, key, value, headers) is None:
            yield builder.build()
            builder = new()
            append = builder.append
            append(0, time, key, value, headers)
            count = 0
        count += 1
    if count:
        yield builder.build()


def _split_slowly(rows: Iterable[Row], batch_bytes: int, writer: ProducerIdAndEpoch) -> Iterator[Buffer]:
    """As `_split`, with `wire.records`, which encodes every record."""
    producer = {"producer_id": writer.producer_id, "producer_epoch": writer.epoch}
    attributes = TRANSACTIONAL if writer.transactional else 0
    batch: list[Record] = []
    size = HEADER_SIZE
    for time, key, value, headers in rows:
        more = MAX_OVERHEAD + len(key or b"") + len(value or b"")
        more += sum(3 * len(name) + len(content or b"") + MAX_OVERHEAD for name, content in headers)
        if batch and size + more > batch_bytes:
            yield encode_batch(batch, attributes=attributes, **producer)
            batch, size = [], HEADER_SIZE
        batch.append(Record(len(batch), time, key, value, tuple(headers)))
        size += more
    if batch:
        yield encode_batch(batch, attributes=attributes, **producer)


def _finished(built: Buffer, codec: Codec, level: int | None, sequence: int) -> Encoded:
    """Compressed, with its sequence and checksum."""
    header = BatchHeader._make(HEADER.unpack_from(built))
    if codec is Codec.NONE and sequence < 0:
        return Encoded(bytes(built), header.record_count, sequence)
    body = bytes(memoryview(built)[HEADER_SIZE:])
    if codec is not Codec.NONE:
        body = compress(codec, body, level)
    changed = header._replace(
        attributes=header.attributes | codec, length=HEADER_SIZE - PREFIX_SIZE + len(body), base_sequence=sequence
    )
    return Encoded(seal(changed, body), header.record_count, sequence)
