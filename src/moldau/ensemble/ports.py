"""Free ports for local servers that keep their port over restarts."""

import contextlib
import random
import socket
from collections import deque
from collections.abc import Sequence

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below the ephemeral range: no outgoing connection takes a port while its server is down

_given: deque[int] = deque(maxlen=1_000)  # their servers may not have started yet


def free_ports(count: int, among: Sequence[int] = PORTS) -> list[int]:
    """Distinct free ports, not given by this process before, in random order so that other processes get others."""
    found: list[int] = []
    for port in random.SystemRandom().sample(among, len(among)):
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            found.append(port)
            _given.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} ports are free from {among[0]} to {among[-1]}")
