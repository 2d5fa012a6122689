"""The pytest plugin: a fixture `moldau_broker`, one real broker for the whole test session, nothing to configure."""

from collections.abc import Iterator

import pytest

from moldau.testing.broker import Broker


@pytest.fixture(scope="session")
def moldau_broker() -> Iterator[Broker]:
    """A running broker: `moldau_broker.bootstrap_servers`."""
    with Broker() as broker:
        yield broker
