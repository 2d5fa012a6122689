"""Checkpoints of Spark, written by hand in its format: a version, metadata, and a line for each source."""

from pathlib import Path

import pytest

from moldau.spark.checkpoints import (
    UnreadableCheckpoint,
    committed_batches,
    finished_offsets,
    logged_batches,
    read_batch,
)

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'


def write(checkpoint: Path, offsets: dict[int, str], commits: list[int]) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    for number, lines in offsets.items():
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{METADATA}\n{lines}")
        (checkpoint / "offsets" / f".{number}.crc").write_bytes(b"crc\0")
    for number in commits:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_offsets_of_the_last_finished_batch(tmp_path: Path) -> None:
    write(tmp_path, {9: '{"t":{"0":1}}\n-', 10: '{"t":{"0":2}}\n-', 11: '{"t":{"0":5}}\n-'}, [9, 10])
    assert (logged_batches(tmp_path), committed_batches(tmp_path)) == ([9, 10, 11], [9, 10])
    assert finished_offsets(tmp_path) == ('{"t":{"0":2}}', None)
    assert read_batch(tmp_path, 11).text() == (tmp_path / "offsets" / "11").read_text()


def test_no_batch_has_finished(tmp_path: Path) -> None:
    assert finished_offsets(tmp_path / "nowhere") is None
    write(tmp_path, {0: '{"t":{"0":1}}'}, [])
    assert finished_offsets(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [("v9\n{}\n{}", "has the version 'v9', not v1"), ("", "has the version ''"), ("v1\n{}", "names no")],
)
def test_other_files_are_named(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, {3: "{}"}, [])
    (tmp_path / "offsets" / "3").write_text(text)
    with pytest.raises(UnreadableCheckpoint, match=f"{tmp_path}/offsets/3 {problem}"):
        read_batch(tmp_path, 3)
