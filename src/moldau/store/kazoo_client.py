"""What is particular to kazoo, and the one file that imports it: how a client is set up, and a request that it lacks.

That request is `multiRead` (ZooKeeper 3.6): many nodes for one answer. kazoo keeps a queue of requests that know how to
write themselves and how to read their answer; giving it one more kind is a private matter of kazoo's, and so its
version is pinned.
"""

import logging
import random
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler

from moldau.store.port import Node

log = logging.getLogger("moldau.store")

RETRY = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0}  # kazoo's own would come to wait for an hour

# Operation codes and layouts of ZooKeeper's protocol.
GET_DATA, GET_CHILDREN, MULTI_READ, ERROR = 4, 8, 22, -1
HEADER = struct.Struct(">i?i")  # of one operation: its code, whether this is the end, an error code
LENGTH = struct.Struct(">i")
STAT = struct.Struct(">32xi32x")  # of all that ZooKeeper tells about a node, the version


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Two changes: no dead server takes all of a session's time, and nothing holds up the loop."""

    def __init__(self, connect_s: float) -> None:
        super().__init__()
        self._connect_s = connect_s

    def create_connection(self, *arguments: Any, **named: Any) -> Any:
        named["timeout"] = self._connect_s  # kazoo's is the whole session's
        return super().create_connection(*arguments, **named)

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The pipe through which a caller wakes kazoo's thread."""
        reading, writing = super().create_socket_pair()
        writing.setblocking(False)
        return reading, writing


def new_client(hosts: str, timeout_s: float) -> Any:
    """A KazooClient that is not yet started."""
    quiet = logging.getLogger("moldau.store.kazoo")
    quiet.setLevel(logging.ERROR)  # what is worth telling is told in session.py
    servers = hosts.split(",")
    random.shuffle(servers)
    return KazooClient(
        hosts=",".join(servers),
        # Shuffled once. kazoo would do so again and again, and may then try the server first that it has just given up.
        randomize_hosts=False,
        timeout=timeout_s,
        handler=_Handler(timeout_s / len(servers)),
        connection_retry=dict(RETRY),
        logger=quiet,
    )


def stop_client(client: Any) -> None:
    """Ends the session and the threads. Takes its time if there is no server to tell."""
    try:
        client.stop()
        client.close()
    except WriterNotClosedException:
        log.info("a server that does not answer was not told that the session ended; it will find out")


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as it was read, with the names of its children."""

    node: Node
    children: list[str]


def read_many_async(client: Any, paths: Sequence[str]) -> Any:
    """Asks for nodes and their children; the answer has one Seen for each path, or None where there is no node."""
    result = client.handler.async_result()
    client._call(_ReadMany(tuple(paths)), result)
    return result


@dataclass(frozen=True, slots=True)
class _ReadMany:
    """A request as kazoo knows them: `type`, `serialize` and `deserialize`."""

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
            # A node that came or went between its two halves is as good as one that is not there.
            seen.append(None if node is None or children is None else Seen(node, children))
        return seen


def _read_node(buffer: bytes, offset: int) -> tuple[Node | None, int]:
    code, _, _ = HEADER.unpack_from(buffer, offset)
    offset += HEADER.size
    if code == ERROR:
        return None, offset + LENGTH.size
    (length,) = LENGTH.unpack_from(buffer, offset)
    offset += LENGTH.size
    end = offset + max(length, 0)  # -1 stands for null, which other clients may write
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
