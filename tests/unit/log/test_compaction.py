"""What compaction keeps, record by record and batch by batch; the key map; what is due."""

from pathlib import Path

import pytest

from moldau.log.compaction.choice import measure
from moldau.log.compaction.keys import ENTRY_BYTES, KeyMap
from moldau.log.compaction.records import read_keys, read_spans
from moldau.log.compaction.rewriting import clean
from moldau.log.compaction.work import Cleaned
from moldau.log.log import Log
from moldau.log.retention import delete_old_segments
from moldau.log.segment import CorruptLogError
from moldau.log.settings import LogConfig
from moldau.wire.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, read_header
from moldau.wire.compression import Codec, CorruptRecords
from moldau.wire.records import Record, check_batch, decode_records, encode_batch
from support.log.histories import COMPACTED, History, check, check_clean
from support.log.logs import NOW, append, batch, flush, open_log, record

DAY = 86_400_000


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def values(history: History) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in history.records()]


# -- records


def test_the_last_value_of_each_key_stays(history: History) -> None:
    history.write([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    history.write([(b"b", b"2"), (b"c", b"1")])
    history.clean()
    assert values(history) == [(b"a", b"2"), (b"b", b"2"), (b"c", b"1")]
    assert [each.offset for each in history.records()] == [2, 3, 4]


def test_what_is_untouched_is_copied_byte_for_byte(history: History) -> None:
    history.write([(b"a", b"1"), (b"b", b"1")], codec=Codec.ZSTD, leader_epoch=7)
    before = history.batches()
    history.clean()
    assert history.batches() == before


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_codec_and_all_else_of_its_header(history: History, codec: Codec) -> None:
    history.write([(b"a", b"1" * 100), (b"b", b"2" * 100), (b"c", b"3" * 100)], codec=codec, producer=5, leader_epoch=3)
    history.now += 10
    history.write([(b"b", b"new")])
    [(before, _), _] = history.batches()
    history.clean()
    (after, data), _ = history.batches()
    assert [each.key for each in decode_records(data, limit=1 << 20)] == [b"a", b"c"]
    changed = ("crc", "length", "record_count")
    assert after == before._replace(**{name: getattr(after, name) for name in changed})
    assert after.codec == codec
    assert after.record_count == 2


def test_the_largest_timestamp_is_that_of_what_stays(history: History) -> None:
    history.write([(b"a", b""), (b"b", b""), (b"c", b"")])  # at now, now + 1, now + 2
    history.write([(b"c", b"")])
    history.clean()
    [(first, _), _] = history.batches()
    assert first.max_timestamp == NOW + 1


def test_a_batch_stamped_by_the_broker_keeps_its_time(tmp_path: Path) -> None:
    history = History(tmp_path)
    records = [Record(0, 5, b"a", b"1"), Record(1, 6, b"b", b"1")]
    data = encode_batch(records, attributes=LOG_APPEND_TIME, max_timestamp=NOW)
    history.log.append(read_header(data), data, 0, NOW)
    history.write([(b"b", b"2")])
    history.clean()
    assert next(iter(history.records())).timestamp == NOW


def test_long_keys_and_the_empty_key_are_keys(history: History) -> None:
    keys = [b"", b"k" * 63, b"k" * 64, b"k" * 70_000]
    for number in range(2):
        history.write([(key, b"%d" % number) for key in keys])
    history.clean()
    assert values(history) == [(key, b"1") for key in keys]


def test_records_without_a_key_go(history: History) -> None:
    """A topic may have been another kind of topic before."""
    history.write([(None, b"1"), (b"a", b"1"), (None, b"2")])
    tally = history.clean()
    assert values(history) == [(b"a", b"1")]
    assert tally is not None
    assert tally.keyless == 2


# -- tombstones


def test_a_tombstone_takes_what_was_before_it_and_goes_later_itself(history: History) -> None:
    history.write([(b"a", b"1"), (b"b", b"1")])
    history.write([(b"a", None), (b"c", b"1")])
    history.clean()
    assert values(history) == [(b"b", b"1"), (b"a", None), (b"c", b"1")]
    header = history.batches()[1][0]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + COMPACTED.delete_retention_ms
    assert [each.timestamp for each in history.records()] == [NOW + 1, NOW, NOW + 1]

    history.now += COMPACTED.delete_retention_ms - 1
    history.write([(b"d", b"1")])
    history.clean()
    assert (b"a", None) in values(history)
    assert history.batches()[1][0] == header, "the horizon is set once"

    history.now += 1
    history.write([(b"e", b"1")])
    history.clean()
    assert values(history) == [(b"b", b"1"), (b"c", b"1"), (b"d", b"1"), (b"e", b"1")]
    assert [each.timestamp for each in history.records()][:2] == [NOW + 1, NOW + 1]


# -- producers and transactions


def test_the_last_batch_of_a_producer_leaves_its_header(history: History) -> None:
    history.write([(b"a", b"1")], producer=5, codec=Codec.GZIP)
    history.write([(b"a", b"2"), (b"b", b"2")], producer=5, codec=Codec.GZIP)
    history.write([(b"a", b"3"), (b"b", b"3")])
    history.clean()
    (header, data), _ = history.batches()
    assert (header.base_offset, header.last_offset, header.base_sequence, header.record_count) == (1, 2, 1, 0)
    assert check_batch(data).codec == Codec.NONE
    history.log.producers.expire(NOW + 2 * DAY)
    history.write([(b"c", b"3")])
    history.clean()
    assert [each[0].producer_id for each in history.batches()] == [-1, -1]


def test_aborted_data_goes_and_markers_go_when_nothing_needs_them(history: History) -> None:
    history.write([(b"a", b"old")])
    history.write([(b"a", b"aborted")], producer=5, transactional=True)
    history.end(5, commit=False)
    history.write([(b"b", b"committed")], producer=6, transactional=True)
    history.end(6, commit=True)
    history.write([(b"c", b"1")], producer=5)
    history.write([(b"c", b"1")], producer=6)
    history.clean()
    assert history.committed() == history.records()
    assert values(history) == [(b"a", b"old"), (b"b", b"committed"), (b"c", b"1")]

    def markers() -> list[int]:
        return [header.producer_id for header, _ in history.batches() if header.attributes & CONTROL]

    assert markers() == [5, 6]
    for _ in range(2):  # in the first round the marker of the empty transaction gets its time, in the second it goes
        history.now += COMPACTED.delete_retention_ms
        history.write([(b"other", b"")])
        history.clean()
    assert markers() == [6]


def test_an_open_transaction_is_not_touched(history: History) -> None:
    history.write([(b"a", b"1")])
    history.log.roll(NOW)
    history.write([(b"a", b"2")], producer=5, transactional=True)
    history.log.roll(NOW)
    history.write([(b"a", b"3")])
    history.clean()
    assert len(values(history)) == 3
    assert history.log.first_dirty_offset == 1


def test_a_transaction_that_no_index_knows_of_is_not_guessed_at(history: History) -> None:
    history.write([(b"a", b"aborted")], producer=5, transactional=True)
    history.end(5, commit=False)
    work = history.work()
    work.segments[:] = [(base, size, False) for base, size, _ in work.segments]
    with pytest.raises(CorruptLogError, match="aborted at offset 1"):
        list(clean(work, lambda _: None))


def test_a_damaged_transaction_index_is_made_anew_first(history: History) -> None:
    history.write([(b"a", b"old")])
    history.write([(b"a", b"aborted")], producer=5, transactional=True)
    history.end(5, commit=False)
    history.log.roll(NOW)
    flush(history.log)
    [index] = (history.directory / "topic-0").glob("*.txnindex")
    index.write_bytes(b"\xff" * 34)
    history.clean()
    assert values(history) == [(b"a", b"old")]


# -- segments


def test_small_segments_become_one(history: History) -> None:
    for number in range(30):
        history.write([(b"k%d" % (number % 3), b"x" * 100)])
    before = history.log.segment_count
    history.clean()
    history.write([(b"other", b"")])
    history.clean()
    assert history.log.segment_count < before / 2
    assert len(list((history.directory / "topic-0").glob("*.snapshot"))) <= history.log.segment_count + 1
    history.reopen(clean_stop=True)
    check(history)


def test_groups_respect_the_range_of_offsets(tmp_path: Path) -> None:
    """Positions in an index are relative to its segment, in 31 bits."""
    history = History(tmp_path)
    step = 2**29
    for _ in range(5):
        data = encode_batch([Record(0, NOW, b"key", b"value")], last_offset=step - 1)
        history.log.append(read_header(data), data, 0, NOW)
        history.log.roll(NOW)
    bases = [told.bases for told in clean(history.work(), lambda _: None) if isinstance(told, Cleaned)]
    assert bases == [[0, step, 2 * step, 3 * step], [4 * step]]


def test_a_log_with_more_keys_than_fit_takes_several_passes(history: History) -> None:
    for round_ in range(2):
        for number in range(20):
            history.write([(b"key%d" % number, b"%d" % round_)])
    passes = 0
    while (tally := history.clean(key_memory=5 * ENTRY_BYTES)) is not None:
        assert tally.keys <= 6
        check(history)
        passes += 1
    assert passes >= 7
    assert values(history) == [(b"key%d" % number, b"1") for number in range(20)]


def test_emptied_segments_leave_by_retention_too(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact", "delete"}), segment_bytes=200, retention_ms=1000)
    history = History(tmp_path, config)
    for _ in range(6):
        history.write([(b"a", b"x" * 100)])
    history.clean()
    assert not history.log.segments.each[0].size
    log = history.log
    for segment in log.segments.each[:-1]:
        assert segment.changed_at() > 0
    delete_old_segments(log, NOW + 2 * DAY * 10_000, log.end_offset)
    assert log.start_offset == log.end_offset


def test_bytes_that_are_not_right_end_the_cleaning(history: History) -> None:
    history.write([(b"a", b"1")])
    history.log.roll(NOW)
    path = next((history.directory / "topic-0").glob("*0.log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError, match="checksum"):
        history.clean()
    assert not list((history.directory / "topic-0").glob("*.cleaned"))


# -- the key map


def test_the_key_map_takes_no_more_memory_than_it_may() -> None:
    keys = KeyMap(1000 * ENTRY_BYTES)
    count = 0
    while not keys.full:
        keys.add([b"%016d" % (count + number) for number in range(10)], range(count, count + 10))
        count += 10
    assert 800 < count < 1000
    keys.add([b"%016d" % 1], [count])
    assert keys.offsets[b"%016d" % 1] == count


def test_a_body_that_ends_early_is_corrupt() -> None:
    body = record(0, b"value", key=b"key") + record(1, b"value", key=b"key")
    for cut in range(len(body)):
        with pytest.raises(CorruptRecords):
            read_spans(body[:cut], 2)
        with pytest.raises(CorruptRecords):
            read_keys(body[:cut], 2)
    with pytest.raises(CorruptRecords):
        read_keys(body, 1)


# -- what is due


def with_segments(directory: Path, sizes: int, **settings: object) -> Log:
    config = {"cleanup_policy": frozenset({"compact"}), "segment_bytes": len(batch()), **settings}
    log = open_log(directory, LogConfig(**config))  # type: ignore[arg-type]
    for number in range(sizes):
        append(log, batch(timestamp=NOW + number))
    flush(log)
    return log


def test_the_share_of_dirt(tmp_path: Path) -> None:
    log = with_segments(tmp_path, 5)
    dirt = measure(log, log.end_offset, NOW)
    assert (dirt.first_dirty, dirt.upper, dirt.ratio) == (0, 4, 1.0)
    log.first_dirty_offset = 3
    dirt = measure(log, log.end_offset, NOW)
    assert (dirt.first_dirty, dirt.upper, dirt.ratio) == (3, 4, 0.25)
    assert dirt.due(0.2)
    assert not dirt.due(0.25)
    log.first_dirty_offset = 4
    assert not measure(log, log.end_offset, NOW).due(0.0)


@pytest.mark.parametrize("first_dirty_offset", [6, -1])
def test_a_checkpoint_that_cannot_be_right_starts_anew(tmp_path: Path, first_dirty_offset: int) -> None:
    log = with_segments(tmp_path, 5)
    log.first_dirty_offset = first_dirty_offset
    assert measure(log, log.end_offset, NOW).first_dirty == 0


def test_nothing_is_due_behind_the_last_stable_offset_or_before_it_is_on_disk(tmp_path: Path) -> None:
    log = with_segments(tmp_path, 5)
    assert measure(log, 2, NOW).upper == 2
    assert measure(log, 0, NOW).upper == 0
    append(log, batch())
    assert measure(log, log.end_offset, NOW).upper == 4, "the flush of the finished segment is still to come"


def test_records_have_to_wait_for_the_least_lag(tmp_path: Path) -> None:
    log = with_segments(tmp_path, 5, min_compaction_lag_ms=100)
    assert measure(log, log.end_offset, NOW + 101).upper == 2
    assert measure(log, log.end_offset, NOW + 1000).upper == 4


def test_the_largest_lag_makes_a_log_due(tmp_path: Path) -> None:
    log = with_segments(tmp_path, 5, max_compaction_lag_ms=100)
    log.first_dirty_offset = 3
    assert not measure(log, log.end_offset, NOW + 103).due(0.9)
    assert measure(log, log.end_offset, NOW + 104).due(0.9)


def test_truncation_takes_the_clean_part_back(tmp_path: Path) -> None:
    log = with_segments(tmp_path, 5)
    log.first_dirty_offset = 4
    log.truncate_to(2, NOW)
    assert log.first_dirty_offset == 2


def test_everything_at_once(history: History) -> None:
    for number in range(40):
        keys = [(b"k%d" % ((number + span) % 7), None if number % 5 == 0 else b"v%d" % number) for span in range(3)]
        history.write(keys, codec=number % 5, producer=number % 3, transactional=number % 4 == 1 and number % 3 == 1)
        if number % 8 == 7 and history.is_open(1):
            history.end(1, commit=number % 16 == 7)
        if number % 10 == 9:
            history.clean()
            check(history)
            check_clean(history)


def test_the_header_of_an_emptied_marker_still_tells_the_epoch(history: History) -> None:
    """A log without snapshots is read again from its beginning: a fenced producer stays fenced."""
    history.write([(b"a", b"1")], producer=5, transactional=True)
    history.end(5, commit=True)
    history.end(5, commit=False, bump=1)
    for _ in range(3):
        history.now += COMPACTED.delete_retention_ms
        history.write([(b"other", b"")])
        history.clean()
    assert any(header.attributes & CONTROL and not header.record_count for header, _ in history.batches())
    history.reopen(clean_stop=False)
    state = history.log.producers.get(5)
    assert state is not None
    assert state.epoch == 1
