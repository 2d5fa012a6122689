"""Retention: whole segments go, oldest first, by age or by size, whichever comes first."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log import log as log_module
from moldau.log.log import Log
from moldau.log.retention import delete_old_segments, retained_from
from moldau.log.segments import SegmentSummary
from moldau.log.settings import LogConfig
from support.log.logs import NOW, append, batch, open_log, read, segment_files

SIZE = len(batch())
DAY = 86_400_000
TWO_EACH = 2 * SIZE  # bytes of a segment


def written(directory: Path, ages: list[int], **settings: object) -> Log:
    """A log with two records in each segment, which were written so long ago (ms)."""
    log = open_log(directory, LogConfig(segment_bytes=TWO_EACH, segment_ms=2**62, **settings))  # type: ignore[arg-type]
    for age in ages:
        append(log, batch(timestamp=NOW - age), now=NOW)
    return log


def starts(directory: Path) -> list[int]:
    return [int(path.stem) for path in segment_files(directory)]


def test_a_segment_is_as_old_as_its_newest_record(tmp_path: Path) -> None:
    log = written(tmp_path, [9 * DAY, 8 * DAY, 9 * DAY, 6 * DAY, 0], retention_ms=7 * DAY)
    removed = delete_old_segments(log, NOW, log.end_offset)
    assert (log.start_offset, starts(tmp_path)) == (2, [2, 4])
    assert {path.suffix for path in removed} == {".deleted"}
    assert delete_old_segments(log, NOW, log.end_offset) == []


def test_at_the_very_age_it_stays(tmp_path: Path) -> None:
    log = written(tmp_path, [7 * DAY, 7 * DAY, 0], retention_ms=7 * DAY)
    assert delete_old_segments(log, NOW, log.end_offset) == []
    delete_old_segments(log, NOW + 1, log.end_offset)
    assert log.start_offset == 2


def test_all_too_old_leaves_an_empty_log_that_goes_on(tmp_path: Path) -> None:
    log = written(tmp_path, [9 * DAY, 9 * DAY, 8 * DAY], retention_ms=7 * DAY)
    delete_old_segments(log, NOW, log.end_offset)
    assert (log.start_offset, log.end_offset, log.size, starts(tmp_path)) == (3, 3, 0, [3])
    assert append(log, batch(), now=NOW) == 3
    log.close()
    again = open_log(tmp_path, log.config)
    assert (again.start_offset, again.end_offset) == (3, 4)


def test_by_size_no_less_than_asked_for_stays(tmp_path: Path) -> None:
    log = written(tmp_path, [0] * 9, retention_ms=-1, retention_bytes=5 * SIZE)
    delete_old_segments(log, NOW, log.end_offset)
    assert (log.start_offset, log.size) == (4, 5 * SIZE)
    log.configure(LogConfig(segment_bytes=TWO_EACH, retention_ms=-1, retention_bytes=5 * SIZE - 1))
    assert delete_old_segments(log, NOW, log.end_offset) == [], "the next segment would take too much with it"


def test_compaction_alone_deletes_nothing(tmp_path: Path) -> None:
    log = written(tmp_path, [9 * DAY] * 4, retention_ms=7 * DAY, cleanup_policy=frozenset({"compact"}))
    assert delete_old_segments(log, NOW, log.end_offset) == []
    log.configure(LogConfig(cleanup_policy=frozenset({"compact", "delete"})))
    delete_old_segments(log, NOW, log.end_offset)
    assert log.start_offset == 4


def test_nothing_above_the_high_watermark_goes(tmp_path: Path) -> None:
    log = written(tmp_path, [9 * DAY] * 5, retention_ms=7 * DAY)
    delete_old_segments(log, NOW, 3)
    assert log.start_offset == 2


def test_records_without_time_are_as_old_as_their_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=TWO_EACH))
    for _ in range(3):
        append(log, batch(timestamp=-1), now=NOW)
    os.utime(segment_files(tmp_path)[0], (0, (NOW - 8 * DAY) / 1000))
    os.utime(segment_files(tmp_path)[1], (0, NOW / 1000))
    delete_old_segments(log, NOW, log.end_offset)
    assert log.start_offset == 2


def test_who_reads_a_deleted_segment_reads_on(tmp_path: Path) -> None:
    log = written(tmp_path, [9 * DAY, 9 * DAY, 0], retention_ms=7 * DAY)
    reading = log.locate(0, 1 << 20, log.end_offset, whole_first=True)
    before = read(reading)
    delete_old_segments(log, NOW, log.end_offset)
    assert read(reading) == before


def test_an_idle_segment_is_finished_when_it_is_due(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_ms=DAY))
    log.roll_if_due(NOW + 9 * DAY)
    assert log.segment_count == 1, "an empty one stays"
    append(log, batch(timestamp=NOW), now=NOW)
    log.roll_if_due(NOW + DAY)
    assert log.segment_count == 1
    log.roll_if_due(NOW + DAY + 1)
    assert log.segment_count == 2


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_the_longest_wait_for_compaction_finishes_segments_of_compacted_logs(tmp_path: Path, policy: str) -> None:
    log = open_log(tmp_path, LogConfig(cleanup_policy=frozenset({policy}), max_compaction_lag_ms=DAY))
    append(log, batch(timestamp=NOW), now=NOW)
    log.roll_if_due(NOW + DAY + 1)
    assert log.segment_count == (2 if policy == "compact" else 1)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), max_size=8),
    age=st.integers(-1, 100),
    most=st.integers(-1, 200),
    upper=st.integers(0, 10),
)
def test_what_is_kept_is_what_the_settings_ask_for(
    sizes: list[tuple[int, int]], age: int, most: int, upper: int
) -> None:
    held = [SegmentSummary(place + 1, size, newest) for place, (size, newest) in enumerate(sizes)]
    total = sum(each.size for each in held)
    config = LogConfig(retention_ms=age, retention_bytes=most)
    gone = retained_from(held, total, config, 100, upper) or 0
    assert gone <= upper
    left = held[gone:]
    if left and left[0].end <= upper:
        assert age < 0 or 100 - left[0].newest <= age, "too old, and still there"
        assert most < 0 or sum(each.size for each in left[1:]) < most, "too much, and still there"
    for place, each in enumerate(held[:gone]):
        old = 0 <= age < 100 - each.newest
        assert old or (most >= 0 and sum(other.size for other in held[place + 1 :]) >= most), "gone without a reason"


@pytest.mark.parametrize("limit", [-1, -2, -(2**63)])
def test_every_size_below_zero_is_without_limit(tmp_path: Path, limit: int) -> None:
    """Kafka takes any number here, and deletes nothing by it."""
    config = LogConfig.of({"retention.bytes": str(limit), "retention.ms": "-1", "internal.segment.bytes": "200"})
    log = open_log(tmp_path, config)
    for _ in range(9):
        append(log, batch())
    assert delete_old_segments(log, NOW, log.end_offset) == []
    assert log.start_offset == 0


def test_a_full_disk_does_not_keep_old_segments_from_going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems have no room for a new file then; only what goes makes room again."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = written(tmp_path, [9 * DAY] * 5, retention_ms=7 * DAY)
    monkeypatch.setattr(log_module, "create", no_room)
    assert {path.name[:20] for path in delete_old_segments(log, NOW, log.end_offset)} >= {
        f"{base:020d}" for base in (0, 2)
    }
    assert (log.start_offset, log.end_offset, starts(tmp_path)) == (4, 5, [4])
    monkeypatch.undo()
    delete_old_segments(log, NOW, log.end_offset)
    assert (log.start_offset, log.end_offset, starts(tmp_path)) == (5, 5, [5])
