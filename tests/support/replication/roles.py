"""A partition with a role, on a real log: as leader with followers that a test plays, or as follower."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from moldau.base.later import Later
from moldau.log.settings import LogConfig
from moldau.metadata.image import PartitionState
from moldau.replication.appender import Outcome
from moldau.replication.cluster_view import ClusterView
from moldau.replication.follower import Follower
from moldau.replication.leader import ALL, Leader
from moldau.replication.partition import Partition
from support.log.logs import NOW, batch, open_log

HERE = 1
LED = PartitionState(0, (1, 2, 3), (1, 2, 3), HERE, leader_epoch=4, partition_epoch=7)
FOLLOWED = replace(LED, leader=2)
TWO = LogConfig(min_insync_replicas=2)


class Cluster:
    """What the partition sees of its cluster; a test sets it."""

    def __init__(self) -> None:
        self.now = NOW
        self.epochs: dict[int, int | None] = {1: 10, 2: 20, 3: 30}
        self.asked: list[Partition] = []
        self.view = ClusterView(HERE, lambda: self.now, self.epochs.get, self.asked.append, 1000)


def a_partition(
    directory: Path, cluster: Cluster, state: PartitionState = LED, config: LogConfig = TWO, known: int = 0
) -> Partition:
    partition = Partition("topic", 0, open_log(directory, config), 0)
    partition.assign(state, cluster.view, known)
    return partition


def produce(partition: Partition, acks: int = ALL, count: int = 1, **fields: Any) -> Outcome | list[Outcome]:
    """The outcome, or a list that gets it."""
    outcome = partition.appender.produce(batch(count, **fields), 12, NOW, None, acks)
    if not isinstance(outcome, Later):
        return outcome
    found: list[Outcome] = []
    outcome.then(found.append)
    return found


def leader(partition: Partition) -> Leader:
    assert isinstance(partition.role, Leader)
    return partition.role


def fetched(partition: Partition, broker: int, offset: int) -> None:
    leader(partition).fetched(broker, offset, 0, broker * 10)


def follower(partition: Partition) -> Follower:
    assert isinstance(partition.role, Follower)
    return partition.role


def copy(count: int, base: int, epoch: int = 4) -> memoryview:
    return batch(count, base_offset=base, leader_epoch=epoch)
