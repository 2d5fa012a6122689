"""The index of a finished segment: found like in a list of its entries, and made anew when it cannot be read."""

import errno
import os
from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.index import BLOCK, OFFSET_ENTRY, ColdIndex
from moldau.log.segment import CorruptLogError
from moldau.log.settings import LogConfig
from moldau.wire.batch import read_header
from support.log.logs import append, batch, flush, open_log

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)


def written(path: Path, entries: list[tuple[int, int]]) -> ColdIndex:
    path.write_bytes(b"".join(OFFSET_ENTRY.pack(*each) for each in entries))
    return ColdIndex(str(path))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_finds_what_a_list_of_its_entries_would(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    steps = st.lists(st.integers(1, 40), min_size=0, max_size=20)
    pattern, times = data.draw(steps), data.draw(st.sampled_from([1, 3, BLOCK // 4, BLOCK]))
    offsets, positions, entries = 0, 0, []
    for step in pattern * times:
        offsets, positions = offsets + step, positions + 100 * step
        entries.append((offsets, positions))
    index = written(tmp_path_factory.mktemp("index") / "x.index", entries)
    assert index.sound(positions + 1)
    for _ in range(20):  # some close to the one before, in the block that was kept
        at = data.draw(st.integers(0, offsets + 50))
        for offset in (at, at + 1, at + 30):
            place = bisect_right(entries, (offset, 2**32))
            assert index.find(offset) == ((0, None) if place == 0 else entries[place - 1][::-1])
            following = bisect_left(entries, 100 * offset, key=lambda entry: entry[1])
            assert index.entry_at(100 * offset) == (entries[following] if following < len(entries) else None)


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    index = written(tmp_path / "x.index", [(number, number) for number in range(4 * BLOCK)])
    index.find(0)
    os.truncate(tmp_path / "x.index", 8 * BLOCK)
    with pytest.raises(OSError, match="truncated"):
        index.find(3 * BLOCK)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_in_a_bad_sector_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    log = open_log(tmp_path, SMALL)
    for number in range(60):
        append(log, batch(timestamp=1000 + number))
    flush(log)
    path = next(iter(sorted((tmp_path / "topic-0").glob(f"*.{suffix}"))))
    bad = path.stat()
    calls = {name: getattr(os, name) for name in ("pread", "read")}

    def fails(name: str) -> object:
        def call(fd: int, *rest: int) -> bytes:
            if os.path.samestat(os.fstat(fd), bad):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            data: bytes = calls[name](fd, *rest)
            return data

        return call

    for name in calls:
        monkeypatch.setattr(os, name, fails(name))
    assert log.locate(5, 1 << 20, log.end_offset, whole_first=True) is not None
    assert [header.base_offset for header in log.read_headers(5)][:3] == [5, 6, 7]
    found = log.segments.batch_at_time(1007, log.start_offset)
    assert found is not None
    assert read_header(memoryview(found)).base_offset == 7
    assert path.stat().st_ino != bad.st_ino
    assert "cannot be read: Input/output error" in caplog.text
    log.close()


def test_too_many_open_files_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, SMALL)
    for _ in range(60):
        append(log, batch())
    flush(log)
    segment = log.segments.each[0]

    def refuse(path: str) -> ColdIndex:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr("moldau.log.segment.ColdIndex", refuse)
    with pytest.raises(OSError, match="Too many open files") as caught:
        segment.position_of(5)
    assert not isinstance(caught.value, CorruptLogError)
    log.close()
