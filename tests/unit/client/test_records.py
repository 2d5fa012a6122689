"""Columns of records: they come back as they were written, and others read what we write."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.client.direct.arrow import record_batch
from moldau.client.direct.records import Columns, ProducerIdAndEpoch, decode, encode, next_sequence
from moldau.wire.batch import TRANSACTIONAL, read_header
from moldau.wire.compression import Codec, CorruptRecords
from moldau.wire.records import Record, decode_records, encode_batch, seal
from support.brokers.processes import broker_environment

LIMIT = 1 << 24
blobs = st.none() | st.binary(max_size=60)
names = st.text(max_size=8) | st.binary(max_size=4).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
rows = st.lists(
    st.tuples(blobs, blobs, st.integers(-1, 1 << 42), st.lists(st.tuples(names, blobs), max_size=3)), max_size=30
)


@settings(deadline=None, database=None, max_examples=40)
@given(rows, st.sampled_from(Codec), st.sampled_from([1, 200, 100_000]))
def test_what_is_encoded_is_decoded_by_both_decoders(rows: list[tuple], codec: Codec, batch_bytes: int) -> None:
    keys, values, times, headers = ([row[column] for row in rows] for column in range(4))
    encoded = encode(keys, values, times, headers, codec=codec, batch_bytes=batch_bytes)
    assert sum(each.records for each in encoded) == len(rows)
    assert all(each.records == 1 or len(each.data) < batch_bytes + 100 for each in encoded)

    found = decode(each.data for each in encoded)
    assert (found.keys, found.values, found.timestamps) == (keys, values, times)
    assert [list(row) for row in found.headers] == headers

    slowly = [record for each in encoded for record in decode_records(each.data, limit=LIMIT)]
    assert [(row.key, row.value, row.timestamp, list(row.headers)) for row in slowly] == rows


@settings(deadline=None, database=None, max_examples=40)
@given(rows, st.sampled_from(Codec), st.integers(0, 12), st.integers(0, 40))
def test_a_batch_with_holes_is_trimmed_to_the_range(rows: list[tuple], codec: Codec, start: int, size: int) -> None:
    records = [Record(3 * number, time, *row, ()) for number, (*row, time, _) in enumerate(rows)]
    batch = encode_batch(records, codec=codec, last_offset=100)
    found = decode([batch], start=start, end=start + size, headers=False)
    wanted = [record for record in records if start <= record.offset < start + size]
    assert found.offsets == [record.offset for record in wanted]
    assert found.values == [record.value for record in wanted]
    assert found.headers == []


def test_producers_and_their_sequences_are_in_the_batches() -> None:
    values: list[bytes | None] = [b"x" * 50] * 10
    last = 0x7FFFFFFF
    written = encode(
        [None] * 10,
        values,
        [5] * 10,
        writer=ProducerIdAndEpoch(7, 3, transactional=True),
        sequence=last - 1,
        batch_bytes=200,
    )
    headers = [read_header(each.data) for each in written]
    assert {(each.producer_id, each.producer_epoch) for each in headers} == {(7, 3)}
    assert all(each.attributes & TRANSACTIONAL for each in headers)
    assert [each.base_sequence for each in headers] == [each.sequence for each in written]
    assert headers[1].base_sequence == next_sequence(last - 1, headers[0].record_count) == headers[0].record_count - 2


@pytest.mark.parametrize("codec", Codec)
def test_a_spoiled_batch_is_refused(codec: Codec) -> None:
    data = bytearray(encode([b"k"], [b"v" * 100], [1], codec=codec)[0].data)
    data[-1] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        decode([data])
    with pytest.raises(CorruptRecords):
        decode([data[:70]])


def test_lengths_that_lie_under_a_right_checksum_are_refused() -> None:
    whole = encode([b"k"], [b"v" * 100], [1])[0].data
    header = read_header(whole)
    body = bytearray(whole[61:])
    body[5] = 0x7E  # the key's length
    with pytest.raises(CorruptRecords):
        decode([seal(header, bytes(body))])


def test_arrow_has_the_schema_of_sparks_source() -> None:
    columns = Columns([7], [1_000], [1], [None], [b"v"], [[("a", None), ("\udcff", b"x")]])
    batch = record_batch(columns, TopicPartition("orders", 3), headers=True)
    assert batch.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    (row,) = batch.to_pylist()
    assert row["timestamp"].isoformat() == "1970-01-01T00:00:01+00:00"
    assert (row["topic"], row["partition"], row["offset"], row["timestampType"]) == ("orders", 3, 7, 1)
    assert row["headers"] == [{"key": "a", "value": None}, {"key": "�", "value": b"x"}]
    assert record_batch(columns, TopicPartition("orders", 3)).num_columns == 7


def test_without_the_compiled_classes_one_line_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['aiokafka.record._crecords'] = None; import moldau.client.direct.records"
    command = [sys.executable, "-c", hidden]
    done = subprocess.run(command, env=broker_environment(), capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: reading and writing records in bulk needs aiokafka")
    assert "pip install '.[spark]'" in done.stderr
