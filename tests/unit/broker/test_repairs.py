"""Damaged replicas: what becomes of one that is taken away from its broker while it is repaired."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from log_batches import NOW
from moldau.broker.replication import Replication
from moldau.broker.settings import load
from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.replication.replicas import Replicas
from support.loops import run, until

FOLLOWED = ClusterImage(topics={"t": Topic("t", UUID(int=7), (PartitionState(0, (2, 1), (2, 1), 2),), {})})


class Unreachable:
    asked = 0

    async def ask_raw(self, *_: object) -> None:
        self.asked += 1
        await asyncio.Event().wait()


def test_a_replica_that_is_gone_when_it_is_repaired_is_not_copied_again(tmp_path: Path) -> None:
    async def main() -> None:
        settings, _ = load({"zookeeper.connect": "nowhere", "broker.id": "1"})
        replicas = Replicas(1, [LogDirectory.open(tmp_path)], lambda _: LogConfig(), lambda: NOW, 10**9)
        replicas.load(FOLLOWED, 1, lambda: False)
        link = Unreachable()
        peers: Any = SimpleNamespace(to=lambda *_: link)
        member: Any = SimpleNamespace(membership=SimpleNamespace(epoch=1))
        replication = Replication(replicas, peers, member, lambda: FOLLOWED, lambda: settings, lambda: NOW)
        replication.start()
        await until(lambda: link.asked == 1)
        partition = replicas.get("t", 0)
        assert partition is not None
        partition.cannot_read()
        replicas.follow(FOLLOWED, ClusterImage())
        await until(lambda: not partition.damaged)
        await replicas.settled()
        assert all(fetcher.idle for fetcher in replication._fetchers._fetchers.values())
        await replication.stop()
        await replicas.stop()

    run("asyncio", main())
