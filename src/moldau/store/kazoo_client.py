"""The one file that imports kazoo: client set-up, and the `multiRead` request, which kazoo lacks.

`multiRead` (ZooKeeper 3.6) reads many znodes with one request. kazoo keeps a queue of requests that serialize
themselves and deserialize their responses. Adding one uses private parts of kazoo, so its version is pinned.
"""

import logging
import random
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler

from moldau.store.port import Node

logger = logging.getLogger("moldau.store")

RETRY = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0}  # kazoo's default delays grow to an hour

# Operation codes and layouts of ZooKeeper's protocol.
GET_DATA, GET_CHILDREN, MULTI_READ, ERROR = 4, 8, 22, -1
HEADER = struct.Struct(">i?i")  # of one operation: its code, whether this is the end, an error code
LENGTH = struct.Struct(">i")
STAT = struct.Struct(">32xi32x")  # the version of a znode, out of its stat


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Three changes: one dead server does not use up the session timeout, the wake-up pipe does not block, own TLS.

    kazoo's own TLS makes a context for each connection, from PEM files alone, and does not tell why one failed.
    """

    def __init__(self, connect_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connect_s = connect_s
        self._tls = tls
        self._told = ""  # the last problem that was logged

    def create_connection(self, *arguments: Any, **named: Any) -> Any:
        named["timeout"] = self._connect_s  # kazoo's is the session timeout
        sock = super().create_connection(*arguments, **named)
        return sock if self._tls is None else self._encrypt(self._tls, sock, named.get("hostname"))

    def _encrypt(self, tls: ssl.SSLContext, sock: socket.socket, host: str | None) -> ssl.SSLSocket:
        try:
            encrypted = tls.wrap_socket(sock, server_hostname=host)
        except OSError as problem:
            sock.close()
            why = getattr(problem, "verify_message", "") or getattr(problem, "reason", "") or str(problem)
            if why != self._told:
                self._told = why
                logger.error(
                    "TLS handshake with ZooKeeper at %s failed: %s. Check zookeeper.ssl.*, and that zookeeper.connect "
                    "names the secureClientPort.",
                    host,
                    why,
                )
            raise
        self._told = ""
        return encrypted

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The pipe through which a caller wakes kazoo's thread."""
        reading, writing = super().create_socket_pair()
        writing.setblocking(False)
        return reading, writing


def new_client(hosts: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> Any:
    """A KazooClient that is not yet started; with a context, it connects with TLS."""
    kazoo_logger = logging.getLogger("moldau.store.kazoo")
    kazoo_logger.setLevel(logging.ERROR)  # zookeeper_session.py logs what operators need
    servers = hosts.split(",")
    random.shuffle(servers)
    return KazooClient(
        hosts=",".join(servers),
        # Shuffled once: kazoo would shuffle again for each attempt, and may retry the server that just failed.
        randomize_hosts=False,
        timeout=timeout_s,
        handler=_Handler(timeout_s / len(servers), tls),
        connection_retry=dict(RETRY),
        logger=kazoo_logger,
    )


def stop_client(client: Any) -> None:
    """End the session and the threads. Slow if no server responds."""
    try:
        client.stop()
        client.close()
    except WriterNotClosedException:
        logger.info("ZooKeeper did not acknowledge the end of the session; it expires by itself.")


@dataclass(frozen=True, slots=True)
class Seen:
    """A znode with the names of its children."""

    node: Node
    children: list[str]


def read_many_async(client: Any, paths: Sequence[str]) -> Any:
    """Read znodes and their children; the result has one Seen for each path, or None where there is no znode."""
    result = client.handler.async_result()
    client._call(_ReadMany(tuple(paths)), result)
    return result


@dataclass(frozen=True, slots=True)
class _ReadMany:
    """A request in kazoo's form: `type`, `serialize` and `deserialize`."""

    type: ClassVar[int] = MULTI_READ
    paths: tuple[str, ...]

    def serialize(self) -> bytearray:
        request = bytearray()
        for path in self.paths:
            name = path.encode()
            asked = LENGTH.pack(len(name)) + name + b"\0"  # no watch
            request += HEADER.pack(GET_DATA, False, -1) + asked
            request += HEADER.pack(GET_CHILDREN, False, -1) + asked
        return request + HEADER.pack(-1, True, -1)

    def deserialize(self, buffer: bytes, offset: int) -> list[Seen | None]:
        seen: list[Seen | None] = []
        for _ in self.paths:
            node, offset = _read_node(buffer, offset)
            children, offset = _read_children(buffer, offset)
            # Created or deleted between the two reads: treated as missing.
            seen.append(None if node is None or children is None else Seen(node, children))
        return seen


def _read_node(buffer: bytes, offset: int) -> tuple[Node | None, int]:
    code, _, _ = HEADER.unpack_from(buffer, offset)
    offset += HEADER.size
    if code == ERROR:
        return None, offset + LENGTH.size
    (length,) = LENGTH.unpack_from(buffer, offset)
    offset += LENGTH.size
    end = offset + max(length, 0)  # -1 is null, which other clients may write
    (version,) = STAT.unpack_from(buffer, end)
    return Node(bytes(buffer[offset:end]), version), end + STAT.size


def _read_children(buffer: bytes, offset: int) -> tuple[list[str] | None, int]:
    code, _, _ = HEADER.unpack_from(buffer, offset)
    offset += HEADER.size
    if code == ERROR:
        return None, offset + LENGTH.size
    (count,) = LENGTH.unpack_from(buffer, offset)
    offset += LENGTH.size
    names = []
    for _ in range(count):
        (length,) = LENGTH.unpack_from(buffer, offset)
        offset += LENGTH.size
        names.append(buffer[offset : offset + length].decode())
        offset += length
    return names, offset
