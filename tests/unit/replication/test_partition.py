"""One partition: what becomes of a batch, on the fast path and in the inspection queue, and who is told."""

import errno
import os
import threading
from pathlib import Path

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.log import flush
from moldau.log import log as log_module
from moldau.log.log import Log
from moldau.log.segment import Segment
from moldau.log.settings import LogConfig
from moldau.replication import inspection, inspection_queue
from moldau.replication.appender import Appended
from moldau.replication.delayed_fetch import DelayedFetch
from moldau.replication.partition import Partition
from moldau.wire.compression import Codec
from moldau.wire.records import decode_records
from support.log.batches import CODECS, LOG_APPEND_TIME, NONE, TRANSACTIONAL, ZSTD, Producer, Written, batch
from support.log.logs import NOW, read, whole_batches
from support.net.loops import run, turns, until
from support.replication.partitions import Outcomes, a_partition, some

GZIP_TOPIC = LogConfig(compression_type="gzip")
UNNAMED_TRANSACTION = WireError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


def stored(partition: Partition) -> bytes:
    log = partition.log
    return read(log.locate(log.start_offset, 1 << 30, log.end_offset, whole_first=True))


def values(partition: Partition) -> list[bytes | None]:
    data = memoryview(stored(partition))
    found: list[bytes | None] = []
    at = 0
    for header in whole_batches(bytes(data)):
        found += [record.value for record in decode_records(data[at : at + header.size], limit=1 << 20)]
        at += header.size
    return found


def test_batches_are_appended_with_the_leaders_epoch(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, leader_epoch=3)
    outcomes = Outcomes(partition)
    assert outcomes.produce(some(b"a", b"b")) == Appended(0, -1, 0)
    assert outcomes.offset(some(b"c")) == 2
    assert partition.high_watermark == partition.last_stable_offset == 3
    assert [header.leader_epoch for header in whole_batches(stored(partition))] == [3, 3]


def test_a_topic_that_stamps_records_answers_with_the_time(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    assert Outcomes(partition).produce(some(timestamp=5)) == Appended(0, NOW, 0)
    (header,) = whole_batches(stored(partition))
    assert header.max_timestamp == NOW
    assert header.attributes & LOG_APPEND_TIME


def test_a_duplicate_gets_its_first_offset_and_time(tmp_path: Path) -> None:
    outcomes = Outcomes(a_partition(tmp_path))
    producer = Producer(9, 0)
    outcomes.offset(some())
    assert outcomes.produce(some(producer=producer, sequence=0)) == Appended(1, -1, 0)
    assert outcomes.produce(some(producer=producer, sequence=1)) == Appended(2, -1, 0)
    assert outcomes.produce(some(producer=producer, sequence=0)) == Appended(1, NOW, 0)
    assert outcomes.refusal(some(producer=producer, sequence=7)).error is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("data", "version", "error"),
    [
        (some(crc=1), 12, WireError.CORRUPT_MESSAGE),
        (some(codec=ZSTD), 6, WireError.UNSUPPORTED_COMPRESSION_TYPE),
        (some(producer=Producer(1, 0), sequence=0, attributes=TRANSACTIONAL), 12, UNNAMED_TRANSACTION),
        (memoryview(b""), 12, WireError.INVALID_RECORD),
    ],
)
def test_what_is_refused_is_not_appended(tmp_path: Path, data: memoryview, version: int, error: WireError) -> None:
    partition = a_partition(tmp_path)
    assert Outcomes(partition).refusal(data, version).error is error
    assert partition.high_watermark == 0


def test_a_full_disk_is_told_and_may_get_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = a_partition(tmp_path)
    outcomes = Outcomes(partition)
    with monkeypatch.context() as patch:
        patch.setattr(Log, "append", failing(errno.ENOSPC))
        assert outcomes.refusal(some()).error is WireError.KAFKA_STORAGE_ERROR
    assert outcomes.offset(some()) == 0


def test_a_broken_disk_takes_the_partition_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = a_partition(tmp_path)
    outcomes = Outcomes(partition)
    with monkeypatch.context() as patch:
        patch.setattr(Log, "append", failing(errno.EIO))
        assert outcomes.refusal(some()).error is WireError.KAFKA_STORAGE_ERROR
    assert outcomes.refusal(some()).error is WireError.KAFKA_STORAGE_ERROR
    assert partition.offline


def test_a_write_in_part_that_cannot_be_taken_back_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems need room for that, too. Whatever came behind it would be lost at the next start."""
    partition = a_partition(tmp_path)
    outcomes = Outcomes(partition)
    assert outcomes.offset(some()) == 0
    with monkeypatch.context() as patch:
        patch.setattr(log_module, "_writev", lambda fd, pieces: os.write(fd, pieces[0]))
        patch.setattr(os, "ftruncate", failing(errno.ENOSPC))
        assert outcomes.refusal(some()).error is WireError.KAFKA_STORAGE_ERROR
    assert partition.offline
    partition.log.close(clean=False)
    assert a_partition(tmp_path).log.end_offset == 1


def test_a_full_disk_does_not_keep_retention_from_making_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The active segment is due for a roll, for which there is no room."""
    partition = a_partition(tmp_path, LogConfig(segment_bytes=200, segment_ms=1000, retention_ms=1000))
    outcomes = Outcomes(partition)
    for _ in range(6):
        outcomes.offset(some())
    monkeypatch.setattr(log_module, "create", failing(errno.ENOSPC))
    assert partition.retire(NOW + 5000)
    assert partition.log.start_offset == partition.log.segments.bases[-1] > 0
    assert not partition.offline


def failing(number: int) -> object:
    def append(*_: object) -> int:
        raise OSError(number, "no")

    return append


def test_fences_and_epochs(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, leader_epoch=3)
    assert partition.fenced(-1) is partition.fenced(3) is WireError.NONE
    assert partition.fenced(2) is WireError.FENCED_LEADER_EPOCH
    assert partition.fenced(4) is WireError.UNKNOWN_LEADER_EPOCH
    assert partition.end_offset_for_epoch(3) == (3, 0)  # an empty log knows its epoch too
    assert partition.epoch_of(0) == 3
    Outcomes(partition).offset(some())
    assert partition.end_offset_for_epoch(3) == (3, 1)
    assert partition.end_offset_for_epoch(4) == (-1, -1)
    assert partition.epoch_of(-1) == -1


def test_appends_wake_whoever_waits(tmp_path: Path) -> None:
    async def main() -> None:
        fired: list[str] = []
        partition = a_partition(tmp_path)
        DelayedFetch([partition], 1, 1_000_000, lambda: fired.append("one byte"))
        DelayedFetch([partition], 1_000_000, 1_000_000, lambda: fired.append("many"))
        Outcomes(partition).offset(some())
        await turns()
        assert fired == ["one byte"]
        partition.changed()
        await turns()
        assert fired == ["one byte", "many"]
        assert not partition.delayed_fetches

    run("asyncio", main())


# ── the inspection queue ──


@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_with_the_topics_codec(tmp_path: Path, codec: int, wanted: str) -> None:
    async def main() -> None:
        partition = a_partition(tmp_path, LogConfig(compression_type=wanted))
        outcomes = Outcomes(partition)
        data = some(b"a" * 100, b"b" * 100, codec=codec)
        if Codec.named(wanted) == codec:
            assert outcomes.offset(data) == 0  # as it came: no reason for the inspection queue
        else:
            assert outcomes.produce(data) is None
            await until(lambda: outcomes.later)
            assert outcomes.later == [Appended(0, -1, 0)]
        (header,) = whole_batches(stored(partition))
        assert header.attributes & 7 == Codec.named(wanted)
        assert values(partition) == [b"a" * 100, b"b" * 100]

    run("asyncio", main())


def test_no_batch_overtakes_another_in_the_inspection_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()
    real = inspection.inspect

    def inspect(data: bytes, config: LogConfig) -> bytes | Refusal:
        slow.wait(30)
        return real(data, config)

    monkeypatch.setattr(inspection, "inspect", inspect)

    async def main() -> None:
        partition = a_partition(tmp_path, GZIP_TOPIC)
        outcomes = Outcomes(partition)
        producer = Producer(5, 0)
        for sequence in range(3):
            codec = CODECS["gzip"] if sequence == 1 else NONE  # that one alone would not need the queue
            data = some(b"%d" % sequence, codec=codec, producer=producer, sequence=sequence)
            assert outcomes.produce(data) is None
        await turns()
        assert outcomes.later == []
        slow.set()
        await partition.stop()
        assert outcomes.later == [Appended(offset, -1, 0) for offset in range(3)]
        assert values(partition) == [b"0", b"1", b"2"]

    run("asyncio", main())


def test_a_refusal_in_the_queue_does_not_stick(tmp_path: Path) -> None:
    async def main() -> None:
        partition = a_partition(tmp_path, COMPACTED)
        outcomes = Outcomes(partition)
        assert outcomes.produce(some(b"good")) is None
        assert outcomes.produce(memoryview(batch(Written(b"x", b"k"), Written(b"bad"), timestamp=NOW))) is None
        assert outcomes.produce(some(b"good again")) is None
        await partition.stop()
        first, refused, last = outcomes.later
        assert (first, last) == (Appended(0, -1, 0), Appended(1, -1, 0))
        assert isinstance(refused, Refusal)
        assert refused.error is WireError.INVALID_RECORD
        assert [place for place, _ in refused.records] == [1]
        assert values(partition) == [b"good", b"good again"]

    run("asyncio", main())


def test_records_that_cannot_be_read_are_corrupt(tmp_path: Path) -> None:
    async def main() -> None:
        partition = a_partition(tmp_path, GZIP_TOPIC)
        outcomes = Outcomes(partition)
        assert outcomes.produce(some(count=2, last_offset_delta=1)) is None  # claims a record that is not there
        await partition.stop()
        (refused,) = outcomes.later
        assert isinstance(refused, Refusal)
        assert refused.error is WireError.CORRUPT_MESSAGE

    run("asyncio", main())


def test_a_bug_behind_the_queue_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError

    async def main() -> None:
        partition = a_partition(tmp_path, GZIP_TOPIC)
        outcomes = Outcomes(partition)
        assert outcomes.produce(some()) is None
        with monkeypatch.context() as patch:
            patch.setattr(Log, "append", broken)
            await partition.stop()
        assert outcomes.later == [Refusal.of(WireError.UNKNOWN_SERVER_ERROR)]
        assert outcomes.produce(some()) is None
        await partition.stop()
        assert outcomes.later[-1] == Appended(0, -1, 0)

    run("asyncio", main())


def test_a_full_queue_is_a_reason_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection_queue, "BATCHES_AT_MOST", 2)

    async def main() -> None:
        partition = a_partition(tmp_path, GZIP_TOPIC)
        outcomes = Outcomes(partition)
        assert [outcomes.produce(some()) for _ in range(2)] == [None, None]
        refusal = outcomes.refusal(some())
        assert refusal.error.retriable
        await partition.stop()
        assert len(outcomes.later) == 2

    run("asyncio", main())


def test_one_fsync_serves_everyone_who_waited_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group commit: while a round is under way others gather, and the next round is theirs together."""
    go_on, synced = threading.Event(), []

    def slow(fd: int) -> None:
        synced.append(fd)
        go_on.wait(30)

    monkeypatch.setattr(flush, "_sync", slow)

    async def test() -> None:
        partition = a_partition(tmp_path, LogConfig(flush_messages=1))
        outcomes = Outcomes(partition)
        assert outcomes.produce(some(b"first")) is None
        await until(lambda: synced)
        for number in range(100):
            assert outcomes.produce(some(b"%d" % number)) is None
        assert not outcomes.later
        go_on.set()
        await until(lambda: len(outcomes.later) == 101)
        assert len(synced) == 2
        assert [outcome.base_offset for outcome in outcomes.later] == list(range(101))  # type: ignore[union-attr]
        assert partition.log.recovery_point == 101
        await partition.stop()

    run("asyncio", test())


def test_a_flush_that_cannot_be_begun_is_told_and_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are too many open files just now."""

    async def test() -> None:
        partition = a_partition(tmp_path, LogConfig(flush_messages=1))
        outcomes = Outcomes(partition)
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "opened", failing(errno.EMFILE))
            assert outcomes.produce(some()) is None
            await until(lambda: outcomes.later)
        (refused,) = outcomes.later
        assert isinstance(refused, Refusal)
        assert refused.error is WireError.KAFKA_STORAGE_ERROR
        assert "Too many open files: topic-0 is read-only" in refused.message
        assert not partition.offline
        partition.flush_if_due(NOW)
        await until(lambda: partition.log.recovery_point == 1)
        await partition.stop()

    run("asyncio", test())


def test_flush_ms_leaves_nothing_unsynced_for_longer(tmp_path: Path) -> None:
    async def test() -> None:
        partition = a_partition(tmp_path, LogConfig(flush_ms=1000))
        log, outcomes = partition.log, Outcomes(partition)
        assert outcomes.offset(some()) == 0
        partition.flush_if_due(NOW)  # the first look at what is not synced
        partition.flush_if_due(NOW + 999)
        await turns()
        assert log.recovery_point == 0
        partition.flush_if_due(NOW + 1000)
        await until(lambda: log.recovery_point == 1)
        assert outcomes.offset(some()) == 1
        partition.flush_if_due(NOW + 5000)
        partition.flush_if_due(NOW + 6000)
        await until(lambda: log.recovery_point == 2)
        await partition.stop()

    run("asyncio", test())
