"""Reading a log from an offset on, in large pieces: nothing is left out, and nothing that comes later is seen."""

import os
import threading
from pathlib import Path

import pytest

from moldau.log import reading
from moldau.log.segment import CorruptLogError
from moldau.log.settings import LogConfig
from support.log.logs import append, batch, open_log, segment_files


@pytest.mark.parametrize("chunk", [70, 1000, 1 << 20])
def test_every_batch_whatever_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(reading, "CHUNK", chunk)
    log = open_log(tmp_path, LogConfig(segment_bytes=20_000, index_interval_bytes=500))
    sizes = [1, 1, 500, 7000, 3, 1, 12_000, 1, 9000, 9000, 9000, 2]
    written = []
    for size in sizes:
        data = batch(2, value=bytes(size // 2))
        written.append((append(log, data), bytes(data[16:])))
    assert log.segment_count > 2
    found = [(header.base_offset, bytes(data[16:])) for header, data in log.read_batches(0)]
    assert found == written
    for offset in range(log.end_offset):
        headers = [header.base_offset for header, _ in log.read_batches(offset)]
        assert headers == list(range(offset - offset % 2, log.end_offset, 2))
    assert list(log.read_batches(log.end_offset)) == []


def test_it_ends_where_the_log_did_when_asked(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=500))
    for _ in range(10):
        append(log, batch())
    asked = log.read_batches(3)
    for _ in range(10):
        append(log, batch())
    assert [header.base_offset for header, _ in asked] == list(range(3, 10))


def test_a_thread_reads_while_the_log_grows(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=2000, index_interval_bytes=100))
    for _ in range(500):
        append(log, batch())
    found: list[int] = []
    asked = log.read_batches(0)
    reader = threading.Thread(target=lambda: found.extend(header.base_offset for header, _ in asked))
    reader.start()
    for _ in range(500):
        append(log, batch())
    reader.join()
    assert found == list(range(500))


def test_a_file_that_is_shorter_than_it_was(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        append(log, batch())
    path = segment_files(tmp_path)[0]
    os.truncate(path, path.stat().st_size - 10)
    with pytest.raises(CorruptLogError):
        list(log.read_batches(0))
