"""Inspection of a batch's records before the append. Runs in threads and workers; knows no partition.

Most topics store a batch as the producer sent it. Three settings need its records: a `compression.type` other than
`producer`; compaction, which refuses records without a key; and a schema, which `record_checks.py` checks.
"""

from collections.abc import Callable
from itertools import islice

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import NO_TIMESTAMP
from moldau.log.settings import LogConfig
from moldau.wire.batch import CODEC_MASK, read_header
from moldau.wire.compression import Codec, CorruptRecords
from moldau.wire.records import Record, decode_records, recompress

LARGEST_UNPACKED = 256 * 1024 * 1024  # bytes of one batch's records, uncompressed
KEEP_CODEC = "producer"
MAX_RECORD_ERRORS = 10_000  # named in a response; a batch may have millions of records
MAX_SHOWN = 3  # of them, in the message for the batch
NO_KEY = "A compacted topic takes no record without a key."

RecordErrors = tuple[tuple[int, str], ...]


def needed(config: LogConfig, codec: int) -> bool:
    kind = config.compression_type
    return (kind != KEEP_CODEC and Codec.named(kind) != codec) or config.compacts or config.checks_schemas


def inspect(batch: bytes, config: LogConfig) -> bytes | Refusal:
    """The batch to append, recompressed if the topic requires it, or a refusal."""
    try:
        if config.compacts:
            wrong = _wrong_records(batch, lambda record: NO_KEY if record.key is None else None)
            if wrong:
                return refuse(WireError.INVALID_RECORD, wrong)
        if config.compression_type == KEEP_CODEC:
            return batch
        codec = Codec.named(config.compression_type)
        if read_header(batch).attributes & CODEC_MASK == codec:
            return batch
        return recompress(memoryview(batch), codec, level_of(codec, config), LARGEST_UNPACKED)
    except CorruptRecords as problem:
        return Refusal(WireError.CORRUPT_MESSAGE, str(problem))


def blame(batch: bytes, config: LogConfig, now: int, refusal: Refusal) -> Refusal:
    """The refusal of a batch for its timestamps, with the errors of its records (KIP-467)."""
    earliest, latest = now - config.message_timestamp_before_max_ms, now + config.message_timestamp_after_max_ms
    allowed = f"{max(earliest, 0)} to {latest}"

    def wrong_with(record: Record) -> str | None:
        if config.compacts and record.key is None:
            return NO_KEY
        if record.timestamp == NO_TIMESTAMP or earliest <= record.timestamp <= latest:
            return None
        return f"Timestamp {record.timestamp} lies outside {allowed}."

    try:
        wrong = _wrong_records(batch, wrong_with)
    except CorruptRecords as problem:
        return Refusal(WireError.CORRUPT_MESSAGE, str(problem))
    return refuse(refusal.error, wrong) if wrong else refusal


def _wrong_records(batch: bytes, wrong_with: Callable[[Record], str | None]) -> RecordErrors:
    """The first invalid records of a batch by their places in it, and why each is invalid."""
    records = enumerate(decode_records(memoryview(batch), limit=LARGEST_UNPACKED))
    wrong = ((place, text) for place, record in records if (text := wrong_with(record)) is not None)
    return tuple(islice(wrong, MAX_RECORD_ERRORS))


def refuse(error: WireError, wrong: RecordErrors) -> Refusal:
    """A batch is refused as a whole: clients tell the producers of the other records that these ones failed."""
    count = f"at least {len(wrong)}" if len(wrong) == MAX_RECORD_ERRORS else len(wrong)
    shown = " ".join(f"Record {place}: {text}" for place, text in wrong[:MAX_SHOWN])
    return Refusal(error, f"The batch has {count} invalid record{'s' if len(wrong) > 1 else ''}. {shown}", wrong)


def level_of(codec: Codec, config: LogConfig) -> int | None:
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)
