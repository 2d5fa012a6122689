"""The log as its callers see it: rolling, reading, shortening, flushing, closing."""

import errno
import gc
import os
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from moldau.log import log as log_module
from moldau.log.checkpoints import read_topic_id
from moldau.log.files import OpenFiles, remove
from moldau.log.partition_metadata import TopicIdLostError, TopicIdMismatchError
from moldau.log.recovery import OldFormatError
from moldau.log.settings import LogConfig
from moldau.wire.batch import read_header
from support.log.logs import (
    NOW,
    TOPIC_ID,
    append,
    batch,
    flush,
    headers_on_disk,
    open_log,
    read,
    segment_files,
    whole_batches,
)

SIZE = len(batch())
SMALL = LogConfig(segment_bytes=3 * SIZE)


def bases(directory: Path) -> list[int]:
    return [int(path.stem) for path in segment_files(directory)]


def test_batches_get_the_next_offsets_and_the_leader_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert [append(log, batch(count), epoch) for count, epoch in ((3, 0), (1, 0), (2, 4))] == [0, 3, 4]
    assert log.end_offset == 6
    found = whole_batches(read(log.locate(0, 1 << 20, 6, whole_first=True)))
    assert [(header.base_offset, header.leader_epoch) for header in found] == [(0, 0), (3, 0), (4, 4)]
    assert log.epochs.entries() == [(0, 0), (4, 4)]
    assert log.end_offset_for_epoch(0) == (0, 4)
    assert log.end_offset_for_epoch(2) == (0, 4)
    assert log.end_offset_for_epoch(4) == (4, 6)
    assert log.end_offset_for_epoch(5) == (-1, -1)


def test_new_log_has_kafkas_files(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.close()
    assert sorted(os.listdir(tmp_path / "topic-0")) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_another_topic_of_that_name_is_not_opened(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    with pytest.raises(TopicIdMismatchError, match="belongs to topic id"):
        open_log(tmp_path, topic_id=uuid4())


class TestRolling:
    def test_by_size(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        rolled = []
        log.on_roll = rolled.append
        for _ in range(7):
            append(log, batch())
        assert bases(tmp_path) == [0, 3, 6]
        assert rolled == [log, log]
        assert log.durability.flush_due
        flush(log)
        assert not log.durability.flush_due

    def test_by_time_of_the_records(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_ms=1000))
        for timestamp in (5000, 6000, 6001):
            append(log, batch(timestamp=timestamp), now=NOW)
        assert bases(tmp_path) == [0, 2]

    def test_by_the_clock_where_records_have_no_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_ms=1000))
        for now in (NOW, NOW + 1000, NOW + 1001):
            append(log, batch(timestamp=-1), now=now)
        assert bases(tmp_path) == [0, 2]

    def test_time_counts_from_the_first_batch_after_a_restart_too(self, tmp_path: Path) -> None:
        config = LogConfig(segment_ms=1000)
        log = open_log(tmp_path, config)
        append(log, batch(timestamp=5000))
        log.close()
        log = open_log(tmp_path, config, clean=True)
        append(log, batch(timestamp=6001))
        assert bases(tmp_path) == [0, 1]

    def test_jitter_shortens(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(segment_ms=1000, segment_jitter_ms=1000))
        append(log, batch(timestamp=5000))
        append(log, batch(timestamp=6000))
        assert bases(tmp_path) == [0, 1]

    def test_when_the_index_is_full(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=36))
        for _ in range(6):
            append(log, batch(timestamp=-1))
        assert bases(tmp_path) == [0, 5]  # four entries of 8 bytes, none for the first batch

    def test_when_the_time_index_is_full(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=36))
        for number in range(4):
            append(log, batch(timestamp=NOW + number))
        assert bases(tmp_path) == [0, 3]  # two entries of 12 bytes, and room for the last

    def test_before_relative_offsets_overflow(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, batch(last_offset_delta=2**31 - 2, record_count=2**31 - 1))
        append(log, batch())
        append(log, batch())
        assert bases(tmp_path) == [0, 2**31]

    def test_an_empty_segment_stays(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.roll(NOW)
        assert bases(tmp_path) == [0]

    def test_settings_change_while_it_runs(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        for _ in range(5):
            append(log, batch())
        log.configure(replace(log.config, segment_bytes=SIZE))
        append(log, batch())
        assert bases(tmp_path) == [0, 5]


class TestReading:
    def test_slices_outlive_their_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        for _ in range(7):
            append(log, batch())
        piece = log.locate(0, 1 << 20, log.end_offset, whole_first=True)
        expected = read(piece)
        remove(log.advance_start(6))
        assert bases(tmp_path) == [6]
        assert read(piece) == expected

    def test_descriptors_are_bounded_and_given_back(self, tmp_path: Path) -> None:
        gc.collect()
        before = len(os.listdir("/proc/self/fd")) if Path("/proc").exists() else pytest.skip("needs /proc")
        log = open_log(tmp_path, SMALL, files=OpenFiles(limit=4))
        for _ in range(60):
            append(log, batch())
        flush(log)
        for offset in range(60):
            assert whole_batches(read(log.locate(offset, SIZE, 60, whole_first=True)))[0].base_offset == offset
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) - before <= 8
        log.close()
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_a_gap_that_compaction_left_is_stepped_over(self, tmp_path: Path) -> None:
        directory = tmp_path / "topic-0"
        directory.mkdir()
        kept = [batch(base_offset=offset) for offset in (0, 1, 10, 20)]
        (directory / f"{0:020d}.log").write_bytes(b"".join(kept[:2]))
        (directory / f"{8:020d}.log").write_bytes(b"".join(kept[2:]))
        log = open_log(tmp_path)
        for asked, found in ((0, 0), (1, 1), (2, 10), (7, 10), (9, 10), (11, 20), (20, 20)):
            assert whole_batches(read(log.locate(asked, 1 << 20, 21, whole_first=True)))[0].base_offset == found
        assert whole_batches(read(log.locate(2, 1 << 20, 20, whole_first=True)))[-1].base_offset == 10

    def test_times_of_records_before_the_start_are_not_found(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        for timestamp in (100, 300, 200):
            append(log, batch(timestamp=timestamp))
        log.advance_start(2)
        assert read_header(log.segments.batch_at_time(150, log.start_offset) or b"").base_offset == 2
        assert log.segments.batch_at_time(250, log.start_offset) is None


class TestShortening:
    def test_start_moves_and_whole_segments_go(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        for epoch in range(7):
            append(log, batch(), epoch)
        flush(log)
        paths = log.advance_start(5)
        assert (log.start_offset, log.end_offset) == (5, 7)
        assert bases(tmp_path) == [3, 6]
        assert log.epochs.entries() == [(5, 5), (6, 6)]
        remove(paths)
        assert not list((tmp_path / "topic-0").glob("*.deleted"))
        assert log.advance_start(4) == []
        log.close()
        log = open_log(tmp_path, SMALL, clean=True, log_start=5)
        assert (log.start_offset, log.end_offset) == (5, 7)

    def test_everything_deleted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        for _ in range(7):
            append(log, batch())
        log.roll(NOW)
        remove(log.advance_start(7))
        assert bases(tmp_path) == [7]
        assert log.size == 0
        log.close()
        log = open_log(tmp_path, SMALL, clean=True, log_start=7)
        assert (log.start_offset, log.end_offset) == (7, 7)
        assert append(log, batch()) == 7

    def test_a_start_behind_the_end_begins_there(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, batch())
        log.close()
        log = open_log(tmp_path, clean=True, log_start=100)
        assert (log.start_offset, log.end_offset) == (100, 100)
        assert append(log, batch()) == 100

    def test_truncation_in_a_batch_takes_it_whole(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        for _ in range(3):
            append(log, batch(4))
        log.truncate_to(6, NOW)
        assert log.end_offset == 4
        assert append(log, batch()) == 4

    def test_truncation_before_the_first_segment_starts_over(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, log_start=50)
        append(log, batch())
        remove(log.truncate_to(20, NOW))
        assert (log.start_offset, log.end_offset, log.recovery_point) == (20, 20, 20)
        assert bases(tmp_path) == [20]
        assert append(log, batch()) == 20

    def test_delete_leaves_nothing_under_the_name(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, batch())
        [path] = log.delete()
        assert not (tmp_path / "topic-0").exists()
        assert path.name.startswith("topic-0.")
        assert path.name.endswith("-delete")
        remove([path])
        assert not list(tmp_path.iterdir())


class TestDurability:
    def test_the_recovery_point_moves_with_a_finished_flush(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, batch())
        job = log.begin_flush()
        append(log, batch())
        assert log.recovery_point == 0
        job.run()
        log.finish_flush(job)
        assert log.recovery_point == 1

    def test_a_flush_that_a_truncation_overtook_is_void(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        for _ in range(7):
            append(log, batch())
        job = log.begin_flush()
        log.truncate_to(2, NOW)
        job.run()
        log.finish_flush(job)
        assert log.recovery_point == 0
        for _ in range(7):
            append(log, batch())
        flush(log)
        assert log.recovery_point == 9
        log.close(clean=False)
        log = open_log(tmp_path, SMALL, recovery_point=9)
        assert [header.base_offset for header in log.read_headers(0)] == list(range(9))

    def test_a_short_write_leaves_no_trace(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(tmp_path)
        append(log, batch())
        with monkeypatch.context() as patch:
            patch.setattr(log_module, "_writev", lambda fd, parts: os.write(fd, bytes(parts[0])))
            with pytest.raises(OSError, match="16 of"):
                append(log, batch())
        assert log.end_offset == 1
        assert append(log, batch()) == 1
        assert [header.base_offset for header in headers_on_disk(tmp_path)] == [0, 1]

    def test_closing_an_unchanged_log_writes_nothing(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, batch())
        log.close()
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "topic-0").iterdir()}
        open_log(tmp_path, clean=True).close()
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "topic-0").iterdir()} == before


class TestOtherPeoplesLeftovers:
    def test_broken_leader_epochs_are_read_from_the_batches(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        for epoch in (0, 0, 3, 3, 7):
            append(log, batch(), epoch)
        log.close()
        (tmp_path / "topic-0" / "leader-epoch-checkpoint").write_text("0\n5\n")
        log = open_log(tmp_path, SMALL, clean=True)
        assert log.epochs.entries() == [(0, 0), (3, 2), (7, 4)]
        log.close()
        assert open_log(tmp_path, SMALL, clean=True).epochs.entries() == [(0, 0), (3, 2), (7, 4)]

    def test_a_broken_topic_id_of_a_log_that_was_synced_is_written_anew(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, batch())
        log.close()
        (tmp_path / "topic-0" / "partition.metadata").write_text("version: 0")
        assert open_log(tmp_path).end_offset == 1
        assert read_topic_id(tmp_path / "topic-0") == TOPIC_ID

    def test_a_broken_topic_id_of_a_log_that_never_was_is_not_guessed_at(self, tmp_path: Path) -> None:
        append(open_log(tmp_path), batch())
        (tmp_path / "topic-0" / "partition.metadata").write_text("version: 0")
        with pytest.raises(TopicIdLostError, match=r"partition\.metadata"):
            open_log(tmp_path)

    def test_old_message_formats_are_refused_and_not_cut(self, tmp_path: Path) -> None:
        import zlib
        from struct import pack

        directory = tmp_path / "topic-0"
        directory.mkdir()
        body = pack(">bbqi", 1, 0, 1000, -1) + pack(">i", 60) + b"v" * 60
        message = pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
        (directory / f"{0:020d}.log").write_bytes(message)
        with pytest.raises(OldFormatError, match="format 1"):
            open_log(tmp_path)
        assert (directory / f"{0:020d}.log").read_bytes() == message

    def test_an_interrupted_compaction_is_finished(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        for _ in range(8):
            append(log, batch())
        log.close()
        directory = tmp_path / "topic-0"
        compacted = batch(base_offset=5, last_offset_delta=0)
        (directory / f"{0:020d}.log.swap").write_bytes(compacted)
        (directory / f"{6:020d}.log.cleaned").write_bytes(b"half")
        (directory / f"{3:020d}.log.deleted").write_bytes(b"old")
        log = open_log(tmp_path, SMALL)
        assert [header.base_offset for header in log.read_headers(0)] == [5, 6, 7]
        assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned", ".deleted")]

    def test_orphaned_index_files_go(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, batch())
        log.close()
        orphan = tmp_path / "topic-0" / f"{7:020d}.index"
        orphan.write_bytes(b"")
        open_log(tmp_path, clean=True)
        assert not orphan.exists()


def test_a_segment_that_cannot_be_begun_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    append(log, batch())
    size = log.size

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(log_module, "create", full)
        for _ in range(3):
            with pytest.raises(OSError, match="no space"):
                append(log, batch())
    assert (log.size, log.end_offset, log.segment_count) == (size, 1, 1)
    assert append(log, batch()) == 1
    assert (log.size, log.segment_count) == (2 * size, 2)


def test_a_directory_without_room_for_a_longer_name_loses_its_files_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    log = open_log(tmp_path, SMALL)
    for _ in range(8):
        append(log, batch())
    piece = log.locate(0, SIZE, 8, whole_first=True)
    assert piece is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", full)
        assert log.advance_start(3) == []
        assert bases(tmp_path) == [3, 6]
        assert len(os.pread(piece.file.fd, piece.length, piece.position)) == SIZE, "it is still being read"
        assert log.delete() == []
    assert list(tmp_path.iterdir()) == []


def test_a_flush_that_ends_late_leaves_a_new_segment_of_an_old_name_alone(tmp_path: Path) -> None:
    """A follower's log is cut while it is flushed, and grows again to where a segment had begun before."""
    log = open_log(tmp_path, SMALL)
    for _ in range(8):
        append(log, batch())
    job = log.begin_flush()
    log.truncate_to(2, NOW)
    for _ in range(3):
        append(log, batch(value=b"other"))
    assert bases(tmp_path) == [0, 3]
    job.run()
    log.finish_flush(job)
    assert bases(tmp_path) == [0, 3]
    flush(log)
    log.close()
    assert open_log(tmp_path, SMALL, clean=True).end_offset == 5
