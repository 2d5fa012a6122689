"""A real broker inside a test: `from moldau.testing import Broker`."""

from moldau.testing.broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
