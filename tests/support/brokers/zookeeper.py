"""Real ZooKeeper servers for tests, which are skipped with a hint if ZooKeeper cannot run here."""

import asyncio
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from moldau.store.zookeeper_session import ZooKeeperSession
from moldau.testing import EnsembleMissing, ZooKeeper


@contextmanager
def start_zookeeper(nodes: int = 1) -> Iterator[ZooKeeper]:
    if importlib.util.find_spec("kazoo") is None:
        pytest.skip("needs kazoo: pip install '.[cluster]'")
    try:
        servers = ZooKeeper(nodes).start()
    except EnsembleMissing as missing:
        pytest.skip(str(missing))
    with servers:
        yield servers


async def end_session(session: ZooKeeperSession) -> None:
    """Expire a session on the server at once, as after a session timeout."""
    from kazoo.client import KazooClient

    other = KazooClient(hosts=session._hosts, client_id=session.client.client_id)
    await asyncio.to_thread(other.start)
    await asyncio.to_thread(other.stop)
    other.close()
