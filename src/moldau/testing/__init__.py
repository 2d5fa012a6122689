"""Real servers inside a test: `from moldau.testing import Broker, Cluster, ZooKeeper`."""

from moldau.testing.broker import Broker, BrokerFailed
from moldau.testing.cluster import Cluster
from moldau.testing.zookeeper import EnsembleFailed, EnsembleMissing, ZooKeeper

__all__ = ["Broker", "BrokerFailed", "Cluster", "EnsembleFailed", "EnsembleMissing", "ZooKeeper"]
