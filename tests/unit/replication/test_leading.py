"""A partition as leader: what producers, readers and the controller notice of replication."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later
from moldau.log.flush import FlushJob
from moldau.log.segment import CorruptLogError
from moldau.log.segments import Segments
from moldau.log.settings import LogConfig
from moldau.replication.appender import Appended, Outcome
from moldau.replication.delayed_fetch import DelayedFetch
from moldau.replication.leader import ALL, RESENDS_BEFORE_CHECK
from moldau.replication.owners import NoOwner
from moldau.replication.partition import Partition
from moldau.replication.uncommitted import RANGES_AT_MOST, Uncommitted
from support.log.logs import NOW, batch, whole_batches
from support.net.loops import run, turns, until
from support.replication.roles import (
    FOLLOWED,
    HERE,
    LED,
    TWO,
    Cluster,
    a_partition,
    copy,
    fetched,
    follower,
    leader,
    produce,
)


class Owner(NoOwner):
    """What the partition reported."""

    def __init__(self) -> None:
        self.corrupt: list[Partition] = []
        self.suspect: list[int] = []

    def log_corrupt(self, partition: Partition) -> None:
        self.corrupt.append(partition)

    def records_suspect(self, partition: Partition, offset: int) -> None:
        self.suspect.append(offset)


def test_acks_all_waits_for_every_member_and_the_others_do_not(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, Cluster())
    waiting = produce(partition, count=3)
    assert produce(partition, acks=1) == Appended(3, -1, 0)
    assert produce(partition, acks=0) == Appended(4, -1, 0)
    assert partition.high_watermark == 0
    fetched(partition, 2, 3)
    assert waiting == []
    fetched(partition, 3, 2)
    assert partition.high_watermark == 2
    fetched(partition, 3, 4)
    assert waiting == [Appended(0, -1, 0)]
    assert partition.high_watermark == 3


def test_a_duplicate_waits_as_the_first_one_does(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, Cluster())
    fields = {"producer_id": 5, "epoch": 0, "sequence": 0}
    first, again = produce(partition, **fields), produce(partition, **fields)
    assert first == again == []
    assert partition.log.end_offset == 1
    for broker in (2, 3):
        fetched(partition, broker, 1)
    assert isinstance(first, list)
    assert isinstance(again, list)
    assert [each.base_offset for each in (*first, *again) if isinstance(each, Appended)] == [0, 0]
    late = produce(partition, **fields)
    assert isinstance(late, Appended)
    assert late.base_offset == 0


def test_too_few_in_sync_replicas(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, replace(LED, isr=(1,)))
    refused = produce(partition)
    assert isinstance(refused, Refusal)
    assert refused.error is WireError.NOT_ENOUGH_REPLICAS
    assert partition.log.end_offset == 0
    assert produce(partition, acks=1) == Appended(0, -1, 0)
    assert partition.high_watermark == 0, "KIP-966: nothing is committed by too few"
    partition.assign(replace(LED, isr=(1, 2), partition_epoch=8), cluster.view)
    waiting = produce(partition)
    assert waiting == []
    fetched(partition, 2, 2)
    assert waiting == [Appended(1, -1, 0)]


def test_whoever_waits_hears_that_the_leader_is_another(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    waiting = produce(partition)
    partition.assign(replace(LED, leader=2, leader_epoch=5, partition_epoch=8), cluster.view)
    assert isinstance(waiting, list)
    (outcome,) = waiting
    assert isinstance(outcome, Refusal)
    assert outcome.error is WireError.NOT_LEADER_OR_FOLLOWER
    assert not partition.leads
    for acks in (0, 1, ALL):
        refused = produce(partition, acks)
        assert isinstance(refused, Refusal)
        assert refused.error is WireError.NOT_LEADER_OR_FOLLOWER
    own = partition.appender.append_records([(b"k", b"v")], NOW)
    assert isinstance(own, Refusal)
    assert partition.log.end_offset == 1


def test_elected_again_keeps_those_who_wait_and_trusts_no_old_fetch(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    waiting = produce(partition)
    fetched(partition, 2, 1)
    partition.assign(replace(LED, leader_epoch=5, partition_epoch=8), cluster.view)
    fetched(partition, 3, 1)
    assert waiting == [], "broker 2 has to show again what it has"
    fetched(partition, 2, 1)
    assert waiting == [Appended(0, -1, 0)]
    assert partition.log.epochs.entries() == [(4, 0), (5, 1)]


def test_records_of_a_coordinator_are_answered_when_they_are_committed(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, Cluster())
    outcome = partition.appender.append_records([(b"k", b"v")], NOW)
    assert isinstance(outcome, Later)
    found: list[Outcome] = []
    outcome.then(found.append)
    for broker in (2, 3):
        fetched(partition, broker, 1)
    assert found == [Appended(0, -1, 0)]


def test_who_may_join_is_asked_for_once_and_counts_at_once(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, replace(LED, isr=(1, 2)))
    produce(partition, acks=1)
    fetched(partition, 2, 1)
    assert partition.high_watermark == 1
    fetched(partition, 3, 0)
    assert cluster.asked == []
    fetched(partition, 3, 1)
    fetched(partition, 3, 1)
    assert cluster.asked == [partition]
    assert leader(partition).isr.maximal == {1, 2, 3}
    leader(partition).granted((1, 2, 3), 8)
    assert leader(partition).isr.committed_isr == {1, 2, 3}
    assert leader(partition).pending_isr is None


def test_lagging_replicas_are_asked_to_leave(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    produce(partition, acks=1)
    fetched(partition, 2, 1)
    cluster.now += 900
    leader(partition).shrink_isr()
    assert cluster.asked == []
    cluster.now += 200
    fetched(partition, 2, 1)
    leader(partition).shrink_isr()
    assert cluster.asked == [partition]
    assert leader(partition).pending_isr.isr == (1, 2)  # type: ignore[union-attr]
    assert leader(partition).isr.maximal == {1, 2, 3}, "until it is decided the larger set counts"


def test_who_left_because_its_disk_failed_is_not_waited_for_nor_invited_before_it_fetches(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    fetched(partition, 2, 0)
    fetched(partition, 3, 0)
    waiting = produce(partition)
    fetched(partition, 3, 1)
    assert waiting == []
    partition.assign(replace(LED, isr=(1, 3), partition_epoch=8), cluster.view)
    assert isinstance(waiting, list)
    assert len(waiting) == 1, "what the others have is committed"
    leader(partition).heard(2, 20, 0)
    leader(partition).expand_isr()
    assert leader(partition).pending_isr is None
    fetched(partition, 2, 1)
    pending = leader(partition).pending_isr
    assert pending is not None
    assert pending.isr == (1, 2, 3)


@pytest.mark.parametrize("again", [True, False], ids=["registered again", "lagged"])
def test_who_left_for_another_reason_is_invited_by_what_it_has(tmp_path: Path, again: bool) -> None:
    """It may have nothing to say: its session goes on, and it has all there is."""
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    fetched(partition, 2, 0)
    fetched(partition, 3, 0)
    if again:
        cluster.epochs[2] = 21
    else:
        leader(partition).isr.propose({1, 3})
    partition.assign(replace(LED, isr=(1, 3), partition_epoch=8), cluster.view)
    leader(partition).heard(2, cluster.epochs[2] or 0, 0)
    pending = leader(partition).pending_isr
    assert pending is not None
    assert pending.isr == (1, 2, 3)


def test_a_broken_disk_ends_leadership(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    waiting = produce(partition)
    partition.go_offline()
    assert isinstance(waiting, list)
    assert [each.error for each in waiting if isinstance(each, Refusal)] == [WireError.KAFKA_STORAGE_ERROR]
    assert leader(partition).pending_isr.isr == (2, 3)  # type: ignore[union-attr]


def test_who_is_elected_again_with_a_broken_disk_resigns_again(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    partition.go_offline()
    assert leader(partition).pending_isr.isr == (2, 3)  # type: ignore[union-attr]
    nobody = replace(LED, isr=(1,), elr=(2,), leader=-1, leader_epoch=5, partition_epoch=8)
    partition.assign(nobody, cluster.view)
    cluster.asked.clear()
    partition.assign(replace(nobody, leader=HERE, leader_epoch=6, partition_epoch=9), cluster.view)
    assert cluster.asked == [partition], "broker 2 is back, has everything, and could lead"
    assert leader(partition).pending_isr.isr == ()  # type: ignore[union-attr]


def test_a_batch_whose_place_another_leader_took_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the disk while the partition goes to another leader, which never had it, and comes back."""

    async def main() -> None:
        go_on = threading.Event()
        real = FlushJob.run
        monkeypatch.setattr(FlushJob, "run", lambda job: go_on.wait(30) and real(job))
        cluster = Cluster()
        partition = a_partition(tmp_path, cluster, config=LogConfig(min_insync_replicas=2, flush_messages=1))
        waiting = produce(partition)
        partition.assign(replace(FOLLOWED, leader_epoch=5, partition_epoch=8), cluster.view)
        follower(partition).truncate(0, NOW)
        follower(partition).append(copy(1, 0, 5), 1, 0, NOW)
        partition.assign(replace(LED, leader_epoch=6, partition_epoch=9), cluster.view)
        for broker in (2, 3):
            fetched(partition, broker, 1)
        assert partition.high_watermark == 1
        go_on.set()
        await until(lambda: waiting)
        assert isinstance(waiting, list)
        (outcome,) = waiting
        assert isinstance(outcome, Refusal)
        assert outcome.error is WireError.NOT_LEADER_OR_FOLLOWER
        await partition.stop()

    run("asyncio", main())


def test_a_disk_that_fails_during_a_flush_is_told_to_the_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another log of the directory failed, and this flush succeeds: nobody completes the produce afterwards."""

    async def main() -> None:
        go_on = threading.Event()
        real = FlushJob.run
        monkeypatch.setattr(FlushJob, "run", lambda job: go_on.wait(30) and real(job))
        partition = a_partition(tmp_path, Cluster(), config=replace(TWO, flush_messages=1))
        waiting = produce(partition)
        partition.go_offline()
        go_on.set()
        await until(lambda: partition.log.recovery_point == 1)
        assert isinstance(waiting, list)
        assert [each.error for each in waiting if isinstance(each, Refusal)] == [WireError.KAFKA_STORAGE_ERROR]
        await partition.stop()

    run("asyncio", main())


@pytest.mark.parametrize("flush_messages", [1, TWO.flush_messages])
def test_a_batch_that_was_committed_before_the_isr_shrank_is_answered_with_after_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_messages: int
) -> None:
    """It waits for a flush meanwhile. Without one it was answered when it was committed."""

    async def main() -> None:
        go_on = threading.Event()
        real = FlushJob.run
        monkeypatch.setattr(FlushJob, "run", lambda job: go_on.wait(30) and real(job))
        cluster = Cluster()
        partition = a_partition(tmp_path, cluster, config=replace(TWO, flush_messages=flush_messages))
        first = produce(partition)
        for broker in (2, 3):
            fetched(partition, broker, 1)
        second = produce(partition)
        partition.assign(replace(LED, isr=(HERE,), partition_epoch=8), cluster.view)
        go_on.set()
        await turns()
        await partition.quiesce()
        flushed_late = Refusal.of(WireError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        assert first == [flushed_late if flush_messages == 1 else Appended(0, -1, 0)]
        assert partition.high_watermark == 1
        assert second == [], "below min.insync.replicas nothing is committed: it times out"
        await partition.stop()

    run("asyncio", main())


def test_a_log_that_cannot_be_read_is_its_own_trouble_when_it_becomes_the_leaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, FOLLOWED)
    follower(partition).append(copy(2, 0), 0, 0, NOW)

    def unreadable(*_: object) -> int:
        raise CorruptLogError("zeros")

    monkeypatch.setattr(Segments, "bytes_between", unreadable)
    partition.assign(replace(LED, leader_epoch=5, partition_epoch=8), cluster.view)
    assert partition.standing.corrupt
    assert leader(partition).pending_isr.isr == (2, 3)  # type: ignore[union-attr]


def test_the_last_replica_alone_commits_at_once(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    waiting = produce(partition)
    partition.assign(replace(LED, replicas=(1,), isr=(1,), partition_epoch=8), cluster.view)
    assert waiting == [Appended(0, -1, 0)]
    assert partition.role is None
    assert partition.sole_online_replica
    assert produce(partition) == Appended(1, -1, 0)
    assert partition.high_watermark == 2


def test_more_replicas_are_waited_for_from_where_they_come(tmp_path: Path) -> None:
    cluster = Cluster()
    alone = replace(LED, replicas=(1,), isr=(1,))
    partition = a_partition(tmp_path, cluster, alone, LogConfig())
    produce(partition)
    partition.assign(replace(alone, replicas=(1, 2), adding=(2,), partition_epoch=8), cluster.view)
    assert partition.high_watermark == 1
    assert produce(partition) == Appended(1, -1, 0)
    fetched(partition, 2, 2)
    assert cluster.asked == [partition]


def test_consumers_wait_for_what_is_committed_and_followers_for_what_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        partition = a_partition(tmp_path, Cluster())
        fired: list[str] = []
        size = len(batch())
        DelayedFetch([partition], 1, 60_000, lambda: fired.append("follower"), follower=True)
        consumer = DelayedFetch([partition], 2 * size, 60_000, lambda: fired.append("consumer"))
        committed = DelayedFetch([partition], 2 * size, 60_000, lambda: fired.append("committed"), read_committed=True)
        produce(partition, acks=1)
        produce(partition, acks=1)
        await turns()
        assert fired == ["follower"]
        DelayedFetch([partition], 1, 60_000, lambda: fired.append("high watermark"), follower=True)
        for broker in (2, 3):
            fetched(partition, broker, 1)
        await turns()
        assert fired == ["follower", "high watermark"]
        assert consumer.missing == committed.missing == size
        for broker in (2, 3):
            fetched(partition, broker, 2)
        await turns()
        assert set(fired[2:]) == {"consumer", "committed"}

    run("asyncio", main())


def test_a_transaction_is_decided_when_its_marker_is_committed(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, Cluster())
    proof_less = batch(2, producer_id=5, epoch=0, sequence=0, attributes=0x10)
    partition.log.append(whole_batches(bytes(proof_less))[0], proof_less, 4, NOW)
    partition.appender.write_marker(5, 0, True, 0, 1, NOW)
    for broker in (2, 3):
        fetched(partition, broker, 2)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    for broker in (2, 3):
        fetched(partition, broker, 3)
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)


def test_a_coordinator_can_wait_for_what_was_written_before(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = Cluster()
        partition = a_partition(tmp_path, cluster)
        produce(partition, acks=1)
        waiting = asyncio.create_task(partition.await_committed(1))
        await turns()
        assert not waiting.done()
        for broker in (2, 3):
            fetched(partition, broker, 1)
        await waiting
        await partition.await_committed(1)
        produce(partition, acks=1)
        waiting = asyncio.create_task(partition.await_committed(2))
        await turns()
        partition.assign(replace(LED, leader=2, leader_epoch=5, partition_epoch=8), cluster.view)
        await waiting

    run("asyncio", main())


def test_records_that_a_follower_gets_again_and_again_are_looked_at_once(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, Cluster())
    partition.owner = owner = Owner()
    for _ in range(RESENDS_BEFORE_CHECK - 1):
        leader(partition).sent(2, 7)
        leader(partition).sent(3, 7)
    leader(partition).sent(2, 8)
    assert not owner.suspect
    for _ in range(10):
        leader(partition).sent(3, 7)
    assert owner.suspect == [7]


def test_a_leader_that_cannot_read_leaves_it_to_others(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster)
    partition.owner = owner = Owner()
    partition.cannot_read()
    assert cluster.asked == [partition]
    assert owner.corrupt == [partition]
    assert partition.standing.corrupt


def test_bytes_that_are_not_committed_are_counted_within_bounds() -> None:
    uncommitted = Uncommitted()
    for end in range(RANGES_AT_MOST + 100):
        uncommitted.add(end + 1, 10)
    assert uncommitted.take(10) == 100
    uncommitted.cut(RANGES_AT_MOST - 1)
    assert uncommitted.take(10**6) == (RANGES_AT_MOST - 11) * 10


def test_whoever_waited_may_write_on_when_the_leader_is_alone_however_many_they_are(tmp_path: Path) -> None:
    """Transactions do so: what is committed leads to the next record. Told one in the other, a hundred were many."""
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, config=LogConfig(min_insync_replicas=1))
    told: list[int] = []

    def write(*, then_on: bool) -> None:
        def tell(outcome: Outcome) -> None:
            assert isinstance(outcome, Appended)
            told.append(outcome.base_offset)
            if then_on:
                write(then_on=False)

        outcome = partition.appender.produce(batch(), 12, NOW, None, ALL)
        if isinstance(outcome, Later):
            outcome.then(tell)
        else:
            tell(outcome)

    for _ in range(300):
        write(then_on=True)
    assert told == []
    partition.assign(replace(LED, isr=(HERE,), partition_epoch=8), cluster.view)
    assert told == list(range(600)), "all of them, in the order in which they were written"
    assert partition.high_watermark == 600
