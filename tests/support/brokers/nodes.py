"""Broker nodes of a cluster in the test's own event loop, without a process."""

import asyncio
from pathlib import Path

from moldau.broker.clock import Clock
from moldau.broker.node import Node
from moldau.broker.settings import load


def a_node(directory: Path, connect: str, stop: asyncio.Event, **settings: object) -> Node:
    """Broker 1 of the cluster at this ZooKeeper; `node.start` starts it."""
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "node.id": "1",
        "log.dirs": str(directory),
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": "2000",
        **{name.replace("_", "."): str(value) for name, value in settings.items()},
    }
    config, _ = load(given, host_name="localhost")
    return Node(config, stop, Clock())
