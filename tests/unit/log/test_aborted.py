"""Transaction indexes: what is in them, that they survive stops of every kind, and that a broken one is made anew."""

from pathlib import Path

import pytest

from moldau.log import aborted
from moldau.log.aborted import Aborted
from moldau.log.log import Log
from moldau.log.markers import Marker, encode_marker, read_marker
from moldau.log.settings import LogConfig
from moldau.wire.batch import TRANSACTIONAL, read_header
from support.log.logs import NOW, append, batch, flush, open_log

SMALL = LogConfig(segment_bytes=200, index_interval_bytes=100)
COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


def write(log: Log, producer_id: int, sequence: int = 0, count: int = 1) -> int:
    data = batch(count, producer_id=producer_id, epoch=0, sequence=sequence, attributes=TRANSACTIONAL)
    return append(log, data)


def end(log: Log, producer_id: int, marker: Marker) -> int:
    data = encode_marker(producer_id, 0, marker, NOW)
    return log.append(read_header(data), data, 0, NOW)


def some_transactions(log: Log) -> None:
    """Producers 1 and 3 abort, 2 commits in between, 4 stays open; with SMALL they lie in several segments."""
    write(log, 1)  # 0
    write(log, 2, count=2)  # 1, 2
    write(log, 1, 1)  # 3
    end(log, 1, ABORT)  # 4
    write(log, 3)  # 5
    end(log, 2, COMMIT)  # 6
    write(log, 4)  # 7
    end(log, 3, ABORT)  # 8


FIRST, SECOND = Aborted(1, 0, 4, 1), Aborted(3, 5, 8, 7)


def test_an_aborted_transaction_is_told_where_it_overlaps(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    some_transactions(log)
    assert log.segment_count > 2
    assert log.last_stable_offset(log.end_offset) == 7
    assert log.aborted_transactions(0, 7) == [FIRST, SECOND]
    assert log.aborted_transactions(5, 7) == [SECOND]
    assert log.aborted_transactions(0, 5) == [FIRST]
    assert log.aborted_transactions(4, 5) == [FIRST]
    assert log.aborted_transactions(9, 20) == []


def test_the_search_ends_where_nothing_later_can_overlap() -> None:
    entries = b"".join(each.pack() for each in (FIRST, SECOND))
    assert aborted.find(entries, 0, 7) == ([FIRST, SECOND], True)
    assert aborted.find(entries, 0, 1) == ([FIRST], True)
    assert aborted.find(entries, 0, 8) == ([FIRST, SECOND], False)
    assert aborted.cut(entries, 8) == FIRST.pack()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("flushed", [True, False])
def test_a_stop_loses_neither_open_nor_aborted_transactions(tmp_path: Path, clean: bool, flushed: bool) -> None:
    log = open_log(tmp_path, SMALL)
    some_transactions(log)
    if flushed:
        flush(log)
    log.close(clean=clean)
    again = open_log(tmp_path, SMALL, clean=clean, recovery_point=log.recovery_point)
    assert again.aborted_transactions(0, 7) == [FIRST, SECOND]
    assert again.last_stable_offset(again.end_offset) == 7
    end(again, 4, ABORT)
    assert again.aborted_transactions(9, 10) == [Aborted(4, 7, 9, 10)]
    assert again.last_stable_offset(again.end_offset) == 10


def test_files_exist_only_where_there_are_aborted_transactions(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    some_transactions(log)
    log.close()
    files = {int(path.name[:20]): path.read_bytes() for path in (tmp_path / "topic-0").glob("*.txnindex")}
    assert b"".join(files[base] for base in sorted(files)) == FIRST.pack() + SECOND.pack()
    assert len(files) == 2 < log.segment_count


def test_a_commit_leaves_no_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, 1)
    end(log, 1, COMMIT)
    end(log, 2, ABORT)  # of nothing
    log.close()
    assert not list((tmp_path / "topic-0").glob("*.txnindex"))


def test_truncation_takes_aborts_back(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    some_transactions(log)
    log.truncate_to(8, NOW)
    assert log.aborted_transactions(0, 8) == [FIRST]
    assert log.last_stable_offset(log.end_offset) == 5
    log.truncate_to(4, NOW)
    assert log.aborted_transactions(0, 8) == []
    assert log.last_stable_offset(log.end_offset) == 0
    log.close()
    assert not list((tmp_path / "topic-0").glob("*.txnindex"))
    assert open_log(tmp_path, clean=True).aborted_transactions(0, 8) == []


def test_truncation_into_a_finished_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    some_transactions(log)
    flush(log)
    log.truncate_to(5, NOW)
    assert log.aborted_transactions(0, 8) == [FIRST]
    write(log, 3)
    end(log, 3, ABORT)
    assert log.aborted_transactions(0, 8) == [FIRST, Aborted(3, 5, 6, 1)]


def test_retention_takes_aborts_with_their_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    some_transactions(log)
    flush(log)
    removed = log.advance_start(8)
    assert any(".txnindex" in path.name for path in removed)
    assert log.aborted_transactions(8, 9) == [SECOND]
    assert log.last_stable_offset(log.end_offset) == 8  # the open transaction began before the log does now


@pytest.mark.parametrize("damage", [b"x", Aborted(1, 0, -1, 1).pack(), b"\1" * 34])
def test_a_broken_index_is_made_anew(tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path, SMALL)
    some_transactions(log)
    end(log, 4, ABORT)
    log.close()
    paths = sorted((tmp_path / "topic-0").glob("*.txnindex"))
    for path in paths:
        path.write_bytes(damage)
    again = open_log(tmp_path, SMALL, clean=True)
    found = again.aborted_transactions(0, 20)
    assert found == [FIRST, SECOND, Aborted(4, 7, 9, 10)]
    assert "transaction index" in caplog.text
    again.close()
    for path in paths:
        path.write_bytes(damage)
    again = open_log(tmp_path, SMALL, clean=True)
    again.truncate_to(5, NOW)
    assert again.aborted_transactions(0, 20) == [FIRST]


def test_an_index_without_a_segment_goes(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    orphan = tmp_path / "topic-0" / f"{77:020d}.txnindex"
    orphan.write_bytes(FIRST.pack())
    open_log(tmp_path, clean=True)
    assert not orphan.exists()


def test_a_marker_is_what_kafka_writes() -> None:
    """Bytes that Apache Kafka 4.3 wrote for a commit at offset 1 and an abort at offset 3."""
    kafka = {
        Marker(True, 0): (1, 0x1A1E1D861FE, "8395606c", "0001"),
        Marker(False, 0): (3, 0x1A1E1D86231, "1f8f0caf", "0000"),
    }
    for marker, (offset, time, crc, kind) in kafka.items():
        head = offset.to_bytes(8) + bytes.fromhex("000000420000000002" + crc + "003000000000")
        times = time.to_bytes(8) * 2
        producer = (1).to_bytes(8) + bytes.fromhex("0000ffffffff00000001")
        record = bytes.fromhex("20000000080000" + kind + "0c00000000000000")
        written = head + times + producer + record
        ours = encode_marker(1, 0, marker, time)
        assert ours[16:] == written[16:]
        assert len(ours) == len(written) == 78
        assert read_marker(written) == marker
