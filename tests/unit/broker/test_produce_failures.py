"""Disks that fail in the middle of a produce request: what the producer hears, and when."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import WireError
from moldau.broker.apis.produce import produce
from moldau.broker.replica_manager import ReplicaManager
from moldau.broker.settings import load
from moldau.log.directory import LogDirectory
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.metadata.image import Broker, ClusterImage, PartitionState, Topic
from moldau.replication.replicas import Replicas
from moldau.wire.codec import decode, encode
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.brokers.calls import a_call
from support.log.logs import NOW, batch
from support.net.loops import run

VERSION = 12
LED = ClusterImage(
    brokers={id_: Broker(id_, {}, None, epoch=id_) for id_ in (1, 2)},
    topics={"t": Topic("t", UUID(int=7), tuple(PartitionState(i, (1, 2), (1, 2), 1) for i in (0, 1)), {})},
)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_disk_that_fails_between_two_batches_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The second append fails, and with the directory also the first, which had begun to wait for its follower."""
    append = Log.append

    def fail(log: Log, *arguments: Any) -> int:
        if str(log.directory).endswith(f"t-{failing}"):
            raise OSError(errno.EIO, "Input/output error")
        return append(log, *arguments)

    async def main() -> None:
        settings, _ = load({"zookeeper.connect": "nowhere", "broker.id": "1"})
        replicas = Replicas(1, [LogDirectory.open(tmp_path)], lambda _: LogConfig(), lambda: NOW, 10**9)
        member: Any = SimpleNamespace(registration=SimpleNamespace(epoch=1))
        peers: Any = SimpleNamespace(to=None)
        ReplicaManager(replicas, peers, member, lambda: LED, lambda: settings, lambda: NOW, lambda reason: None)
        replicas.load(LED, 1, lambda: False)
        context: Any = SimpleNamespace(replicas=replicas, now=lambda: NOW, image=LED, config=settings, authorizer=None)
        monkeypatch.setattr(Log, "append", fail)
        rows = tuple(PartitionProduceData(index=index, records=bytes(batch(1, timestamp=NOW))) for index in range(2))
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=(TopicProduceData(name="t", partition_data=rows),)
        )
        reply = produce(context, memoryview(encode(request, VERSION)), 0, a_call(VERSION))
        assert isinstance(reply, bytes), "the producer waits until its request times out"
        response = decode(ProduceResponse, VERSION, memoryview(reply), 9)
        codes = [each.error_code for each in response.responses[0].partition_responses]
        assert codes == [WireError.KAFKA_STORAGE_ERROR, WireError.KAFKA_STORAGE_ERROR]

    run("asyncio", main())
