"""`moldau log dump` as its user sees it: what is shown of each kind of file, and what is said of a broken one."""

import errno
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from crc32c import crc32c
from typer.testing import CliRunner, Result

from moldau.tools.log.dump import app
from moldau.wire import batch as fmt
from moldau.wire.compression import Codec
from moldau.wire.records import Record, encode_batch

NOW = 1_700_000_000_000
SEGMENT = "00000000000000000100.log"

# Written by Apache Kafka 4.3.1: the state of one producer inside a transaction.
KAFKA_SNAPSHOT = bytes.fromhex(
    "0001 37eb8857 00000001"
    "0000000000000061 0000 000019b7 00000000000019bd 0000002f 000001a1e134ebbc 00000000 0000000000001776"
)


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["dump", *map(str, arguments)])


def rows(*arguments: object) -> list[dict]:
    result = dump("-o", "json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def batch(first: int, count: int = 5, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    records = [Record(n, NOW + n, b"key-%d" % n, b"value", (("h", None),)) for n in range(first, first + count)]
    return encode_batch(records, codec=codec, base_offset=first, leader_epoch=3, **fields)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Five batches, one of each codec, offsets 100 to 124."""
    path = tmp_path / SEGMENT
    path.write_bytes(b"".join(batch(100 + 5 * codec, codec=codec) for codec in Codec))
    return path


def positions(segment: Path) -> list[tuple[fmt.BatchHeader, int]]:
    data, position, found = segment.read_bytes(), 0, []
    while position < len(data):
        header = fmt.read_header(data, position)
        found.append((header, position))
        position += header.size
    return found


def write_indexes(segment: Path, padding: int = 0) -> tuple[Path, Path]:
    entries = positions(segment)[1:]
    index, timeindex = segment.with_suffix(".index"), segment.with_suffix(".timeindex")
    index.write_bytes(b"".join(struct.pack(">ii", h.last_offset - 100, at) for h, at in entries) + bytes(8 * padding))
    timeindex.write_bytes(
        b"".join(struct.pack(">qi", h.max_timestamp, h.last_offset - 100) for h, _ in entries) + bytes(12 * padding)
    )
    return index, timeindex


# ── segments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_batches_as_json(segment: Path) -> None:
    shown = rows(segment)
    assert [row["codec"] for row in shown] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert {row["kind"] for row in shown} == {"batch"}
    first = {k: v for k, v in shown[0].items() if k not in ("file", "kind", "size", "crc")}
    assert first == {
        "position": 0,
        "base_offset": 100,
        "last_offset": 104,
        "record_count": 5,
        "flags": [],
        "codec": "none",
        "max_timestamp": NOW + 104,
        "leader_epoch": 3,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
    }
    assert shown[1]["position"] == shown[0]["size"]


def test_records_as_json(segment: Path) -> None:
    records = [row for row in rows("--records", segment) if row["kind"] == "record"]
    assert [row["offset"] for row in records] == list(range(100, 125))
    assert records[0]["key"] == "key-100"
    assert records[0]["headers"] == [{"key": "h", "value": None}]


def test_bytes_that_are_no_text_are_base64(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    path.write_bytes(encode_batch([Record(100, NOW, b"\xff", None, (("h", b"\xfe"),))], base_offset=100))
    (record,) = [row for row in rows("--records", path) if row["kind"] == "record"]
    assert (record["key_base64"], record["value"]) == ("/w==", None)
    assert record["headers"] == [{"key": "h", "value_base64": "/g=="}]


def test_tables(segment: Path) -> None:
    result = dump("--records", segment)
    assert result.exit_code == 0
    assert f"{SEGMENT}: segment" in result.stdout
    assert "snappy" in result.stdout
    assert "key-124" in result.stdout
    assert "2023-11-14T22:13:20.100Z" in result.stdout


def test_a_narrow_terminal_cuts_no_number(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.tools.log.dump.WIDE", 20)
    *_, (header, position) = positions(segment)
    last = dump(segment).stdout.splitlines()[-1].split()
    assert last[:5] == [str(position), str(header.size), "120–124", "5", "zstd"]


def test_a_record_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    evil = Record(100, NOW, b"\x1b[2J", "naïve \u202e".encode(), (("\x07bell", b"\xff"),))
    path.write_bytes(encode_batch([evil], base_offset=100))
    text = dump("--records", path).stdout
    assert "\\x1b[2J" in text
    assert "naïve \\u202e" in text
    assert not set("\x1b\x07\u202e") & set(text)


def test_transaction_markers_are_named(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    flags = fmt.TRANSACTIONAL | fmt.CONTROL
    marker = Record(100, NOW, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x07")
    path.write_bytes(encode_batch([marker], base_offset=100, attributes=flags, producer_id=9, producer_epoch=0))
    found, record = rows("--records", path)
    assert found["flags"] == ["transactional", "control"]
    assert record["control"] == "COMMIT by coordinator epoch 7"


def test_zeros_of_a_preallocated_segment(segment: Path) -> None:
    size = segment.stat().st_size
    os.truncate(segment, size + 5000)
    assert rows(segment)[-1] == {"file": str(segment), "kind": "zeros", "zeros_from": size, "size": 5000}


def test_an_empty_segment(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    path.touch()
    assert rows(path) == []
    assert "no entries" in dump(path).stdout


# ── other files ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("padding", [0, 1000], ids=["closed", "active"])
def test_indexes_are_checked_against_their_segment(segment: Path, padding: int) -> None:
    index, timeindex = write_indexes(segment, padding)
    entries = positions(segment)[1:]
    assert [(row["offset"], row["position"], row["verified"]) for row in rows(index)] == [
        (header.last_offset, position, True) for header, position in entries
    ]
    assert [(row["timestamp"], row["offset"], row["verified"]) for row in rows(timeindex)] == [
        (header.max_timestamp, header.last_offset, True) for header, _ in entries
    ]


def test_indexes_without_a_segment_are_shown_unverified(segment: Path) -> None:
    index, timeindex = write_indexes(segment)
    segment.unlink()
    assert [row["verified"] for row in rows(index, timeindex)] == [False] * 8


def test_producer_snapshot_of_apache_kafka(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000006590.snapshot"
    path.write_bytes(KAFKA_SNAPSHOT)
    assert rows(path) == [
        {
            "file": str(path),
            "kind": "producer",
            "producer_id": 97,
            "producer_epoch": 0,
            "last_sequence": 6583,
            "last_offset": 6589,
            "offset_delta": 47,
            "timestamp": 1794779704252,
            "coordinator_epoch": 0,
            "current_txn_first_offset": 6006,
        }
    ]


def test_aborted_transactions(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 97, 0, 1000, 1001))
    (row,) = rows(path)
    assert (row["producer_id"], row["first_offset"], row["last_offset"]) == (97, 0, 1000)


def test_checkpoints(tmp_path: Path) -> None:
    epochs, offsets = tmp_path / "leader-epoch-checkpoint", tmp_path / "replication-offset-checkpoint"
    epochs.write_text("0\n2\n0 0\n4 120\n")
    offsets.write_text("0\n1\norders 3 42\n")
    assert [(row["leader_epoch"], row["start_offset"]) for row in rows(epochs)] == [(0, 0), (4, 120)]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows(offsets)] == [("orders", 3, 42)]


# ── what is wrong with a file, in one line ──────────────────────────────────────────────────────────────────────────


def complaint(*arguments: object) -> tuple[int, str]:
    result = dump(*arguments)
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return result.exit_code, lines[0]


def test_missing_unreadable_and_unknown_files(tmp_path: Path) -> None:
    unknown, directory, pipe = tmp_path / "notes.txt", tmp_path / "0.log", tmp_path / "1.log"
    unknown.touch()
    directory.mkdir()
    os.mkfifo(pipe)
    assert complaint(tmp_path / "gone.log") == (2, f"moldau: {tmp_path}/gone.log: No such file or directory")
    hint = "not a file; name the files in it, such as DIRECTORY/*.log"
    assert complaint(directory) == (2, f"moldau: {directory}: {hint}")
    assert complaint(pipe) == (2, f"moldau: {pipe}: {hint}")
    code, line = complaint(unknown)
    assert code == 2
    assert "notes.txt: its name is not that of a segment, offset index" in line
    unnamed = tmp_path / "x.index"
    unnamed.touch()
    assert complaint(unnamed)[0] == 2


def test_a_directory_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)  # rights do not stop everybody: not the superuser
    assert complaint(tmp_path) == (2, f"moldau: {tmp_path}: Permission denied")


@pytest.mark.parametrize("arguments", [("dump",), ("dump", "-o", "json"), ("--help",)])
def test_a_reader_that_left_is_no_failure(segment: Path, arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "moldau", "log", *arguments, *([str(segment)] if "dump" in arguments else [])]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_other_files_are_shown_all_the_same(segment: Path, tmp_path: Path) -> None:
    result = dump(tmp_path / "gone.log", segment)
    assert result.exit_code == 2
    assert f"{SEGMENT}: segment" in result.stdout


def _damage(segment: Path, position: int, data: bytes) -> None:
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize(
    ("inside", "data", "reason"),
    [
        (fmt.HEADER_SIZE + 3, b"\xff\xff", "checksum is"),
        (fmt.MAGIC_POSITION, b"\x01", "batch format 1 is not supported"),
        (8, b"\x7f\xff\xff\xff", "a batch of 2147483659 bytes where the file has"),
        (8, b"\x00\x00\x00\x00", "a batch of 12 bytes is shorter than its header"),
        (0, bytes(8), "offset 0 where at least 110 is due"),
    ],
)
def test_a_broken_batch_is_named_by_position_and_offset(segment: Path, inside: int, data: bytes, reason: str) -> None:
    third = positions(segment)[2][1]
    _damage(segment, third + inside, data)
    code, line = complaint(segment)
    assert code == 1
    assert f"{segment}: corrupt at position {third}, offset 110: {reason}" in line
    assert dump(segment).stdout.count("\n") == 4  # title, heads and the two batches before it


def test_a_torn_segment(segment: Path) -> None:
    *_, (_, last) = positions(segment)
    os.truncate(segment, last + 30)
    assert complaint(segment) == (
        1,
        f"moldau: {segment}: corrupt at position {last}, offset 120: the file ends after 30 bytes of a batch header",
    )


def test_broken_records_under_a_right_checksum(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    data = bytearray(batch(100))
    data[fmt.HEADER_SIZE] = 0x02
    struct.pack_into(">I", data, fmt.CRC_POSITION, crc32c(data[fmt.CRC_START :]))
    path.write_bytes(data)
    assert dump(path).exit_code == 0
    code, line = complaint("--records", path)
    assert code == 1
    assert "corrupt at position 0, offset 100: 1 headers in a record with 0 bytes left" in line


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (struct.pack(">ii", 9, 1), "batch"),
        (struct.pack(">ii", 9, 1 << 30), f"points to {1 << 30}, {SEGMENT} has"),
        (struct.pack(">ii", 9, 0), "has a batch that ends with offset 104 at 0"),
        (struct.pack(">ii", -1, 0), "does not rise"),
        (b"\x01\x02\x03", "3 bytes after the last whole entry"),
    ],
)
def test_a_wrong_offset_index(segment: Path, entry: bytes, reason: str) -> None:
    index = segment.with_suffix(".index")
    index.write_bytes(entry)
    code, line = complaint(index)
    assert (code, reason in line) == (1, True), line


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (struct.pack(">qi", NOW + 1, 4), f"timestamp {NOW + 1}, the batch in {SEGMENT} has {NOW + 104}"),
        (struct.pack(">qi", NOW + 104, 99), f"{SEGMENT} has no such offset"),
        (struct.pack(">qiqi", NOW + 104, 4, NOW + 104, 9), "does not rise"),
    ],
)
def test_a_wrong_time_index(segment: Path, entry: bytes, reason: str) -> None:
    index = segment.with_suffix(".timeindex")
    index.write_bytes(entry)
    code, line = complaint(index)
    assert (code, reason in line) == (1, True), line


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (KAFKA_SNAPSHOT[:-1], "checksum is"),
        (KAFKA_SNAPSHOT[:30] + b"\xff" + KAFKA_SNAPSHOT[31:], "checksum is"),
        (b"\x00\x02" + KAFKA_SNAPSHOT[2:], "version 2"),
        (b"\x00\x01", "ends after 2 bytes"),
        (struct.pack(">hIi", 1, crc32c(b"\x7f\xff\xff\xff"), 0x7FFFFFFF), "2147483647 producers do not make"),
    ],
)
def test_a_wrong_snapshot(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "00000000000000006590.snapshot"
    path.write_bytes(data)
    code, line = complaint(path)
    assert (code, reason in line) == (1, True), line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is not a number"),
        ("1\n0\n", "version 1"),
        ("0\n2\n0 0\n", "1 entries where 2 are announced"),
        ("0\n1\n0 0 0\n", "3 words"),
        ("0\n1\nx 0\n", "'x' is not a number"),
        ("0\n2\n4 10\n3 20\n", "does not rise"),
        ("0" * 5000, "a line of more than 1024 bytes"),
    ],
)
def test_a_wrong_checkpoint(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(text)
    code, line = complaint(path)
    assert (code, reason in line) == (1, True), line
