"""Ports for servers of this machine that are stopped and started again, and keep their port in between."""

import contextlib
import random
import socket
from collections.abc import Sequence

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below those of outgoing connections: none takes a port while its server is away


def free_ports(count: int, among: Sequence[int] = PORTS) -> list[int]:
    """Ports that nobody has now, in no order: who asks at the same time gets others. None is given twice."""
    found: list[int] = []
    for port in random.SystemRandom().sample(among, len(among)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"there are no {count} free ports from {among[0]} to {among[-1]}")
