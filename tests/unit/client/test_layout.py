"""Records found all at once are those that are read one at a time, whatever is in them and however broken they are."""

import random
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.client.direct.arrow import SCHEMA, SCHEMA_WITH_HEADERS, record_batch, record_batches
from moldau.client.direct.layout import decompress_batches, find_layout, group_batches
from moldau.client.direct.records import decode
from moldau.wire.batch import LOG_APPEND_TIME, read_header
from moldau.wire.compression import Codec, CorruptRecords
from moldau.wire.records import Record, encode_batch, seal

PLACE = TopicPartition("orders", 3)
BLOBS = st.none() | st.binary(max_size=300)
NAMES = st.text(max_size=5) | st.binary(max_size=4).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
HEADERS = st.lists(st.tuples(NAMES, BLOBS), max_size=2).map(tuple)
ROWS = st.lists(st.tuples(BLOBS, BLOBS, st.integers(-1, 1 << 42), st.integers(1, 3), HEADERS), max_size=12)
BATCHES = st.lists(st.tuples(ROWS, st.sampled_from(Codec), st.booleans()), max_size=4)


def written(batches: list[tuple[list[tuple[Any, ...]], Codec, bool]], headers: bool = True) -> list[memoryview]:
    """With holes between records, as compaction makes them."""
    found = []
    offset = 10
    for rows, codec, appended in batches:
        records = []
        for key, value, time, gap, named in rows:
            records.append(Record(offset, time, key, value, named if headers else ()))
            offset += gap
        attributes = LOG_APPEND_TIME if appended else 0
        found.append(memoryview(encode_batch(records, codec=codec, attributes=attributes, last_offset=offset)))
        offset += 1
    return found


def slowly(batches: list[memoryview], start: int, end: int | None, headers: bool) -> list[dict[str, Any]]:
    columns = decode(batches, start=start, end=end, headers=headers, checked=True)
    found: list[dict[str, Any]] = record_batch(columns, PLACE, headers=headers).to_pylist()
    return found


def at_once(batches: list[memoryview], start: int, end: int | None, headers: bool) -> list[dict[str, Any]]:
    found = list(record_batches(batches, PLACE, start=start, end=end, headers=headers))
    for each in found:
        assert each.schema.equals(SCHEMA_WITH_HEADERS if headers else SCHEMA)
        each.validate(full=True)
    return [row for each in found for row in each.to_pylist()]


@settings(deadline=None, database=None)
@given(BATCHES, st.booleans(), st.booleans(), st.integers(0, 60), st.none() | st.integers(0, 100))
def test_the_same_records(batches: Any, have: bool, want: bool, start: int, end: int | None) -> None:
    data = written(batches, headers=have)
    assert at_once(data, start, end, want) == slowly(data, start, end, want)


def test_it_is_really_done_at_once() -> None:
    rows = [(None, b"x" * size, 1000 + size, 1, ()) for size in (0, 1, 50, 100, 70_000, 2_100_000)] * 30
    data = written([(rows, Codec.NONE, False), (rows, Codec.ZSTD, True)])
    layout = find_layout(list(decompress_batches(data)), headers=True)
    assert layout is not None
    assert len(layout.offsets) == 360
    assert layout.keys is None
    named = [(b"k", b"v", 5, 1, (("a", b"1"), ("é", None)) * number) for number in range(5)]
    assert find_layout(list(decompress_batches(written([(named, Codec.LZ4, False)]))), headers=True) is not None
    many = [(b"k", b"v", 5, 1, (("a", b"1"),) * 1000)]
    assert find_layout(list(decompress_batches(written([(many, Codec.NONE, False)]))), headers=True) is None


@settings(deadline=None, database=None, max_examples=400)
@given(st.integers(0, 2**32), st.integers(1, 4), st.booleans())
def test_broken_records_are_not_believed(seed: int, spoiled: int, headers: bool) -> None:
    """Under a right checksum, as somebody might write them."""
    chance = random.Random(seed)
    named = [(), (("a", b"1"), ("b", None))]
    rows = [
        (chance.choice([None, b"key"]), chance.randbytes(chance.randint(0, 90)), 5, 1, chance.choice(named))
        for _ in range(20)
    ]
    whole = bytes(written([(rows, Codec.NONE, False)])[0])
    body = bytearray(whole[61:])
    for _ in range(spoiled):
        at = chance.randrange(len(body))
        body[at : at + 9] = chance.choice([body[at : at + 9], b"\xff" * 8])  # a length beyond all bounds
        body[at] = chance.randrange(256)
    batch = [memoryview(seal(read_header(whole), bytes(body)))]
    try:
        expected = slowly(batch, 0, None, headers)
    except (CorruptRecords, pa.ArrowInvalid):
        expected = None
    try:
        found = at_once(batch, 0, None, headers)
    except (CorruptRecords, pa.ArrowInvalid):
        assert expected is None
    else:
        assert expected is None or found == expected


@pytest.mark.parametrize("count", [1, 2**31 - 1])
def test_a_number_of_records_that_lies(count: int) -> None:
    whole = bytes(written([([(None, b"v", 5, 1, ())] * 5, Codec.NONE, False)])[0])
    batch = memoryview(seal(read_header(whole)._replace(record_count=count), whole[61:]))
    assert find_layout(list(decompress_batches([batch]))) is None
    with pytest.raises(CorruptRecords):
        list(record_batches([batch], PLACE))


def test_groups_end_at_rows_or_bytes() -> None:
    data = list(decompress_batches(written([([(None, b"v" * 100, 5, 1, ())] * 10, Codec.GZIP, False)] * 9)))
    assert [len(each) for each in group_batches(data, rows=30, size=1 << 20)] == [3, 3, 3]
    assert [len(each) for each in group_batches(data, rows=1000, size=2000)] == [2, 2, 2, 2, 1]
    assert [len(each) for each in group_batches([], rows=1, size=1)] == []


def test_pandas_is_not_imported() -> None:
    """pyarrow would, at the least occasion, and every new Python worker would wait for it."""
    script = (
        "import sys\n"
        "from moldau.client.direct.arrow import record_batches\n"
        "from moldau.base.ids import TopicPartition\n"
        "from moldau.wire.records import Record, encode_batch\n"
        "rows = [Record(number, 0, b'k' if number % 2 else None, b'v', (('h', b'x'),)) for number in range(9)]\n"
        "batch = memoryview(encode_batch(rows))\n"
        "for headers in (False, True):\n"
        "    (found,) = record_batches([batch], TopicPartition('orders', 3), start=2, end=8, headers=headers)\n"
        "    assert found.num_rows == 6\n"
        "print('pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
