"""Idempotence as producers see it: duplicates, gaps, epochs, wrap-around, expiry, snapshots."""

from pathlib import Path
from struct import pack

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.log.producers import MAX_SEQUENCE, NONE_OPEN, BatchMetadata, CorruptSnapshotError, Producers, read_snapshot
from moldau.log.settings import LogConfig
from moldau.wire.batch import read_header
from support.log.logs import NOW, append, batch, open_log, record

DAY = 86_400_000


def write(producers: Producers, sequence: int, offset: int, *, epoch: int = 0, count: int = 1, time: int = NOW) -> None:
    producers.update(5, epoch, sequence, count - 1, offset, time, False)


def refusal(producers: Producers, sequence: int, epoch: int = 0) -> WireError:
    answer = producers.check(5, epoch, sequence, 0)
    assert isinstance(answer, Refusal)
    return answer.error


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert Producers().check(5, 3, 1234, 0) is None


def test_sequences_follow_each_other() -> None:
    producers = Producers()
    write(producers, 10, 100, count=3)
    assert producers.check(5, 0, 13, 0) is None
    assert refusal(producers, 14) is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(producers, 12) is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_known_again() -> None:
    producers = Producers()
    for number in range(6):
        write(producers, 2 * number, 100 + 2 * number, count=2, time=NOW + number)
    for number in range(1, 6):
        assert producers.check(5, 0, 2 * number, 1) == BatchMetadata(
            2 * number, 2 * number + 1, 100 + 2 * number, 101 + 2 * number, NOW + number
        )
    assert refusal(producers, 0) is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(producers.check(5, 0, 2, 0), Refusal)  # the same start but another end is no duplicate


def test_a_new_epoch_begins_at_zero_and_fences_the_old() -> None:
    producers = Producers()
    write(producers, 7, 100)
    assert refusal(producers, 8, epoch=1) is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(5, 1, 0, 0) is None
    write(producers, 0, 101, epoch=1)
    assert refusal(producers, 8, epoch=0) is WireError.INVALID_PRODUCER_EPOCH
    assert refusal(producers, 7, epoch=0) is WireError.INVALID_PRODUCER_EPOCH
    assert producers.check(5, 1, 0, 0) == BatchMetadata(0, 0, 101, 101, NOW)


def test_sequences_wrap() -> None:
    producers = Producers()
    write(producers, MAX_SEQUENCE, 100)
    assert producers.check(5, 0, 0, 0) is None
    assert refusal(producers, 1) is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
    across = Producers()
    write(across, MAX_SEQUENCE - 1, 100, count=3)
    assert across.check(5, 0, 1, 0) is None
    assert across.check(5, 0, MAX_SEQUENCE - 1, 2) == BatchMetadata(MAX_SEQUENCE - 1, 0, 100, 102, NOW)
    [again] = read_snapshot(across.snapshot())
    assert again.batches[0] == BatchMetadata(MAX_SEQUENCE - 1, 0, 100, 102, NOW)


def test_idle_producers_expire_but_not_in_a_transaction() -> None:
    producers = Producers(expiration_ms=DAY)
    write(producers, 0, 100)
    producers.update(6, 0, 0, 0, 101, NOW, True)
    producers.expire(NOW + DAY - 1)
    assert len(producers) == 2
    producers.expire(NOW + DAY)
    assert [state.producer_id for state in producers] == [6]
    assert producers.check(5, 0, 55, 0) is None


def test_snapshots_keep_every_field() -> None:
    producers = Producers()
    write(producers, 3, 100, epoch=2, count=4)
    producers.update(6, 1, 0, 0, 104, NOW + 1, True)
    producers.end_transaction(7, 9, 12, NOW + 2)
    data = producers.snapshot()
    again = Producers()
    again.load(read_snapshot(data), NOW)
    assert again.snapshot() == data
    fields = {
        state.producer_id: (
            state.epoch,
            state.last_sequence,
            state.last_timestamp,
            state.coordinator_epoch,
            state.txn_start_offset,
        )
        for state in again
    }
    assert fields == {5: (2, 6, NOW, -1, -1), 6: (1, 0, NOW + 1, -1, 104), 7: (9, -1, NOW + 2, 12, -1)}


def test_what_comes_too_early_after_a_restart_costs_no_batch_that_was_written_since(tmp_path: Path) -> None:
    """A leader that moves leaves five requests of a producer behind, and its sixth comes to the new leader first.

    The new one has had a restart. It refuses the sixth, and must know the five: else the producer gives up its epoch,
    and sends them once more under the next.
    """
    log = open_log(tmp_path)
    for number in range(8):
        append(log, batch(producer_id=5, epoch=0, sequence=number))
    log.close()
    log = open_log(tmp_path, clean=True)
    for number in range(8, 14):
        append(log, batch(producer_id=5, epoch=0, sequence=number))
    early = log.producer_state.check(read_header(batch(producer_id=5, epoch=0, sequence=15)), log.start_offset)
    assert isinstance(early, Refusal)
    assert early.error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(9, 14):
        known = log.producer_state.check(read_header(batch(producer_id=5, epoch=0, sequence=number)), log.start_offset)
        assert known == BatchMetadata(number, number, number, number, NOW)


def test_broken_snapshots_are_recognised() -> None:
    producers = Producers()
    write(producers, 3, 100)
    data = producers.snapshot()
    for broken in (b"", data[:-1], data + b"\0", data[:1] + b"\2" + data[2:], data[:-1] + b"\1"):
        with pytest.raises(CorruptSnapshotError):
            read_snapshot(broken)


def test_a_broken_snapshot_is_passed_over_for_the_log_itself(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(3):
        append(log, batch(producer_id=5, epoch=0, sequence=number))
    log.close()
    snapshot = tmp_path / "topic-0" / f"{3:020d}.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-3])
    log = open_log(tmp_path, clean=True)
    assert [(state.producer_id, state.last_sequence) for state in log.producers] == [(5, 2)]
    assert not snapshot.exists()


def test_snapshots_come_with_segments_and_go_with_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=400))
    for number in range(12):
        append(log, batch(producer_id=5, epoch=0, sequence=number))
    log.close()
    offsets = [int(path.stem) for path in sorted((tmp_path / "topic-0").glob("*.snapshot"))]
    segments = [int(path.stem) for path in sorted((tmp_path / "topic-0").glob("*.log"))]
    assert offsets == [*segments[1:], 12]
    log = open_log(tmp_path, LogConfig(segment_bytes=400), clean=True)
    append(log, batch(producer_id=5, epoch=0, sequence=12))
    log.advance_start(segments[-1])
    log.close()
    log = open_log(tmp_path, LogConfig(segment_bytes=400), clean=True, log_start=segments[-1])
    offsets = [int(path.stem) for path in sorted((tmp_path / "topic-0").glob("*.snapshot"))]
    assert offsets == [segments[-1], 13]
    assert [state.last_sequence for state in log.producers] == [12]


def test_replay_follows_transactions_of_an_apache_kafka_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(2, producer_id=5, epoch=3, sequence=0, attributes=0x10))
    append(log, batch(2, producer_id=6, epoch=1, sequence=0, attributes=0x10))
    marker = record(0, pack(">hi", 0, 17), key=pack(">hh", 0, 1))
    append(log, batch(producer_id=5, epoch=3, sequence=-1, attributes=0x30, body=marker, timestamp=NOW + 9))
    log.close(clean=False)
    log = open_log(tmp_path)
    state = {state.producer_id: state for state in log.producers}
    assert (state[5].txn_start_offset, state[5].coordinator_epoch, state[5].last_timestamp) == (-1, 17, NOW + 9)
    assert (state[5].last_sequence, state[6].txn_start_offset) == (1, 2)


def test_a_verification_that_came_to_nothing_is_forgotten_in_time() -> None:
    producers = Producers(expiration_ms=DAY)
    asked = producers.verify(5, 0, 7, False, NOW)
    assert producers.verify(5, 0, 3, False, NOW) is asked
    assert asked.lowest_sequence == 3
    assert producers.verify(5, 1, 9, False, NOW).lowest_sequence == 9  # of a newer epoch
    producers.expire(NOW + DAY - 1)
    assert producers.verify(5, 1, 9, False, NOW) is asked
    producers.expire(NOW + DAY)
    assert producers.verify(5, 1, 9, False, NOW) is not asked


def test_the_oldest_open_transaction_is_known_whatever_the_order_of_the_ends() -> None:
    producers = Producers()
    for producer_id in range(5):
        producers.update(producer_id, 0, 0, 0, 10 + producer_id, NOW, True)
    assert producers.first_open_offset == 10
    for producer_id, following in ((2, 10), (0, 11), (1, 13), (4, 13)):
        assert producers.end_transaction(producer_id, 0, 0, NOW) == 10 + producer_id
        assert producers.first_open_offset == following
    again = Producers()
    again.load(read_snapshot(producers.snapshot()), NOW)
    assert again.first_open_offset == 13
    assert again.end_transaction(3, 0, 0, NOW) == 13
    assert again.first_open_offset == NONE_OPEN
    assert again.end_transaction(3, 0, 0, NOW) == -1


def test_a_coordinators_batches_have_no_sequence() -> None:
    producers = Producers()
    producers.update(5, 3, -1, 2, 100, NOW, True)
    [state] = producers
    assert (state.last_sequence, state.batches[-1]) == (-1, BatchMetadata(-1, -1, 100, 102, NOW))
    [again] = read_snapshot(producers.snapshot())
    assert (again.last_sequence, again.txn_start_offset, again.batches[-1]) == (-1, 100, state.batches[-1])
