"""The readers behind `moldau log dump`: whatever is done to a file, they end with its entries or with CorruptFile."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.tools.log.files import Batch, CorruptFile, read_file, read_records
from moldau.wire.compression import Codec
from moldau.wire.records import Record, encode_batch

PRODUCERS = struct.pack(">i", 2) + bytes(2 * 46)
SOUND = {
    "00000000000000000000.log": b"".join(
        encode_batch([Record(codec, 5, b"k", b"v" * 30)], codec=codec, base_offset=codec) for codec in Codec
    ),
    "00000000000000000000.index": struct.pack(">iiii", 1, 109, 2, 230) + bytes(80),
    "00000000000000000000.timeindex": struct.pack(">qiqi", 5, 1, 6, 2) + bytes(120),
    "00000000000000000000.txnindex": struct.pack(">hqqqq", 0, 1, 2, 3, 4) * 2,
    "00000000000000000000.snapshot": struct.pack(">hI", 1, crc32c(PRODUCERS)) + PRODUCERS,
    "leader-epoch-checkpoint": b"0\n2\n0 0\n4 120\n",
    "replication-offset-checkpoint": b"0\n2\norders 0 0\norders 1 120\n",
}


def _read_all(path: Path) -> None:
    for entry in read_file(path):
        if isinstance(entry, Batch):
            for _ in read_records(entry):
                continue


@pytest.mark.parametrize("name", SOUND)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_corrupt_and_nothing_worse(name: str, data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(SOUND[name])
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=5)):
        content[position] = data.draw(st.integers(0, 255))
    path = tmp_path / name
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    if name.endswith("index") and data.draw(st.booleans()):
        (tmp_path / "00000000000000000000.log").write_bytes(SOUND["00000000000000000000.log"])
    with suppress(CorruptFile):
        _read_all(path)


@pytest.mark.parametrize("name", SOUND)
def test_a_file_cut_at_every_byte(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for end in range(len(SOUND[name])):
        path.write_bytes(SOUND[name][:end])
        with suppress(CorruptFile):
            _read_all(path)


def test_one_batch_is_held_at_a_time(tmp_path: Path) -> None:
    """The entries of a segment carry no bytes: a batch is read when its records are asked for."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(SOUND["00000000000000000000.log"])
    entries = read_file(path)
    first, second = next(entries), next(entries)
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)
    assert [record.value for record, _ in read_records(first)] == [b"v" * 30]
    assert len(second.read()) == second.header.size
