"""What a test may do wrong with a cluster: it is told, and nothing happens in silence."""

from pathlib import Path

import pytest

from moldau.testing import Broker, Cluster


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
