"""A partition as follower, and which replicas may lead after they lost records."""

from dataclasses import replace
from pathlib import Path

import pytest

from moldau.base.errors import Refusal
from moldau.log.follower_append import CorruptFetchError
from moldau.replication.appender import Appended
from moldau.replication.partition import Partition
from moldau.replication.standing import Standing
from support.log.logs import NOW, batch, open_log, read, whole_batches
from support.replication.roles import FOLLOWED, LED, TWO, Cluster, a_partition, copy, fetched, follower, leader, produce


def test_a_follower_takes_what_its_leader_sends(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, Cluster(), FOLLOWED)
    follower(partition).append(memoryview(bytes(copy(2, 0)) + bytes(copy(1, 2))), 2, 0, NOW)
    assert (partition.log.end_offset, partition.high_watermark) == (3, 2)
    follower(partition).append(memoryview(b""), 9, 0, NOW)
    assert partition.high_watermark == 3, "not beyond what it has"
    follower(partition).append(memoryview(b""), 1, 0, NOW)
    assert partition.high_watermark == 3, "a new leader may not know yet what is committed"
    follower(partition).append(memoryview(b""), 3, 2, NOW)
    assert partition.log.start_offset == 2
    with pytest.raises(CorruptFetchError):
        follower(partition).append(batch(1, base_offset=3, crc=5), 3, 0, NOW)


def test_a_log_that_starts_within_a_batch_is_copied_with_the_whole_batch(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, Cluster(), FOLLOWED)
    follower(partition).restart(5, NOW)
    follower(partition).append(copy(4, 3), 7, 5, NOW)
    assert (partition.log.start_offset, partition.log.end_offset, partition.high_watermark) == (5, 7, 7)
    assert whole_batches(read(partition.log.locate(5, 1 << 20, 7, whole_first=True)))[0].base_offset == 3


def test_logs_part_where_the_epochs_do(tmp_path: Path) -> None:
    partition = a_partition(tmp_path, Cluster(), FOLLOWED)
    role = follower(partition)
    role.append(memoryview(bytes(copy(2, 0, 1)) + bytes(copy(2, 2, 3)) + bytes(copy(2, 4, 4))), 2, 0, NOW)
    role.truncate_to_divergence(3, 3, NOW)  # the leader has epoch 3 up to offset 3, and never saw epoch 4
    assert partition.log.end_offset == 2
    assert partition.log.epochs.entries() == [(1, 0)]
    role.append(memoryview(bytes(copy(2, 2, 4)) + bytes(copy(1, 4, 5))), 2, 0, NOW)
    role.truncate_to_divergence(
        2, 7, NOW
    )  # an epoch that is not here: back to the end of the one before it, and ask again
    assert partition.log.end_offset == 2


def test_cutting_committed_records_is_told_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = a_partition(tmp_path, Cluster(), FOLLOWED)
    follower(partition).append(memoryview(bytes(copy(1, 0)) + bytes(copy(1, 1))), 2, 0, NOW)
    follower(partition).truncate(1, NOW)
    assert partition.high_watermark == 1
    assert "below its high watermark 2" in caplog.text


def test_a_new_leader_goes_on_from_what_it_knows_is_committed(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, FOLLOWED)
    follower(partition).append(memoryview(bytes(copy(2, 0)) + bytes(copy(2, 2))), 2, 0, NOW)
    partition.assign(replace(LED, leader_epoch=5, partition_epoch=8), cluster.view)
    assert partition.high_watermark == 2
    assert leader(partition).isr.epoch_start == 4
    assert partition.log.epochs.entries() == [(4, 0), (5, 4)]
    fetched(partition, 2, 3)
    assert partition.high_watermark == 2
    fetched(partition, 3, 4)
    assert partition.high_watermark == 3


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_who_lost_committed_records_leads_only_if_nobody_has_them(tmp_path: Path, isr: tuple[int, ...]) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, replace(LED, isr=isr), known=5)
    assert partition.leads == (isr == (1,))
    assert (cluster.asked == []) == partition.leads


def test_who_lost_committed_records_does_not_lead_while_an_eligible_one_has_them(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, replace(LED, isr=(1,), elr=(2,)), known=5)
    assert not partition.leads
    assert cluster.asked == [partition], "it resigns"


def test_records_lost_in_an_unclean_election_are_required_of_no_replica(tmp_path: Path) -> None:
    """Otherwise replicas would pass the leadership to each other until there is as much again."""
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, replace(FOLLOWED, isr=(2, 3)), known=5)
    partition.assign(replace(FOLLOWED, leader=3, isr=(3,), leader_epoch=5, partition_epoch=8), cluster.view)
    partition.assign(replace(FOLLOWED, leader=3, isr=(1, 3), leader_epoch=5, partition_epoch=9), cluster.view)
    partition.assign(replace(LED, isr=(1, 3), leader_epoch=6, partition_epoch=10), cluster.view)
    assert partition.leads
    again = a_partition(tmp_path / "again", cluster, replace(LED, isr=(1,)), known=5)
    again.assign(replace(LED, isr=(1, 2), partition_epoch=8), cluster.view)
    assert again.leads, "it led alone: what it has is what counts"


def test_no_leader_goes_on_in_an_epoch_whose_records_it_may_have_lost(tmp_path: Path) -> None:
    cluster = Cluster()
    fenced = Standing(fenced_epoch=LED.leader_epoch)
    partition = Partition("topic", 0, open_log(tmp_path, TWO), 0, standing=fenced)
    partition.assign(LED, cluster.view, 0)
    assert isinstance(produce(partition, acks=1), Refusal)
    assert leader(partition).pending_isr.isr == (2, 3)  # type: ignore[union-attr]
    partition.assign(replace(LED, leader_epoch=5, partition_epoch=8), cluster.view)
    assert produce(partition, acks=1) == Appended(0, -1, 0)


def test_a_leader_that_cannot_lead_its_epoch_does_not_say_where_it_began(tmp_path: Path) -> None:
    """It lost the end of its log in a power cut. Otherwise it tells followers later to cut off what they have."""
    cluster = Cluster()
    fenced = Standing(fenced_epoch=LED.leader_epoch)
    partition = Partition("topic", 0, open_log(tmp_path, TWO), 0, standing=fenced)
    partition.assign(LED, cluster.view, 0)
    assert partition.log.epochs.entries() == []
    partition.assign(replace(FOLLOWED, leader_epoch=5, partition_epoch=8), cluster.view)
    lost = [copy(3, 0, 0), copy(1, 3, 0), copy(1, 4, LED.leader_epoch), copy(1, 5, 5)]
    follower(partition).append(memoryview(b"".join(lost)), 6, 0, NOW)
    partition.assign(replace(LED, leader_epoch=6, partition_epoch=9), cluster.view)
    assert partition.log.epochs.entries() == [(0, 0), (LED.leader_epoch, 4), (5, 5), (6, 6)]


def test_a_damaged_follower_is_cut_and_does_not_lead_until_it_has_all_again(tmp_path: Path) -> None:
    cluster = Cluster()
    partition = a_partition(tmp_path, cluster, FOLLOWED)
    follower(partition).append(memoryview(bytes(copy(1, 0)) + bytes(copy(1, 1))), 2, 0, NOW)
    follower(partition).discard(1, NOW)
    partition.assign(replace(LED, leader_epoch=5, partition_epoch=8), cluster.view)
    assert not partition.leads
    partition.assign(replace(FOLLOWED, leader_epoch=6, partition_epoch=9), cluster.view)
    follower(partition).append(copy(1, 1), 2, 0, NOW)
    partition.assign(replace(LED, leader_epoch=7, partition_epoch=10), cluster.view)
    assert partition.leads


@pytest.mark.parametrize("isr", [(1, 2), (1,)], ids=["with another", "as the last"])
def test_a_replica_without_its_log_does_not_lead_before_it_was_in_sync_again(
    tmp_path: Path, isr: tuple[int, ...]
) -> None:
    cluster = Cluster()
    partition = Partition("topic", 0, open_log(tmp_path, TWO), 0, standing=Standing(log_replaced=True))
    partition.assign(replace(LED, isr=isr), cluster.view, 0)
    assert not partition.leads
    assert cluster.asked == [partition], "it resigns"
    partition.assign(replace(FOLLOWED, isr=(2,), leader_epoch=5, partition_epoch=8), cluster.view)
    partition.assign(replace(FOLLOWED, isr=(1, 2), leader_epoch=5, partition_epoch=9), cluster.view)
    partition.assign(replace(LED, leader_epoch=6, partition_epoch=10), cluster.view)
    assert partition.leads
