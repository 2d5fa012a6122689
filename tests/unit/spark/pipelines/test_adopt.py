"""Taking over checkpoints of Spark's Kafka source, written here by hand in their format.

offsets/N and commits/N are as in test_checkpoints.py; an offset of the Kafka source is {"topic": {"partition": next}}.
sources/0/0 is where the query began: a zero byte, the version, and an offset. test_connector.py has real ones.
"""

import json
from pathlib import Path

import pytest

from moldau.base.ids import TopicPartition
from moldau.spark.checkpoints import read_batch
from moldau.spark.pipelines.adopt import AdoptError, adopt_checkpoint
from moldau.spark.source import stream_offsets
from moldau.spark.source.plan import OffsetRange

METADATA = '{"batchWatermarkMs":7,"batchTimestampMs":1700000000000,"conf":{"spark.sql.shuffle.partitions":"3"}}'
FIRST, SECOND, THIRD = '{"orders":{"0":4,"1":0}}', '{"orders":{"0":6,"1":3}}', '{"orders":{"0":6,"1":5,"2":2}}'


def checkpoint(
    folder: Path, offsets: dict[int, str], commits: list[int], start: str = '{"orders":{"0":1,"1":0}}'
) -> Path:
    for name in ("offsets", "commits", "sources/0", "state/0/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"57a5fe7c-c057-4185-91f2-7c0721008867"}')
    (folder / "sources" / "0" / "0").write_text(f"\0v1\n{start}\n")
    (folder / "state" / "0" / "0" / "1.delta").write_bytes(b"\xff\x00state")
    for number, lines in offsets.items():
        (folder / "offsets" / str(number)).write_text(f"v1\n{METADATA}\n{lines}")
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc\0")
    for number in commits:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def mark(path: Path, number: int, source: int = 0) -> stream_offsets.StreamOffset:
    line = read_batch(path, number).offsets[source]
    assert line is not None
    return stream_offsets.read(json.loads(line))


def test_an_unfinished_batch_is_repeated(tmp_path: Path) -> None:
    original = checkpoint(tmp_path / "old", {0: FIRST, 1: SECOND, 2: THIRD}, [0, 1])
    before = {path: path.read_bytes() for path in original.rglob("*") if path.is_file()}
    found = adopt_checkpoint(original, tmp_path / "pipelines" / "new")
    assert (found.batch, found.repeats) == (2, True)
    assert found.offsets == [
        {TopicPartition("orders", 0): 6, TopicPartition("orders", 1): 5, TopicPartition("orders", 2): 2}
    ]
    assert mark(found.path, 0).tasks == (OffsetRange("orders", 0, 1, 4),)
    assert mark(found.path, 1).offsets == {TopicPartition("orders", 0): 6, TopicPartition("orders", 1): 3}
    assert mark(found.path, 2).tasks == (OffsetRange("orders", 1, 3, 5), OffsetRange("orders", 2, 0, 2))
    assert read_batch(found.path, 2).metadata == METADATA
    for kept in ("metadata", "commits/1", "state/0/0/1.delta"):
        assert (found.path / kept).read_bytes() == (original / kept).read_bytes()
    assert not (found.path / "offsets" / ".2.crc").exists(), "it is that of the old content"
    assert not (found.path / "sources" / "0").exists()
    assert {path: path.read_bytes() for path in original.rglob("*") if path.is_file()} == before
    assert [path.name for path in found.path.parent.iterdir()] == ["new"]


def test_old_batches_are_gone_and_another_source_stays(tmp_path: Path) -> None:
    original = checkpoint(tmp_path / "old", {8: f"12\n{FIRST}", 9: f"15\n{SECOND}"}, [8, 9])
    found = adopt_checkpoint(original, tmp_path / "new")
    assert (found.batch, found.repeats) == (9, False)
    assert read_batch(found.path, 9).offsets[0] == "15"
    assert mark(found.path, 8, 1).tasks == ()
    assert mark(found.path, 9, 1).tasks == (OffsetRange("orders", 0, 4, 6), OffsetRange("orders", 1, 0, 3))
    assert (found.path / "sources" / "0" / "0").exists(), "of the other source"


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    original = checkpoint(tmp_path / "old", {0: FIRST}, [0])
    adopt_checkpoint(original, tmp_path / "new", dry_run=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_what_cannot_be_taken_over(tmp_path: Path) -> None:
    good = checkpoint(tmp_path / "good", {0: FIRST}, [0])
    adopted = adopt_checkpoint(good, tmp_path / "adopted").path
    cases = {
        tmp_path / "nowhere": "is not a checkpoint of a streaming query: it has no offsets",
        adopted: r"is a checkpoint of format\('moldau'\) already",
        checkpoint(tmp_path / "rate", {0: "12"}, [0]): r"is of a query without format\('kafka'\)",
        checkpoint(tmp_path / "cut", {7: FIRST}, []): "does not tell where batch 7 begins",
        checkpoint(tmp_path / "start", {0: FIRST}, [], start="?"): "start/sources/0/0 has no offsets of topics",
        checkpoint(tmp_path / "mixed", {0: "12", 1: FIRST}, []): "mixed/offsets/0 has other sources",
    }
    for path, problem in cases.items():
        with pytest.raises(AdoptError, match=problem):
            adopt_checkpoint(path, tmp_path / "target")
    with pytest.raises(AdoptError, match="adopted exists already"):
        adopt_checkpoint(good, adopted)
    assert not (tmp_path / "target").exists()
