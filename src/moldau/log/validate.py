"""Validation of a client's batch by its header and checksum, without reading its records. Pure.

Errors are those of Kafka 4.3, with three differences: bytes after the batch are refused, not dropped; an unknown codec
is UNSUPPORTED_COMPRESSION_TYPE, not UNKNOWN_SERVER_ERROR; a batch marked LogAppendTime is refused for every topic. The
header's timestamps stand for those of the records.
"""

from struct import Struct
from typing import Final

from moldau.base.crc import crc32c
from moldau.base.errors import Refusal, WireError
from moldau.log.header import RawHeader
from moldau.log.settings import LogConfig
from moldau.wire.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    PREFIX_SIZE,
)

LAST_CODEC: Final = 4  # zstd
SMALLEST_LENGTH: Final = 14  # of a message in the oldest format; Kafka calls less than that corrupt
_FORBIDDEN: Final = CONTROL | LOG_APPEND_TIME
_LENGTH: Final = Struct(">8xi")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP_POSITION: Final = 35
_TIMESTAMP: Final = Struct(">q")


def check(batch: memoryview, config: LogConfig, now: int) -> RawHeader | Refusal:
    """The header of a valid batch, or a refusal."""
    size = len(batch)
    if size < HEADER_SIZE:
        return _incomplete(batch)
    header: RawHeader = HEADER.unpack_from(batch)
    attributes, count = header[5], header[12]
    if (
        header[1] + PREFIX_SIZE != size
        or header[3] != MAGIC
        or header[0]  # the base offset
        or size > config.max_message_bytes
        or size > config.segment_bytes
        or attributes & _FORBIDDEN
        or attributes & CODEC_MASK > LAST_CODEC
        or count != header[6] + 1
        or count < 1
        or (header[11] < 0 and header[9] >= 0)  # a producer without a sequence
        or header[4] != crc32c(batch[CRC_START:])
    ):
        return _refuse(batch, header, config)
    if config.message_timestamp_type == "CreateTime":
        first_time, max_time = header[7], header[8]
        latest = now + config.message_timestamp_after_max_ms
        earliest = now - config.message_timestamp_before_max_ms
        if not (earliest <= first_time <= latest and earliest <= max_time <= latest):
            return _refuse_time(first_time, max_time, earliest, latest) or header
    return header


def check_rewritten(batch: memoryview, config: LogConfig) -> RawHeader | Refusal:
    """The header of a batch that `check` accepted and this broker has rewritten since: only its size is in question."""
    header: RawHeader = HEADER.unpack_from(batch)
    size = len(batch)
    return _refuse_size(size, config) if size > config.max_message_bytes or size > config.segment_bytes else header


def stamp(header: RawHeader, batch: memoryview, now: int) -> tuple[RawHeader, bytes]:
    """The batch for a LogAppendTime topic: every record has the time of its append."""
    stamped = bytearray(batch)
    _ATTRIBUTES.pack_into(stamped, CRC_START, header[5] | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_POSITION, now)
    _CRC.pack_into(stamped, CRC_POSITION, crc32c(memoryview(stamped)[CRC_START:]))
    return HEADER.unpack_from(stamped), bytes(stamped)


def _incomplete(batch: memoryview) -> Refusal:
    """The error for too few bytes."""
    size = len(batch)
    if size < PREFIX_SIZE:
        return _invalid("The request has no complete batch.")
    length: int = _LENGTH.unpack_from(batch)[0]
    if length < SMALLEST_LENGTH:
        return _corrupt(f"A batch cannot have a length of {length}.")
    if size <= MAGIC_POSITION:
        return _invalid("The request has no complete batch.")
    return _wrong_format(batch[MAGIC_POSITION]) or (
        _invalid("The request has no complete batch.")
        if length + PREFIX_SIZE > size
        else _corrupt(f"A batch of {length + PREFIX_SIZE} bytes is too small.")
    )


def _wrong_format(magic: int) -> Refusal | None:
    if magic == MAGIC:
        return None
    if magic < MAGIC:
        return _invalid(f"Message format {magic} is not supported; batches have format 2.")
    return _corrupt(f"Message format {magic} is unknown.")


def _refuse(batch: memoryview, header: RawHeader, config: LogConfig) -> Refusal:
    """What is wrong with an invalid batch, checked in Kafka's order."""
    size = len(batch)
    whole = header[1] + PREFIX_SIZE
    if header[1] < SMALLEST_LENGTH:
        return _corrupt(f"A batch cannot have a length of {header[1]}.")
    wrong_format = _wrong_format(batch[MAGIC_POSITION])
    if wrong_format is not None:
        return wrong_format
    if whole > size:
        return _invalid("The request has no complete batch.")
    if whole < HEADER_SIZE:
        return _corrupt(f"A batch of {whole} bytes is too small.")
    if whole < size:
        return _invalid("A request must hold exactly one batch for a partition.")
    if size > config.max_message_bytes or size > config.segment_bytes:
        return _refuse_size(size, config)
    if header[4] != crc32c(batch[CRC_START:]):
        return _corrupt("The batch's checksum is wrong.")
    return _refuse_content(header)


def _refuse_size(size: int, config: LogConfig) -> Refusal:
    if size > config.max_message_bytes:
        return Refusal(
            WireError.MESSAGE_TOO_LARGE, f"A batch of {size} bytes; max.message.bytes is {config.max_message_bytes}."
        )
    return Refusal(
        WireError.RECORD_LIST_TOO_LARGE, f"A batch of {size} bytes; segment.bytes is {config.segment_bytes}."
    )


def _refuse_content(header: RawHeader) -> Refusal:
    base, _, _, _, _, attributes, delta, _, _, producer_id, _, sequence, count = header
    if base:
        return _invalid(f"A client's batch begins at offset 0, not {base}.")
    if count < 1 or count != delta + 1:
        return _invalid(f"The batch has {count} records, but a last offset delta of {delta}.")
    if attributes & CONTROL:
        return _invalid("Clients may not write control records.")
    if sequence < 0 and producer_id >= 0:
        return _invalid(f"Producer {producer_id} sent sequence {sequence}.")
    if attributes & CODEC_MASK > LAST_CODEC:
        return Refusal(
            WireError.UNSUPPORTED_COMPRESSION_TYPE, f"Compression codec {attributes & CODEC_MASK} is unknown."
        )
    return Refusal(WireError.INVALID_TIMESTAMP, "A producer may not mark its records with LogAppendTime.")


def _refuse_time(first_time: int, max_time: int, earliest: int, latest: int) -> Refusal | None:
    for time in (first_time, max_time):
        if time != -1 and not earliest <= time <= latest:  # -1: the record has no timestamp
            return Refusal(
                WireError.INVALID_TIMESTAMP, f"Timestamp {time} lies outside {max(earliest, 0)} to {latest}."
            )
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(WireError.INVALID_RECORD, message)


def _corrupt(message: str) -> Refusal:
    return Refusal(WireError.CORRUPT_MESSAGE, message)
