"""A follower's log: what comes from the leader is appended as it is, and what is wrong with it is noticed."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.files import remove
from moldau.log.follower_append import CorruptFetchError, parse_fetched
from moldau.log.log import Log
from moldau.log.markers import Marker, encode_marker
from moldau.log.repair import contiguous_to, corruption_check, drop_segments, truncate_before_gap, valid_to
from moldau.log.settings import LogConfig
from support.log.logs import NOW, append, batch, flush, headers_on_disk, open_log, producer_view, read

SIZE = len(batch())


def everything(log: Log) -> bytes:
    """All segments' bytes, one behind the other, as the leader's answers would bring them."""
    found, offset = b"", log.start_offset
    while (piece := log.locate(offset, 1 << 30, log.end_offset, whole_first=True)) is not None:
        data = read(piece)
        found += data
        offset = (
            parse_fetched(memoryview(data), 0).headers[-1][0] + parse_fetched(memoryview(data), 0).headers[-1][6] + 1
        )
    return found


def copied(leader: Log, directory: Path, pieces: list[int], config: LogConfig | None = None) -> Log:
    """A follower that gets the leader's bytes in answers of these sizes, cut anywhere."""
    follower = open_log(directory, config)
    data = everything(leader)
    at = 0
    turn = 0
    while at < len(data):
        size = max(pieces[turn % len(pieces)], 2 * SIZE)
        turn += 1
        copies = parse_fetched(memoryview(data)[at : at + size], follower.end_offset)
        follower.append_as_follower(copies, NOW)
        at += len(copies.data)
    return follower


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.booleans()), min_size=1, max_size=30),
    pieces=st.lists(st.integers(100, 1500), min_size=1, max_size=5),
    segment_bytes=st.integers(2 * SIZE + 20, 12 * SIZE),
)
def test_a_copy_is_the_same_log(
    counts: list[tuple[int, int, bool]], pieces: list[int], segment_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("logs")
    leader = open_log(directory / "leader", LogConfig(segment_bytes=12 * SIZE))
    epoch, sequence = 0, 0
    for count, more, idempotent in counts:
        epoch += more
        fields = {"producer_id": 7, "epoch": 0, "sequence": sequence} if idempotent else {}
        sequence += count if idempotent else 0
        append(leader, batch(count, **fields), epoch)
    follower = copied(leader, directory / "follower", pieces, LogConfig(segment_bytes=segment_bytes))
    assert everything(follower) == everything(leader)
    assert follower.end_offset == leader.end_offset
    assert follower.epochs.entries() == leader.epochs.entries()
    assert producer_view(follower) == producer_view(leader)
    for offset in range(leader.end_offset):
        assert (
            read(follower.locate(offset, SIZE, follower.end_offset, whole_first=True))[:12]
            == (read(leader.locate(offset, SIZE, leader.end_offset, whole_first=True))[:12])
        )
    follower.close()
    again = open_log(directory / "follower", clean=True)
    assert (again.end_offset, again.epochs.entries()) == (leader.end_offset, leader.epochs.entries())


def test_transactions_are_followed(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    append(leader, batch(2, producer_id=5, epoch=0, sequence=0, attributes=0x10))
    append(leader, batch(1))
    append(leader, memoryview(encode_marker(5, 0, Marker(False, 1), NOW)))
    append(leader, batch(2, producer_id=6, epoch=0, sequence=0, attributes=0x10))
    follower = copied(leader, tmp_path / "follower", [200])
    assert follower.aborted_transactions(0, 10) == leader.aborted_transactions(0, 10) != []
    assert follower.last_stable_offset(6) == leader.last_stable_offset(6) == 4


def test_gaps_that_compaction_left_are_kept(tmp_path: Path) -> None:
    follower = open_log(tmp_path)
    data = bytes(batch(2, base_offset=3, leader_epoch=1)) + bytes(batch(1, base_offset=9, leader_epoch=1))
    follower.append_as_follower(parse_fetched(memoryview(data), 0), NOW)
    assert follower.end_offset == 10
    assert [header.base_offset for header in headers_on_disk(tmp_path)] == [3, 9]
    assert follower.epochs.entries() == [(1, 3)]


def test_what_is_there_already_is_left_out_and_a_cut_end_comes_again() -> None:
    data = bytes(batch(2)) + bytes(batch(3, base_offset=2)) + bytes(batch(1, base_offset=5))[:-1]
    copies = parse_fetched(memoryview(data), 3)
    assert [header[0] for header in copies.headers] == [2]
    assert len(copies.data) == len(batch(3))


@pytest.mark.parametrize(
    "data",
    [
        bytes(batch(1, crc=1)),
        bytes(batch(1, magic=1)),
        bytes(batch(1, length=20)),
        bytes(batch(2, base_offset=4)) + bytes(batch(1, base_offset=5)),
    ],
    ids=["checksum", "format", "length", "order"],
)
def test_a_broken_answer_is_refused_as_a_whole(data: bytes) -> None:
    with pytest.raises(CorruptFetchError):
        parse_fetched(memoryview(data), 0)


def test_a_leader_that_wrote_nothing_leaves_no_epoch_behind(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3), 4)
    log.epochs.assign(5, log.end_offset)
    assert log.truncate_to(log.end_offset, NOW) == []
    assert log.epochs.entries() == [(4, 0)]


def test_an_epoch_that_began_later_on_the_leader_begins_there(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    for epoch in (0, 0, 2, 7):
        append(leader, batch(), epoch)
    follower.append_as_follower(parse_fetched(memoryview(everything(leader))[:SIZE], 0), NOW)
    follower.epochs.assign(7, 1)
    follower.append_as_follower(parse_fetched(memoryview(everything(leader))[SIZE:], 1), NOW)
    assert follower.epochs.entries() == leader.epochs.entries() == [(0, 0), (2, 2), (7, 3)]


def test_a_crash_after_the_log_was_cut_brings_no_leader_back(tmp_path: Path) -> None:
    """The file of epochs is older than the cut: its leader of epoch 5 wrote what nobody else had."""
    log = open_log(tmp_path)
    for epoch in (4, 4, 5):
        append(log, batch(), epoch)
    flush(log)
    log.truncate_to(2, NOW)
    for epoch in (4, 6, 6):  # as its new leader has it
        append(log, batch(), epoch)
    log.close(clean=False)
    again = open_log(tmp_path, recovery_point=2)
    assert again.epochs.entries() == [(4, 0), (6, 3)]
    assert again.end_offset_for_epoch(4) == (4, 3), "a follower that has all of it need not cut any of it"


def test_a_log_begins_anew_where_the_leaders_begins(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3), 4)
    log.truncate_fully_and_start_at(100, NOW)
    assert (log.start_offset, log.end_offset, log.epochs.entries(), log.size) == (100, 100, [], 0)
    log.append_as_follower(parse_fetched(batch(1, base_offset=100, leader_epoch=6), 100), NOW)
    assert (log.end_offset, log.epochs.entries()) == (101, [(6, 100)])


def test_damage_is_found_by_reading(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=3 * SIZE))
    for _ in range(8):
        append(log, batch())
    assert valid_to(log) == 8
    look = corruption_check(log, 4)
    append(log, batch())
    assert not look()
    path = sorted((tmp_path / "topic-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[SIZE + 65] ^= 1
    path.write_bytes(data)
    assert valid_to(log) == 3, "where its segment begins"
    assert [corruption_check(log, offset)() for offset in (2, 3, 5, 6)] == [False, True, True, False]


@settings(max_examples=60, deadline=None)
@given(
    place=st.floats(0, 1, exclude_max=True),
    stretch=st.integers(17, 200),  # of a batch's first 16 bytes most are in no checksum
    running=st.booleans(),
    index_interval=st.sampled_from([1, 4096]),
)
def test_what_was_damaged_anywhere_is_cut_off_and_can_be_copied_again(
    place: float, stretch: int, running: bool, index_interval: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("logs")
    leader = open_log(directory / "leader")
    for sequence in range(20):
        append(leader, batch(2, producer_id=7, epoch=0, sequence=2 * sequence), sequence // 6)
    config = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=index_interval)
    follower = copied(leader, directory / "follower", [3 * SIZE], config)
    if not running:
        follower.close(clean=True)
    paths = sorted((directory / "follower" / "topic-0").glob("*.log"))
    whole = b"".join(path.read_bytes() for path in paths)
    at = int(place * len(whole))
    for path in paths:
        size = path.stat().st_size
        if 0 <= at < size:
            data = bytearray(path.read_bytes())
            data[at : at + stretch] = bytes(each ^ 0x5A for each in data[at : at + stretch])
            path.write_bytes(data)
        at -= size
    if not running:
        follower = open_log(directory / "follower", config)
    if valid_to(follower) < follower.end_offset:
        drop_segments(follower, valid_to(follower), NOW)
    assert valid_to(follower) == follower.end_offset
    data = everything(leader)
    held = everything(follower)
    assert data.startswith(held)
    follower.append_as_follower(parse_fetched(memoryview(data)[len(held) :], follower.end_offset), NOW)
    assert everything(follower) == data
    assert producer_view(follower) == producer_view(leader)
    assert follower.epochs.entries() == leader.epochs.entries()


@pytest.mark.parametrize(("left", "last"), [(0, 3), (1, 3), (2, 3), (2, 0)])
def test_what_a_power_cut_took_out_of_the_middle_is_noticed(
    left: int, last: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of three segments the first was synced; of the second so many batches are left, of the third too."""
    config = LogConfig(segment_bytes=3 * SIZE)
    log = open_log(tmp_path, config)
    for _ in range(9):
        append(log, batch())
    log.close(clean=False)
    _, second, third = sorted((tmp_path / "topic-0").glob("*.log"))
    second.write_bytes(second.read_bytes()[: left * SIZE])
    third.write_bytes(third.read_bytes()[: last * SIZE])
    again = open_log(tmp_path, config, recovery_point=3)
    assert again.end_offset == 6 + last, "without another copy what is left is kept"
    assert contiguous_to(again) == 3 + left
    truncate_before_gap(again, NOW)
    assert again.end_offset == 3 + left
    if last:
        told = f"are missing at offset {3 + left}; removing offsets {3 + left} to {5 + last}. The replica copies them"
        assert told in caplog.text


def test_nothing_is_missing_where_compaction_left_a_gap_and_all_was_synced(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(parse_fetched(batch(2, leader_epoch=1), 0), NOW)
    log.append_as_follower(parse_fetched(batch(2, base_offset=9, leader_epoch=1), 2), NOW)
    log.durability.recovery_point = log.end_offset
    assert contiguous_to(log) == 11


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    log = open_log(tmp_path)
    append(log, batch())
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:10]))
    with pytest.raises(OSError, match="10 of"):
        log.append_as_follower(parse_fetched(batch(1, base_offset=1), 1), NOW)
    monkeypatch.undo()
    assert (log.end_offset, log.size) == (1, SIZE)
    log.append_as_follower(parse_fetched(batch(1, base_offset=1), 1), NOW)
    assert [header.base_offset for header in headers_on_disk(tmp_path)] == [0, 1]


def test_a_log_that_begins_anew_knows_no_producer_of_the_one_before(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(4, producer_id=5, epoch=0, sequence=0), 1)
    log.close()
    log = open_log(tmp_path, clean=True)
    append(log, batch(3, producer_id=5, epoch=0, sequence=4), 1)
    log.truncate_fully_and_start_at(4, NOW)  # where a snapshot is
    assert producer_view(log) == {}
    append(log, batch(2, producer_id=6, epoch=0, sequence=0), 2)
    log.close()
    assert list(producer_view(open_log(tmp_path, clean=True))) == [6]


def test_what_leaves_the_log_while_it_is_looked_at_is_not_damaged(tmp_path: Path) -> None:
    """Retention takes segments, and compaction puts smaller ones in their place."""
    log = open_log(tmp_path, LogConfig(segment_bytes=3 * SIZE))
    for _ in range(8):
        append(log, batch())
    look = corruption_check(log, 1)
    remove(log.advance_start(4))
    assert not look()


def test_a_segment_that_was_cut_off_and_is_there_again_is_noticed(tmp_path: Path) -> None:
    """The power went before its name was gone for good; meanwhile a later leader wrote up to where it begins."""
    config = LogConfig(segment_bytes=3 * SIZE)
    log = open_log(tmp_path, config)
    for _ in range(8):
        append(log, batch(), 4)
    old = (tmp_path / "topic-0" / f"{6:020d}.log").read_bytes()
    remove(log.truncate_to(4, NOW))
    for _ in range(2):
        append(log, batch(), 5)
    log.close(clean=False)
    (tmp_path / "topic-0" / f"{6:020d}.log").write_bytes(old)
    again = open_log(tmp_path, config)
    assert again.end_offset == 8
    assert contiguous_to(again) == 6
