"""The exchange of segments: a crash at any step leaves a log, readers go on, and a changed log is left alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.log import files
from moldau.log.compaction import swapping
from moldau.log.compaction.rewriting import clean
from moldau.log.compaction.swapping import Swaps
from moldau.log.compaction.work import Cleaned
from moldau.log.recovery import CLEANED, SWAP
from moldau.log.settings import LogConfig
from support.log.histories import History, check, check_clean
from support.log.logs import NOW, append, batch, flush, open_log, read


class PowerCut(BaseException):
    """Nothing that runs may catch it."""


def written(directory: Path) -> History:
    history = History(directory)
    for number in range(14):
        producer = number % 3
        history.write([(b"k%d" % (number % 5), b"x" * 80), (b"other%d" % (number % 2), None)], producer=producer)
        if number % 6 == 0:
            history.write([(b"k1", b"aborted")], producer=7, transactional=True)
            history.end(7, commit=number % 12 == 0)
    return history


def steps(monkeypatch: pytest.MonkeyPatch, stop_at: int) -> list[str]:
    """From now on the `stop_at`-th change of a name, or making such changes durable, is where the power is cut."""
    done: list[str] = []

    def cut(name: str) -> None:
        if len(done) == stop_at:
            raise PowerCut
        done.append(name)

    rename, unlink, sync = os.rename, os.unlink, files.sync_directory

    def renaming(source: str, target: str) -> None:
        if os.path.exists(source):
            cut(f"rename {source[-30:]}")
        rename(source, target)

    def unlinking(path: str) -> None:
        cut(f"unlink {path}")
        unlink(path)

    def syncing(path: str) -> None:
        cut("sync")
        sync(path)

    monkeypatch.setattr(os, "rename", renaming)
    monkeypatch.setattr(os, "unlink", unlinking)
    monkeypatch.setattr(swapping, "sync_directory", syncing)
    return done


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_crash_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    stop_at, finished = 0, False
    while not finished:
        history = written(tmp_path / str(stop_at))
        for _ in range(rounds - 1):
            history.clean()
            history.write([(b"k2", b"new"), (b"k3", b"new")])
        known = {state.producer_id: state.last_sequence for state in history.log.producers}
        with monkeypatch.context() as patched:
            history.work()  # rolls and flushes, of which the crashes are tested elsewhere
            steps(patched, stop_at)
            try:
                history.clean()
                finished = True
            except PowerCut:
                stop_at += 1
        history.reopen(clean_stop=False, recovery_point=stop_at * 7)
        assert not [path for path in (history.directory / "topic-0").iterdir() if path.suffix in (CLEANED, SWAP)]
        check(history)
        assert {state.producer_id: state.last_sequence for state in history.log.producers} == known
        history.log.first_dirty_offset = 0
        history.clean()
        check(history)
        check_clean(history)
    assert stop_at > 20


def groups(history: History) -> Iterator[tuple[Swaps, Cleaned]]:
    work = history.work()
    swaps = Swaps(history.log, work)
    for told in clean(work, lambda _: None):
        if isinstance(told, Cleaned):
            yield swaps, told


def leftovers(history: History) -> list[str]:
    return [path.name for path in (history.directory / "topic-0").iterdir() if path.suffix in (CLEANED, SWAP)]


def test_a_log_that_was_truncated_is_left_alone(tmp_path: Path) -> None:
    history = written(tmp_path)
    swaps, cleaned = next(groups(history))
    swaps.commit(cleaned)
    history.log.truncate_to(cleaned.bases[-1] + 1, NOW)
    assert not swaps.possible(cleaned)
    swaps.undo(cleaned)
    assert not leftovers(history)


def test_a_log_whose_beginning_went_is_left_alone(tmp_path: Path) -> None:
    history = written(tmp_path)
    swaps, cleaned = next(groups(history))
    assert swaps.possible(cleaned)
    history.log.advance_start(history.log.segments.bases[1])
    assert not swaps.possible(cleaned)


def test_readers_under_way_go_on(tmp_path: Path) -> None:
    """With a piece that was planned, with an iterator in a thread, and with a segment that was found before."""
    history = written(tmp_path)
    log = history.log
    before = [(bytes(data)) for _, data in log.read_batches(0)]
    piece = log.locate(0, 1 << 20, log.end_offset, whole_first=True)
    bytes_before = read(piece)
    walking = log.read_batches(0)
    first = next(walking)
    segment, others = log.segments.each[0], list(log.segments.each)
    latest = [each.max_timestamp() for each in others]
    for each in others:
        each.close()
        each._max_timestamp = None
    for _ in range(2):
        history.clean()
        history.write([(b"k1", b"again")])
    assert read(piece) == bytes_before
    assert [bytes(first[1]), *(bytes(data) for _, data in walking)] == before
    assert segment.gone
    headers = [header for _, header in segment.headers()]
    assert segment.position_of(headers[1][0]) == headers[0][1] + 12
    assert [each.max_timestamp() for each in others] == latest


def test_an_emptied_segment_takes_the_old_transaction_index_with_it(tmp_path: Path) -> None:
    """A crash between the names: what was compacted away must not come back in an index."""
    history = History(tmp_path)
    history.write([(b"a", b"aborted")], producer=7, transactional=True)
    history.end(7, commit=False)
    history.log.roll(NOW)
    flush(history.log)
    directory = history.directory / "topic-0"
    stem = directory / f"{0:020d}"
    assert stem.with_suffix(".txnindex").exists()
    for suffix in (".log", ".index", ".timeindex"):
        stem.with_suffix(suffix + SWAP).write_bytes(b"")
    history.log.close(clean=False)
    log = open_log(tmp_path, LogConfig())
    assert log.aborted_transactions(0, 10) == []
    assert not stem.with_suffix(".txnindex").exists()


def test_sizes_add_up_after_an_exchange(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=len(batch())))
    for _ in range(4):
        append(log, batch())
    flush(log)
    stem = tmp_path / "topic-0" / f"{1:020d}"
    for suffix in (".index", ".timeindex"):
        stem.with_suffix(suffix + SWAP).write_bytes(b"")
    stem.with_suffix(".log" + SWAP).write_bytes(b"")
    removed = log.replace_segments([1, 2], 0, False, NOW)
    assert log.segments.bases == [0, 1, 3]
    assert log.size == 2 * len(batch())
    assert all(path.exists() for path in removed)
    assert [header.base_offset for header in log.read_headers(0)] == [0, 3]
