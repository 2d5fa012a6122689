"""Real servers inside a test: `from moldau.testing import Broker, ZooKeeper`."""

from moldau.testing.broker import Broker, BrokerFailed
from moldau.testing.zookeeper import EnsembleFailed, ZooKeeper

__all__ = ["Broker", "BrokerFailed", "EnsembleFailed", "ZooKeeper"]
