"""Real ZooKeeper servers for tests, which are skipped with what to install where these cannot run."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from moldau.testing import EnsembleMissing, ZooKeeper


@contextmanager
def start_zookeeper(nodes: int = 1) -> Iterator[ZooKeeper]:
    if importlib.util.find_spec("kazoo") is None:
        pytest.skip("needs kazoo: pip install 'moldau[cluster]'")
    try:
        servers = ZooKeeper(nodes).start()
    except EnsembleMissing as missing:
        pytest.skip(str(missing))
    with servers:
        yield servers
