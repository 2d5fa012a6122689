"""Who lags: that is judged by time that passed, not by the machine's clock."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.broker.replica_manager import ReplicaManager
from moldau.broker.settings import load
from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import Broker, ClusterImage, PartitionState, Topic
from moldau.replication.leader import Leader
from moldau.replication.replicas import Replicas
from support.log.logs import NOW
from support.net.loops import run

HOUR_MS = timedelta(hours=1) // timedelta(milliseconds=1)
LED = ClusterImage(
    brokers={id_: Broker(id_, {}, None, epoch=id_) for id_ in (1, 2)},
    topics={"t": Topic("t", UUID(int=7), (PartitionState(0, (1, 2), (1, 2), 1),), {})},
)


@pytest.mark.parametrize("jump", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_jumps_makes_no_follower_lag(tmp_path: Path, jump: int) -> None:
    clock: Iterator[int] = accumulate(iter(lambda: jump, None), initial=NOW)

    async def main() -> None:
        settings, _ = load({"zookeeper.connect": "nowhere", "broker.id": "1"})
        replicas = Replicas(1, [LogDirectory.open(tmp_path)], lambda _: LogConfig(), lambda: next(clock), 10**9)
        lifecycle: Any = SimpleNamespace(registration=SimpleNamespace(epoch=1))
        peers: Any = SimpleNamespace(to=None)
        manager = ReplicaManager(
            replicas, peers, lifecycle, lambda: LED, lambda: settings, lambda: next(clock), pytest.fail
        )
        replicas.load(LED, 1, lambda: False)
        partition = replicas.get("t", 0)
        assert partition is not None
        assert isinstance(partition.role, Leader)
        partition.log.end_offset += 1  # which nobody has copied yet
        before = replicas.cluster.now()
        await manager.shrink()
        assert not partition.role.isr.lagging(partition.log.end_offset, replicas.cluster.now(), 30_000)
        assert 0 <= replicas.cluster.now() - before < HOUR_MS

    run("asyncio", main())
