"""Inspection of a batch's records before the append. Runs in threads; knows no partition.

Most topics store a batch as the producer sent it. Two settings need its records: a `compression.type` other than
`producer`, and compaction, which refuses records without a key.
"""

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import NO_TIMESTAMP
from moldau.log.settings import LogConfig
from moldau.wire.batch import CODEC_MASK, read_header
from moldau.wire.compression import Codec, CorruptRecords
from moldau.wire.records import decode_records, recompress

LARGEST_UNPACKED = 256 * 1024 * 1024  # bytes of one batch's records, uncompressed
KEEP_CODEC = "producer"


def needed(config: LogConfig, codec: int) -> bool:
    kind = config.compression_type
    return (kind != KEEP_CODEC and Codec.named(kind) != codec) or config.compacts


def inspect(batch: bytes, config: LogConfig) -> bytes | Refusal:
    """The batch to append, recompressed if the topic requires it, or a refusal."""
    try:
        if config.compacts:
            for place, record in enumerate(decode_records(memoryview(batch), limit=LARGEST_UNPACKED)):
                if record.key is None:
                    return Refusal(
                        WireError.INVALID_RECORD,
                        f"A compacted topic takes no record without a key; record {place} of the batch has none.",
                        ((place, "The record has no key."),),
                    )
        if config.compression_type == KEEP_CODEC:
            return batch
        codec = Codec.named(config.compression_type)
        if read_header(batch).attributes & CODEC_MASK == codec:
            return batch
        return recompress(memoryview(batch), codec, _level(codec, config), LARGEST_UNPACKED)
    except CorruptRecords as problem:
        return Refusal(WireError.CORRUPT_MESSAGE, str(problem))


def blame(batch: bytes, config: LogConfig, now: int, refusal: Refusal) -> Refusal:
    """The refusal of a batch for its timestamps, with the errors of its records."""
    earliest, latest = now - config.message_timestamp_before_max_ms, now + config.message_timestamp_after_max_ms
    try:
        records = decode_records(memoryview(batch), limit=LARGEST_UNPACKED)
    except CorruptRecords as problem:
        return Refusal(WireError.CORRUPT_MESSAGE, str(problem))
    wrong = tuple(
        (place, f"Timestamp {record.timestamp} lies outside the allowed range.")
        for place, record in enumerate(records)
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest
    )
    return Refusal(refusal.error, refusal.message, wrong)


def _level(codec: Codec, config: LogConfig) -> int | None:
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)
