"""Transactions as one partition sees them: how they begin, how they end, and what readers of committed records get."""

import asyncio
from pathlib import Path

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later
from moldau.broker.verification import VerificationResult, transactional_batch, verify
from moldau.log.markers import Marker, read_marker
from moldau.log.producers import MAX_EPOCH, NOT_ASKED, NOT_NEEDED
from moldau.log.settings import LogConfig
from moldau.replication.appender import Appended, Outcome
from moldau.replication.delayed_fetch import DelayedFetch
from moldau.replication.partition import Partition
from moldau.wire.batch import CONTROL, TRANSACTIONAL
from moldau.wire.records import decode_control, decode_records
from support.log.batches import Producer
from support.log.logs import NOW
from support.replication.partitions import VERSION, a_partition, some


def in_transaction(producer: Producer, sequence: int = 0, value: bytes = b"value") -> memoryview:
    return some(value, producer=producer, sequence=sequence, attributes=TRANSACTIONAL)


class Coordinator:
    """Lets in what it is told to, and remembers what it was asked."""

    def __init__(self, says: WireError = WireError.NONE) -> None:
        self.says = says
        self.asked: list[tuple[str, int, int, list[tuple[str, int]], bool]] = []

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[tuple[str, int]],
        adds: bool,
    ) -> dict[tuple[str, int], WireError]:
        self.asked.append((transactional_id, producer_id, producer_epoch, partitions, adds))
        return dict.fromkeys(partitions, self.says)


def proof_of(
    partition: Partition, batch: memoryview, coordinator: Coordinator, version: int = VERSION, *, enabled: bool = True
) -> VerificationResult:
    found = transactional_batch(partition, batch)
    assert found is not None
    results = verify(coordinator, b"txn", [found], version, enabled=enabled, now=NOW)
    assert isinstance(results, dict)
    return results[partition]


def produce(partition: Partition, batch: memoryview, coordinator: Coordinator, version: int = VERSION) -> Outcome:
    proof = proof_of(partition, batch, coordinator, version)
    if isinstance(proof, Refusal):
        return proof
    outcome = partition.appender.produce(batch, version, NOW, proof)
    assert isinstance(outcome, Appended | Refusal)
    return outcome


def error(outcome: object) -> WireError:
    assert isinstance(outcome, Refusal), outcome
    return outcome.error


def end(
    partition: Partition, producer: Producer, *, commit: bool = True, coordinator: int = 0, version: int = 1
) -> object:
    return partition.appender.write_marker(producer.id, producer.epoch, commit, coordinator, version, NOW)


def test_a_transaction_holds_the_last_stable_offset_until_its_marker(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    first, second = Producer(1, 0), Producer(2, 0)
    coordinator = Coordinator()
    partition.appender.produce(some(b"plain"), VERSION, NOW)
    assert produce(partition, in_transaction(first), coordinator) == Appended(1, -1, 0)
    assert produce(partition, in_transaction(second), coordinator) == Appended(2, -1, 0)
    assert produce(partition, in_transaction(first, 1), coordinator) == Appended(3, -1, 0)
    assert [asked[1:] for asked in coordinator.asked] == [
        (1, 0, [("topic", 0)], True),
        (2, 0, [("topic", 0)], True),
    ]
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
    end(partition, first)
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 5)
    end(partition, second, commit=False)
    assert (partition.last_stable_offset, partition.high_watermark) == (6, 6)


def test_a_marker_without_a_transaction_is_written_all_the_same(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    assert end(partition, Producer(1, 3)) == Appended(0, -1, 0)
    assert end(partition, Producer(1, 3)) == Appended(1, -1, 0)
    assert error(end(partition, Producer(1, 2))) is WireError.INVALID_PRODUCER_EPOCH
    assert partition.last_stable_offset == 2


def test_markers_are_control_batches_that_say_who_ended_what(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    end(partition, Producer(7, 5), commit=False, coordinator=9)
    end(partition, Producer(7, 5), commit=True, coordinator=9)
    for (header, batch), commit in zip(partition.log.read_batches(0), (False, True), strict=True):
        assert header[5] == TRANSACTIONAL | CONTROL
        assert header[9:] == (7, 5, -1, 1)
        assert read_marker(bytes(batch)) == Marker(commit, 9)
        [record] = decode_records(batch, limit=100)
        assert decode_control(record) == (int(commit), 9)


def test_a_deposed_coordinator_ends_nothing(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    producer = Producer(1, 0)
    end(partition, producer, coordinator=4)
    assert error(end(partition, producer, coordinator=3)) is WireError.TRANSACTION_COORDINATOR_FENCED
    assert isinstance(end(partition, producer, coordinator=4), Appended)


def test_a_late_marker_cannot_end_the_next_transaction(tmp_path: Path) -> None:
    """KIP-1228: in transaction version 2 a marker's epoch is one more than its transaction's."""
    partition = a_partition(tmp_path)
    coordinator = Coordinator()
    produce(partition, in_transaction(Producer(1, 0)), coordinator)
    assert error(end(partition, Producer(1, 0), version=2)) is WireError.INVALID_PRODUCER_EPOCH
    assert isinstance(end(partition, Producer(1, 1), version=2), Appended)
    assert isinstance(end(partition, Producer(1, 1), version=2), Appended)  # the answer was lost: the same again
    produce(partition, in_transaction(Producer(1, 1)), coordinator)
    assert error(end(partition, Producer(1, 1), version=2)) is WireError.INVALID_PRODUCER_EPOCH
    assert partition.last_stable_offset == 3
    assert isinstance(end(partition, Producer(1, 1), version=1), Appended)  # as older versions do


def test_the_last_epoch_of_all_ends_its_transaction(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    produce(partition, in_transaction(Producer(1, MAX_EPOCH)), Coordinator())
    assert isinstance(end(partition, Producer(1, MAX_EPOCH), version=2), Appended)
    assert partition.last_stable_offset == 2


def test_batches_outside_a_transaction_are_refused_while_it_is_open(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    producer = Producer(1, 0)
    produce(partition, in_transaction(producer), Coordinator())
    plain = partition.appender.produce(some(producer=producer, sequence=1), VERSION, NOW)
    assert error(plain) is WireError.INVALID_TXN_STATE
    end(partition, producer)
    assert partition.appender.produce(some(producer=producer, sequence=1), VERSION, NOW) == Appended(2, -1, 0)


def test_a_duplicate_is_told_its_offset_and_asks_nobody(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    producer = Producer(1, 0)
    coordinator = Coordinator()
    produce(partition, in_transaction(producer), coordinator)
    end(partition, producer)
    assert produce(partition, in_transaction(producer), coordinator) == Appended(0, NOW, 0)
    assert len(coordinator.asked) == 1
    assert partition.last_stable_offset == 2


def test_what_was_let_in_before_the_marker_is_not_written_behind_it(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    producer = Producer(1, 0)
    batch = in_transaction(producer)
    proof = proof_of(partition, batch, Coordinator())
    assert not isinstance(proof, Refusal)
    end(partition, producer, commit=False)
    assert error(partition.appender.produce(batch, VERSION, NOW, proof)) is WireError.INVALID_TXN_STATE
    assert error(partition.appender.produce(batch, VERSION, NOW, NOT_ASKED)) is WireError.INVALID_TXN_STATE
    assert partition.appender.produce(batch, VERSION, NOW, NOT_NEEDED) == Appended(1, -1, 0)


def test_in_version_two_the_marker_of_the_last_transaction_does_not_concern_the_next(tmp_path: Path) -> None:
    """The next one may ask, and be kept waiting, before the last has ended here: they have different epochs."""
    partition = a_partition(tmp_path)
    assert isinstance(produce(partition, in_transaction(Producer(1, 0)), Coordinator()), Appended)
    following = in_transaction(Producer(1, 1))
    proof = proof_of(partition, following, Coordinator())
    assert not isinstance(proof, Refusal)
    end(partition, Producer(1, 1), version=2)
    assert isinstance(partition.appender.produce(following, VERSION, NOW, proof), Appended)
    late = in_transaction(Producer(1, 2))
    proof = proof_of(partition, late, Coordinator())
    assert not isinstance(proof, Refusal)
    end(partition, Producer(1, 2), version=2)
    end(partition, Producer(1, 3), version=2)
    assert error(partition.appender.produce(late, VERSION, NOW, proof)) is WireError.INVALID_PRODUCER_EPOCH


def test_a_batch_that_was_put_off_keeps_its_place(tmp_path: Path) -> None:
    """What the coordinator could not verify is sent again; what follows it must not be written first."""
    partition = a_partition(tmp_path)
    producer = Producer(1, 0)
    busy = Coordinator(WireError.CONCURRENT_TRANSACTIONS)
    assert error(produce(partition, in_transaction(producer), busy, 11)) is WireError.NOT_ENOUGH_REPLICAS
    following = produce(partition, in_transaction(producer, 1), Coordinator(), 11)
    assert error(following) is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(partition, in_transaction(producer), Coordinator(), 11) == Appended(0, -1, 0)


def test_in_version_two_a_transaction_of_an_unknown_producer_begins_at_zero(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    late = in_transaction(Producer(1, 0), 5)
    assert error(produce(partition, late, Coordinator())) is WireError.OUT_OF_ORDER_SEQUENCE_NUMBER
    other = in_transaction(Producer(2, 0), 5)
    assert produce(partition, other, Coordinator(), 11) == Appended(0, -1, 0)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (WireError.PRODUCER_FENCED, 12, WireError.INVALID_PRODUCER_EPOCH),
        (WireError.TRANSACTION_ABORTABLE, 10, WireError.INVALID_TXN_STATE),
        (WireError.TRANSACTION_ABORTABLE, 11, WireError.TRANSACTION_ABORTABLE),
        (WireError.TRANSACTION_ABORTABLE, 12, WireError.TRANSACTION_ABORTABLE),
        (WireError.CONCURRENT_TRANSACTIONS, 11, WireError.NOT_ENOUGH_REPLICAS),
        (WireError.CONCURRENT_TRANSACTIONS, 12, WireError.CONCURRENT_TRANSACTIONS),
        (WireError.COORDINATOR_LOAD_IN_PROGRESS, 12, WireError.NOT_ENOUGH_REPLICAS),
        (WireError.NOT_COORDINATOR, 11, WireError.NOT_ENOUGH_REPLICAS),
        (WireError.UNKNOWN_TOPIC_OR_PARTITION, 12, WireError.NOT_ENOUGH_REPLICAS),
        (WireError.OPERATION_NOT_ATTEMPTED, 12, WireError.NOT_ENOUGH_REPLICAS),
        (WireError.INVALID_PRODUCER_ID_MAPPING, 12, WireError.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_the_coordinators_refusal_in_the_producers_words(
    tmp_path: Path, said: WireError, version: int, told: WireError
) -> None:
    partition = a_partition(tmp_path)
    outcome = produce(partition, in_transaction(Producer(1, 0)), Coordinator(said), version)
    assert error(outcome) is told


def test_verification_can_be_turned_off_for_older_producers_alone(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    coordinator = Coordinator()
    assert proof_of(partition, in_transaction(Producer(1, 0)), coordinator, 11, enabled=False) is NOT_NEEDED
    assert not coordinator.asked
    assert proof_of(partition, in_transaction(Producer(1, 0)), coordinator, 12, enabled=False) is NOT_NEEDED
    assert coordinator.asked == [("txn", 1, 0, [("topic", 0)], True)]  # else nobody would write its marker


def test_a_request_for_two_producers_is_refused_as_a_whole(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    batches = [transactional_batch(partition, in_transaction(Producer(number, 0))) for number in (1, 2)]
    refusal = verify(Coordinator(), b"txn", [each for each in batches if each], VERSION, enabled=True, now=NOW)
    assert error(refusal) is WireError.INVALID_PRODUCER_ID_MAPPING


def test_a_coordinators_own_records(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    assert partition.appender.append_records([(b"k", b"v"), (b"gone", None)], NOW) == Appended(0, -1, 0)
    assert partition.appender.append_records([(b"k", b"w")], NOW, 5, 1, True) == Appended(2, -1, 0)
    assert partition.appender.append_records([(b"l", b"x"), (b"m", b"y")], NOW, 5, 1, True) == Appended(3, -1, 0)
    assert partition.last_stable_offset == 2
    assert error(partition.appender.append_records([(b"k", b"z")], NOW, 5, 0, True)) is WireError.INVALID_PRODUCER_EPOCH
    end(partition, Producer(5, 1))
    assert partition.last_stable_offset == 6
    batches = [(header[11], bytes(batch)) for header, batch in partition.log.read_batches(0)]
    assert [sequence for sequence, _ in batches] == [-1] * 4
    records = [record for _, batch in batches[:3] for record in decode_records(batch, limit=1000)]
    assert [(each.offset, each.key, each.value) for each in records] == [
        (0, b"k", b"v"),
        (1, b"gone", None),
        (2, b"k", b"w"),
        (3, b"l", b"x"),
        (4, b"m", b"y"),
    ]


def test_a_coordinators_batch_may_be_too_large(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    huge = partition.appender.append_records([(b"k", bytes(partition.log.config.max_message_bytes))], NOW)
    assert error(huge) is WireError.MESSAGE_TOO_LARGE


def size_of(partition: Partition, start: int, stop: int) -> int:
    return sum(header.size for header, _ in partition.log.read_batches(0) if start <= header.base_offset < stop)


def test_readers_of_committed_records_wait_for_markers_not_for_growth(tmp_path: Path) -> None:
    partition = a_partition(tmp_path)
    first, second = Producer(1, 0), Producer(2, 0)
    coordinator = Coordinator()

    async def main() -> None:
        least = 1_000_000
        all_of_it = DelayedFetch([partition], least, least, lambda: None)
        decided = DelayedFetch([partition], least, least, lambda: None, read_committed=True)

        def counted() -> tuple[int, int]:
            return least - all_of_it.missing, least - decided.missing

        partition.appender.produce(some(b"plain"), VERSION, NOW)
        assert counted() == (size_of(partition, 0, 1), size_of(partition, 0, 1))
        produce(partition, in_transaction(first), coordinator)
        produce(partition, in_transaction(second), coordinator)
        partition.appender.produce(some(b"behind"), VERSION, NOW)
        assert counted() == (size_of(partition, 0, 4), size_of(partition, 0, 1))
        end(partition, second, commit=False)  # the first is still open: nothing moves
        assert counted() == (size_of(partition, 0, 5), size_of(partition, 0, 1))
        end(partition, first)
        assert counted() == (size_of(partition, 0, 6), size_of(partition, 0, 6))
        end(partition, first)
        assert counted() == (size_of(partition, 0, 7), size_of(partition, 0, 7))
        for delayed in (all_of_it, decided):
            delayed.cancel()

    asyncio.run(main())


def test_a_marker_releases_what_lies_before_the_next_open_transaction(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, LogConfig(segment_bytes=200))
    first, second = Producer(1, 0), Producer(2, 0)
    coordinator = Coordinator()

    async def main() -> None:
        delayed = DelayedFetch([partition], 1_000_000, 1_000_000, lambda: None, read_committed=True)
        for number in range(5):
            produce(partition, in_transaction(first, number), coordinator)
        produce(partition, in_transaction(second), coordinator)
        assert delayed.missing == 1_000_000
        end(partition, first)
        assert 1_000_000 - delayed.missing == size_of(partition, 0, 5)
        assert partition.log.segment_count > 2
        delayed.cancel()

    asyncio.run(main())


def test_a_marker_overtakes_batches_whose_records_are_still_being_checked(tmp_path: Path) -> None:
    """The transaction is over, so what was on its way is not written: its producer has not heard that it was."""
    partition = a_partition(tmp_path, LogConfig(cleanup_policy=frozenset({"compact"})))
    producer = Producer(1, 0)
    coordinator = Coordinator()

    async def main() -> None:
        outcomes: list[Outcome] = []

        def send(sequence: int) -> None:
            batch = in_transaction(producer, sequence)
            proof = proof_of(partition, batch, coordinator)
            assert not isinstance(proof, Refusal)
            later = partition.appender.produce(batch, VERSION, NOW, proof)
            assert isinstance(later, Later)
            later.then(outcomes.append)

        send(0)
        send(1)
        end(partition, producer, commit=False)
        await partition.stop()
        assert [error(each) for each in outcomes] == [WireError.INVALID_TXN_STATE] * 2
        outcomes.clear()
        send(0)
        send(1)
        await partition.stop()
        assert outcomes == [Appended(1, -1, 0), Appended(2, -1, 0)]
        assert partition.last_stable_offset == 1

    asyncio.run(main())
