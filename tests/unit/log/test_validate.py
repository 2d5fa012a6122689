"""What a client's batch is answered with. The codes are those of Apache Kafka 4.3.1, asked with the same bytes."""

from dataclasses import replace
from struct import pack

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.log.settings import LogConfig
from moldau.log.validate import check, stamp
from moldau.wire.batch import checksum, read_header
from support.log.logs import NOW, batch

CONFIG = LogConfig(max_message_bytes=2000, message_timestamp_before_max_ms=100_000)
HOUR = 3_600_000
LEGACY = pack(">qiIbbii", 0, 14, 0, 0, 0, -1, -1)

REFUSED = {
    "nothing": (b"", WireError.INVALID_RECORD),
    "a few bytes": (bytes(11), WireError.INVALID_RECORD),
    "zeros": (bytes(20), WireError.CORRUPT_MESSAGE),
    "torn": (batch()[:-1], WireError.INVALID_RECORD),
    "header torn": (batch()[:40], WireError.INVALID_RECORD),
    "two batches": (bytes(batch()) + bytes(batch()), WireError.INVALID_RECORD),
    "bytes behind it": (bytes(batch()) + b"abc", WireError.INVALID_RECORD),
    "length 0": (batch(length=0), WireError.CORRUPT_MESSAGE),
    "length 14": (batch(length=14), WireError.CORRUPT_MESSAGE),
    "negative length": (batch(length=-1), WireError.CORRUPT_MESSAGE),
    "huge length": (batch(length=1 << 30), WireError.INVALID_RECORD),
    "format 0": (LEGACY, WireError.INVALID_RECORD),
    "format 1": (batch(magic=1), WireError.INVALID_RECORD),
    "format 3": (batch(magic=3), WireError.CORRUPT_MESSAGE),
    "format -1": (batch(magic=-1), WireError.CORRUPT_MESSAGE),
    "wrong checksum": (batch(crc=1), WireError.CORRUPT_MESSAGE),
    "too large": (batch(value=b"x" * 2000), WireError.MESSAGE_TOO_LARGE),
    "too large and broken": (batch(value=b"x" * 2000, crc=1), WireError.MESSAGE_TOO_LARGE),
    "base offset": (batch(base_offset=5), WireError.INVALID_RECORD),
    "more records than offsets": (batch(2, record_count=3), WireError.INVALID_RECORD),
    "more offsets than records": (batch(2, last_offset_delta=2), WireError.INVALID_RECORD),
    "no records": (batch(record_count=0, last_offset_delta=-1), WireError.INVALID_RECORD),
    "control": (batch(attributes=0x20), WireError.INVALID_RECORD),
    "producer without sequence": (batch(producer_id=5, epoch=0), WireError.INVALID_RECORD),
    "unknown codec": (batch(attributes=5), WireError.UNSUPPORTED_COMPRESSION_TYPE),
    "marked LogAppendTime": (batch(attributes=8), WireError.INVALID_TIMESTAMP),
    "future": (batch(timestamp=NOW + HOUR + 1), WireError.INVALID_TIMESTAMP),
    "future in the end": (batch(max_timestamp=NOW + HOUR + 1), WireError.INVALID_TIMESTAMP),
    "past": (batch(timestamp=NOW - 100_001), WireError.INVALID_TIMESTAMP),
}

ACCEPTED = {
    "plain": batch(3),
    "at the size limit": batch(body=b"x" * (2000 - 61)),
    "zstd": batch(attributes=4),
    "idempotent": batch(producer_id=5, epoch=0, sequence=0),
    "producer without epoch": batch(producer_id=5, sequence=0),
    "no producer": batch(producer_id=-2, epoch=0, sequence=0),
    "an hour ahead": batch(timestamp=NOW + HOUR),
    "as old as allowed": batch(timestamp=NOW - 100_000),
    "no timestamp": batch(timestamp=-1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, error = REFUSED[name]
    answer = check(memoryview(data), CONFIG, NOW)
    assert isinstance(answer, Refusal)
    assert answer.error is error
    assert answer.message


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    assert check(ACCEPTED[name], CONFIG, NOW) == read_header(ACCEPTED[name])


def test_a_batch_larger_than_a_segment() -> None:
    answer = check(batch(value=b"x" * 1000), replace(CONFIG, segment_bytes=500), NOW)
    assert isinstance(answer, Refusal)
    assert answer.error is WireError.RECORD_LIST_TOO_LARGE


def test_append_time_takes_any_timestamp_and_replaces_it() -> None:
    config = replace(CONFIG, message_timestamp_type="LogAppendTime")
    data = batch(2, timestamp=1, attributes=3)
    header = check(data, config, NOW)
    assert not isinstance(header, Refusal)
    stamped_header, stamped = stamp(header, data, NOW)
    assert stamped_header == read_header(stamped)
    assert read_header(stamped).max_timestamp == NOW
    assert read_header(stamped).attributes == 3 | 8
    assert read_header(stamped).crc == checksum(stamped)
    assert stamped[61:] == bytes(data)[61:]
