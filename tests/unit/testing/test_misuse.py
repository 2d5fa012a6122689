"""What a test may do wrong with a cluster: it is told, and nothing happens in silence."""

from pathlib import Path

import pytest

from moldau.testing import Broker, Cluster
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


def test_brokers_that_are_not_there(tmp_path: Path) -> None:
    cluster = Cluster(directory=tmp_path)  # never started
    acts = (
        cluster.start, cluster.stop, cluster.kill, cluster.restart, cluster.pause, cluster.isolate,
        cluster.isolate_from_zookeeper, cluster.log_text, cluster.broker, lambda id_: cluster.cut(id_, id_),
    )  # fmt: skip
    try:
        for act in acts:
            with pytest.raises(LookupError, match="there is no broker 9"):
                act(9)
    finally:
        cluster._end()


def test_a_cluster_of_none() -> None:
    with pytest.raises(ValueError, match="not 0"):
        Cluster(brokers=0)


def test_a_broker_in_a_directory_of_a_directory_that_is_not_there_is_started_once(tmp_path: Path) -> None:
    with Broker(tmp_path / "a" / "b") as broker:
        pid = broker.pid
        assert broker.start().pid == pid


def test_whoever_heard_of_the_last_election_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 1 was cut off until now, and believes that it leads; 2 follows, and does not know yet who fell behind."""
    views = {1: (4, 1, (1, 2, 3)), 2: (5, 3, (1, 2, 3)), 3: (5, 3, (2, 3))}

    def metadata(topic: str, *, of: int) -> MetadataResponse:
        if of not in views:
            raise ConnectionRefusedError
        epoch, leader, isr = views[of]
        row = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=(1, 2, 3),
            isr_nodes=isr,
        )
        return MetadataResponse(
            brokers=(), topics=(MetadataResponseTopic(error_code=0, name=topic, partitions=(row,)),)
        )

    cluster = Cluster(directory=tmp_path, proxies=False)
    monkeypatch.setattr(cluster, "metadata", metadata)
    monkeypatch.setattr(cluster, "_running", {1, 2, 3, 4})
    assert (cluster.leader_of("t"), cluster.in_sync("t")) == (3, {2, 3})
    assert cluster.in_sync("t", 7) == set()
    del views[2], views[3]
    assert cluster.leader_of("t") == 1
    views.clear()
    with pytest.raises(ConnectionRefusedError):
        cluster.leader_of("t")
