"""Records round trip, agree with aiokafka's and kafka-python's builders, and hostile batches are CorruptRecords."""

import struct
from contextlib import suppress

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from moldau.wire import batch as fmt
from moldau.wire.batch import BatchHeader, read_header
from moldau.wire.compression import Codec, compress
from moldau.wire.pairs import encode_pairs
from moldau.wire.records import (
    ControlMarker,
    ControlType,
    CorruptRecords,
    Record,
    check_batch,
    decode_control,
    decode_records,
    encode_batch,
    find_first,
    iter_records,
    max_timestamp_record,
    recompress,
)
from moldau.wire.varint import INT64, read_varint, write_varint

LIMIT = 1 << 22
NOW = 1_700_000_000_000
few = settings(max_examples=40, deadline=None)  # of each codec
codecs = pytest.mark.parametrize("codec", Codec, ids=str)

payloads = st.none() | st.binary(max_size=200) | st.integers(0, 40_000).map(bytes)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=20), payloads), max_size=4).map(tuple)
contents = st.lists(st.tuples(st.integers(0, 1 << 45), payloads, payloads, headers), min_size=1, max_size=12)


def _numbered(rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]) -> list[Record]:
    return [Record(offset, *row) for offset, row in enumerate(rows)]


def _seal(header: BatchHeader, body: bytes) -> bytes:
    """A batch around any body, with the right length and checksum: what a hostile producer would send."""
    header = header._replace(length=fmt.HEADER_SIZE - fmt.PREFIX_SIZE + len(body))
    batch = bytearray(fmt.HEADER.pack(*header) + body)
    struct.pack_into(">I", batch, fmt.CRC_POSITION, fmt.checksum(batch))
    return bytes(batch)


def _body_batch(body: bytes, count: int = 1, last_delta: int = 0, codec: int = 0) -> bytes:
    return _seal(BatchHeader(0, 0, 0, 2, 0, codec, last_delta, NOW, NOW, -1, -1, -1, count), body)


@codecs
@few
@given(rows=contents)
def test_round_trip(codec: Codec, rows: list) -> None:
    records = _numbered(rows)
    batch = encode_batch(records, codec=codec)
    assert decode_records(memoryview(batch), limit=LIMIT) == records
    assert read_header(batch).codec == codec


@codecs
@few
@given(rows=contents)
def test_aiokafka_and_we_agree(codec: Codec, rows: list) -> None:
    records = _numbered(rows)
    builder = AiokafkaBuilder(2, int(codec), 0, -1, -1, -1, 1 << 30)
    for offset, timestamp, key, value, extra in records:
        assert builder.append(offset, timestamp, key, value, list(extra))
    assert decode_records(bytes(builder.build()), limit=LIMIT) == records
    theirs = AiokafkaBatch(encode_batch(records, codec=codec))
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=str)  # its other codecs need packages of their own
@few
@given(rows=contents)
def test_kafka_python_and_we_agree(codec: Codec, rows: list) -> None:
    records = _numbered(rows)
    builder = KafkaPythonBuilder(2, int(codec), 0, -1, -1, -1, 1 << 30)
    for offset, timestamp, key, value, extra in records:
        builder.append(offset, timestamp, key, value, list(extra))
    assert decode_records(bytes(builder.build()), limit=LIMIT) == records
    theirs = KafkaPythonBatch(encode_batch(records, codec=codec))
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


def test_same_bytes_as_kafka_python() -> None:
    records = [Record(0, NOW, b"k", b"v", (("h", None),)), Record(1, NOW - 5, None, b"x" * 300)]
    builder = KafkaPythonBuilder(2, 0, 1, 4711, 3, 100, 1 << 30)
    for record in records:
        builder.append(*record[:4], list(record.headers))
    ours = encode_batch(
        records, producer_id=4711, producer_epoch=3, base_sequence=100, attributes=fmt.TRANSACTIONAL, leader_epoch=-1
    )
    assert ours[fmt.MAGIC_POSITION :] == bytes(builder.build())[fmt.MAGIC_POSITION :]


def test_header_fields_of_a_batch() -> None:
    records = [Record(70, NOW + 9, None, b"a"), Record(75, NOW, None, b"b")]
    header = check_batch(encode_batch(records, base_offset=64, last_offset=80, leader_epoch=6, producer_id=5))
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (64, 80, 6)
    assert (header.base_timestamp, header.max_timestamp) == (NOW + 9, NOW + 9)
    assert (header.producer_id, header.record_count) == (5, 2)


@codecs
def test_a_batch_that_compaction_emptied(codec: Codec) -> None:
    batch = encode_batch([], codec=codec, base_offset=10, last_offset=19, producer_id=1, base_sequence=4)
    assert decode_records(batch, limit=LIMIT) == []
    assert len(batch) == fmt.HEADER_SIZE
    assert check_batch(batch).last_offset == 19


def test_log_append_time_gives_every_record_the_batch_s_time() -> None:
    records = [Record(0, NOW, None, b"a"), Record(1, NOW + 1, None, b"b")]
    batch = encode_batch(records, attributes=fmt.LOG_APPEND_TIME, max_timestamp=NOW + 500)
    assert [record.timestamp for record in decode_records(batch, limit=LIMIT)] == [NOW + 500, NOW + 500]


def test_a_header_key_that_is_not_utf8_survives() -> None:
    body = b"\x00\x00\x00\x01\x01\x02" + b"\x04\xff\xfe" + b"\x02v"
    batch = _body_batch(write_varint(len(body)) + body)
    records = decode_records(batch, limit=LIMIT)
    assert encode_batch(records)[fmt.HEADER_SIZE :] == batch[fmt.HEADER_SIZE :]


# ── hostile input ───────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = b"\x00\x00\x00\x01\x02v\x00"  # attributes, deltas, null key, value "v", no headers


def _record(fields: bytes) -> bytes:
    return write_varint(len(fields)) + fields


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (_record(GOOD) + b"\x00", 1, "1 bytes are left"),
        (_record(GOOD), 2, "cannot hold the 2 records"),
        (_record(GOOD + b"\x00" * 9), 2, "from its end"),
        (_record(GOOD), 2_000_000_000, "cannot hold"),
        (write_varint(1000) + GOOD, 1, "from its end"),
        (write_varint(-3) + GOOD, 1, "from its end"),
        (_record(b"\x00\x00\x00\x03\x02v\x00"), 1, "negative length -2"),
        (_record(b"\x00\x00\x00\xfe\xff\xff\xff\x0f\x02v\x00"), 1, "ends inside record 1"),
        (_record(b"\x00\x00\x00\x01\xfe\xff\xff\xff\x0f"), 1, "ends inside record"),
        (_record(b"\x00\x00\x00\x01\x02v\xfe\xff\xff\xff\x0f"), 1, "2147483647 headers"),
        (_record(b"\x00\x00\x00\x01\x02v\x01"), 1, "-1 headers"),
        (_record(b"\x00\x00\x00\x01\x02v\x02\x01\x01"), 1, "header without a key"),
        (_record(b"\x00\x00\x01\x01\x02v\x00"), 1, "offset delta -1"),
        (_record(b"\x00\x00\x02\x01\x02v\x00"), 1, "offset delta 1"),
        (_record(b"\x00\x00\x00\x80\x80\x80\x80\x80\x01\x02v\x00"), 1, "more than 32 bits"),
        (_record(b"\x00\x00\x00\xff\xff\xff\xff\x1f\x02v\x00"), 1, "more than 32 bits"),
        (_record(b"\x00" + b"\xff" * 10 + b"\x01\x00\x01\x02v\x00"), 1, "more than 64 bits"),
        (_record(b"\x00" + b"\xfe" + b"\xff" * 8 + b"\x01\x00\x01\x02v\x00"), 1, "does not fit 64 bits"),
        (b"\xff", 0, "1 bytes are left"),
    ],
)
def test_each_broken_field_is_named(body: bytes, count: int, reason: str) -> None:
    with pytest.raises(CorruptRecords, match=reason):
        decode_records(_body_batch(body, count), limit=LIMIT)


def test_offsets_must_rise() -> None:
    twice = encode_batch([Record(0, NOW, None, b"a"), Record(0, NOW, None, b"b")], last_offset=5)
    with pytest.raises(CorruptRecords, match="offset delta 0 after 0"):
        decode_records(twice, limit=LIMIT)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"magic": 1}, "format 1"),
        ({"record_count": -1}, "negative record count"),
        ({"last_offset_delta": -1}, "negative record count"),
        ({"attributes": 7}, "codec 7"),
    ],
)
def test_broken_headers(change: dict[str, int], reason: str) -> None:
    batch = encode_batch([Record(0, NOW, None, b"a")])
    with pytest.raises(CorruptRecords, match=reason):
        decode_records(_seal(read_header(batch)._replace(**change), batch[fmt.HEADER_SIZE :]), limit=LIMIT)


def test_checksum_size_and_short_headers() -> None:
    batch = encode_batch([Record(0, NOW, None, b"a")])
    with pytest.raises(CorruptRecords, match="checksum"):
        decode_records(batch[:-2] + b"b\x00", limit=LIMIT)
    for wrong in (batch[:-1], batch + b"\x00", batch[:60], b""):
        with pytest.raises(CorruptRecords, match="bytes"):
            decode_records(wrong, limit=LIMIT)


@codecs
def test_a_body_beyond_the_limit(codec: Codec) -> None:
    batch = encode_batch([Record(0, NOW, None, bytes(100_000))], codec=codec)
    if codec is Codec.NONE:  # these bytes are here already
        assert len(decode_records(batch, limit=10)) == 1
    else:
        with pytest.raises(CorruptRecords, match="larger than 50000 bytes"):
            decode_records(batch, limit=50_000)


@codecs
@few
@given(data=st.data())
def test_mutated_batches_raise_nothing_but_corrupt_records(codec: Codec, data: st.DataObject) -> None:
    rows = data.draw(contents)
    body = bytearray(encode_batch(_numbered(rows))[fmt.HEADER_SIZE :])
    for position in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=6)):
        body[position] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    count = data.draw(st.integers(-1, len(rows) + 1) | st.just(0x7FFFFFFF))
    batch = _body_batch(compress(codec, bytes(body)), count, data.draw(st.integers(0, 20)), codec)
    for use in (
        lambda: decode_records(batch, limit=LIMIT),
        lambda: recompress(batch, Codec.ZSTD, None, LIMIT),
        lambda: find_first(batch, NOW, limit=LIMIT),
        lambda: max_timestamp_record(batch, limit=LIMIT),
    ):
        with suppress(CorruptRecords):
            use()


@given(junk=st.binary(max_size=200), count=st.integers(-(2**31), 2**31 - 1), attributes=st.integers(0, 15))
def test_random_bodies_raise_nothing_but_corrupt_records(junk: bytes, count: int, attributes: int) -> None:
    with suppress(CorruptRecords):
        decode_records(_body_batch(junk, count, 100, attributes), limit=LIMIT)


# ── varints ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varints_of_64_bits_round_trip(value: int) -> None:
    encoded = write_varint(value)
    assert read_varint(b"x" + encoded + b"x", 1, INT64) == (value, 1 + len(encoded))


@given(value=st.integers(-(2**31), 2**31 - 1) | st.integers(-9000, 9000))
def test_varints_of_32_bits_round_trip(value: int) -> None:
    encoded = write_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))


# ── recompression, search, control records ──────────────────────────────────────────────────────────────────────────


@codecs
@pytest.mark.parametrize("target", Codec, ids=str)
def test_recompression_keeps_records_and_header(codec: Codec, target: Codec) -> None:
    records = [Record(40 + n, NOW + n, b"key", b"value" * 20, (("h", b"1"),)) for n in range(50)]
    batch = encode_batch(
        records,
        codec=codec,
        base_offset=40,
        leader_epoch=2,
        attributes=fmt.TRANSACTIONAL,
        producer_id=9,
        producer_epoch=1,
    )
    again = recompress(memoryview(batch), target, None, LIMIT)
    assert decode_records(again, limit=LIMIT) == records
    before, after = read_header(batch), check_batch(again)
    assert after.codec == target
    changed = {"attributes", "length", "crc"}
    assert {k: v for k, v in before._asdict().items() if k not in changed} == {
        k: v for k, v in after._asdict().items() if k not in changed
    }
    assert after.attributes & ~fmt.CODEC_MASK == before.attributes & ~fmt.CODEC_MASK


def test_recompression_checks_the_records() -> None:
    with pytest.raises(CorruptRecords):
        recompress(_body_batch(_record(GOOD) + b"tail"), Codec.LZ4, None, LIMIT)


@codecs
def test_find_first_and_max_timestamp(codec: Codec) -> None:
    times = [NOW, NOW + 10, NOW + 5, NOW + 10, NOW + 2]
    batch = encode_batch([Record(7 + n, time, None, b"") for n, time in enumerate(times)], codec=codec, base_offset=7)
    assert find_first(batch, NOW - 100, limit=LIMIT) == (7, NOW)
    assert find_first(batch, NOW + 3, limit=LIMIT) == (8, NOW + 10)
    assert find_first(batch, NOW + 10, limit=LIMIT) == (8, NOW + 10)
    assert find_first(batch, NOW + 11, limit=LIMIT) is None
    assert max_timestamp_record(batch, limit=LIMIT) == (8, NOW + 10)


def test_search_in_log_append_time_and_in_an_empty_batch() -> None:
    records = [Record(5, NOW, None, b"a"), Record(6, NOW + 1, None, b"b")]
    batch = encode_batch(records, base_offset=3, attributes=fmt.LOG_APPEND_TIME, max_timestamp=NOW + 9)
    assert find_first(batch, NOW + 2, limit=LIMIT) == (5, NOW + 9)
    assert max_timestamp_record(batch, limit=LIMIT) == (5, NOW + 9)
    empty = encode_batch([], last_offset=4)
    assert find_first(empty, -1, limit=LIMIT) is None
    assert max_timestamp_record(empty, limit=LIMIT) is None


@given(pairs=st.lists(st.tuples(payloads, payloads), min_size=1, max_size=5), attributes=st.sampled_from((0, 16)))
def test_keys_and_values_of_one_moment_make_the_same_batch(
    pairs: list[tuple[bytes | None, bytes | None]], attributes: int
) -> None:
    records = [Record(offset, NOW, key, value) for offset, (key, value) in enumerate(pairs)]
    made = encode_pairs(pairs, NOW, attributes=attributes, producer_id=7, producer_epoch=3)
    assert made == encode_batch(records, attributes=attributes, producer_id=7, producer_epoch=3)


def test_records_come_one_at_a_time() -> None:
    broken = encode_batch([Record(0, NOW, None, b"a"), Record(1, NOW, None, b"b")])[fmt.HEADER_SIZE :] + b"tail"
    stream = iter_records(_body_batch(broken, 2, 1), limit=LIMIT)
    assert (next(stream).offset, next(stream).offset) == (0, 1)
    with pytest.raises(CorruptRecords, match="4 bytes are left"):
        next(stream)


@pytest.mark.parametrize(
    ("key", "value", "marker"),
    [
        (b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x07", ControlMarker(ControlType.ABORT, 7)),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x02", ControlMarker(ControlType.COMMIT, 2)),
        (b"\x00\x00\x00\x02", b"anything", ControlMarker(ControlType.LEADER_CHANGE, None)),
        (b"\x00\x00\x00\x63", None, ControlMarker(99, None)),
    ],
)
def test_control_records(key: bytes, value: bytes | None, marker: ControlMarker) -> None:
    assert decode_control(Record(0, NOW, key, value)) == marker


@pytest.mark.parametrize(("key", "value"), [(None, None), (b"\x00", None), (b"\x00\x00\x00\x01", b"\x00")])
def test_broken_control_records(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecords):
        decode_control(Record(0, NOW, key, value))
