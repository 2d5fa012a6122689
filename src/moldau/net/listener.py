"""Listeners: accept connections within the limits and close idle ones. Knows no requests."""

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from moldau.base.session import ANONYMOUS, Principal, SecurityProtocol, Session
from moldau.net.channel import Channel, PlainChannel
from moldau.net.connection import Connection, FrameHandler
from moldau.net.request_limits import RequestLimits
from moldau.net.tls_handshakes import Handshakes, TlsListener

logger = logging.getLogger("moldau.net")

MAX_ACCEPTS_PER_TURN = 64
PAUSE_SECONDS = 0.5  # without accepting, at a limit or without free file descriptors


class Gate(FrameHandler, Protocol):
    """The first handler of a listener's connections, which hands them over when they are authenticated."""

    @property
    def largest_frame(self) -> int: ...


class CannotListen(Exception):
    """An address that cannot be bound; the text says why and what to do."""


@dataclass(slots=True)
class ConnectionLimits:
    most: int  # max.connections
    most_per_ip: int  # max.connections.per.ip
    overrides: dict[str, int]  # max.connections.per.ip.overrides
    rate: int  # max.connection.creation.rate, per second
    idle_ms: int  # connections.max.idle.ms; negative: never
    send_buffer: int  # socket.send.buffer.bytes; -1: the default of the operating system
    receive_buffer: int  # socket.receive.buffer.bytes
    backlog: int  # socket.listen.backlog.size


@dataclass(frozen=True, slots=True)
class _Bound:
    """What a listening socket belongs to. `tls` is None for listeners without encryption."""

    name: str
    protocol: SecurityProtocol
    tls: TlsListener | None


class Listeners:
    """All listening sockets of a broker and the connections they accepted."""

    def __init__(self, request_limits: RequestLimits, limits: ConnectionLimits) -> None:
        self.request_limits = request_limits
        self.limits = limits
        self.connections: set[Connection] = set()
        self._handler: FrameHandler
        self._gates: Mapping[str, Gate] = {}
        # By a new connection's address: how long it waits, and whether it may be served then (KIP-612).
        self.creation_wait: Callable[[str], tuple[float, bool]] | None = None
        self._per_ip: Counter[str] = Counter()
        self._second = 0  # of the loop's time, in which `_accepted` counts
        self._accepted = 0
        self._sockets: dict[socket.socket, _Bound] = {}
        self._handshakes = Handshakes(request_limits.log)

    def bind(
        self,
        name: str,
        host: str,
        port: int,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        tls: TlsListener | None = None,
    ) -> int:
        """Bind every address of the host; returns the port, a free one if it was 0. An encrypted protocol needs `tls`.

        A port in use is found before recovery, while clients cannot connect before `start`.
        """
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as problem:
            raise CannotListen(f"cannot listen on {host}:{port}: {problem.strerror}") from None
        before = len(self._sockets)
        for family, kind, transport, _, address in dict.fromkeys(found):
            sock = self._bind(family, kind, transport, (host, port), (address[0], port, *address[2:]))
            if sock is None:
                continue
            port = sock.getsockname()[1]
            self._sockets[sock] = _Bound(name, protocol, tls)
        if len(self._sockets) == before:
            raise CannotListen(f"cannot listen on {host}:{port}: the host has no address of this machine")
        return port

    def _bind(
        self, family: int, kind: int, protocol: int, configured: tuple[str, int], address: tuple[object, ...]
    ) -> socket.socket | None:
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError:
            return None  # the kernel does not support this address family, such as IPv6
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if self.limits.receive_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.receive_buffer)
        try:
            sock.bind(address)
        except OSError as problem:
            sock.close()
            if problem.errno == errno.EADDRNOTAVAIL and family == socket.AF_INET6:
                return None  # "localhost" may resolve to ::1 on machines without IPv6
            raise CannotListen(_bind_error(*configured, problem)) from None
        return sock

    def start(self, handler: FrameHandler, gates: Mapping[str, Gate] | None = None) -> None:
        """Accept connections; their frames go to `handler`, on some listeners to a gate first."""
        self._handler = handler
        self._gates = gates or {}
        loop = asyncio.get_running_loop()
        for sock, bound in self._sockets.items():
            try:
                sock.listen(self.limits.backlog)
            except OSError as problem:  # several sockets may bind a port until one of them listens
                host, port = sock.getsockname()[:2]
                raise CannotListen(_bind_error(host, port, problem)) from None
            loop.add_reader(sock.fileno(), self._accept, sock, bound)

    def _accept(self, listening: socket.socket, bound: _Bound) -> None:
        for _ in range(MAX_ACCEPTS_PER_TURN):
            if limit := self._reached_limit():
                self._warn("New connections wait on", bound.name, limit)
                self._pause(listening, bound)
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                logger.error(
                    "Cannot accept connections: %s; raise the limit on open files, e.g. ulimit -n 100000",
                    problem.strerror,
                )
                self._pause(listening, bound)
                return
            self._accepted += 1
            try:
                self._admit(sock, str(address[0]), int(address[1]), bound)
            except OSError as problem:  # closed by the client already
                logger.info("Connection from %s was lost before it was accepted: %s", address[0], problem.strerror)
                sock.close()

    def _reached_limit(self) -> str:
        """The limit that keeps new connections in the kernel's queue now, as with Kafka, or ""."""
        second = int(self._now())
        if second != self._second:
            self._second, self._accepted = second, 0
        if self._accepted >= self.limits.rate:
            return f"max.connection.creation.rate={self.limits.rate}"
        if len(self.connections) + len(self._handshakes) >= self.limits.most:
            return f"max.connections={self.limits.most}"
        return ""

    def _warn(self, event: str, subject: str, limit: str) -> None:
        self.request_limits.log.write(logging.WARNING, event, subject, f"{limit} reached", self._now())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _pause(self, listening: socket.socket, bound: _Bound) -> None:
        """Stop accepting for a while: the socket stays readable, and the loop would spin."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())

        def accept_again() -> None:
            if listening in self._sockets:
                loop.add_reader(listening.fileno(), self._accept, listening, bound)

        loop.call_later(PAUSE_SECONDS, accept_again)

    def _admit(self, sock: socket.socket, ip: str, port: int, bound: _Bound) -> None:
        peer = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        most = self.limits.overrides.get(ip, self.limits.most_per_ip)
        if self._per_ip[ip] >= most:
            self._warn("Refusing connection from", peer, f"max.connections.per.ip={most}")
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.limits.send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer)
        self._per_ip[ip] += 1
        if bound.tls is None:
            self._connect(PlainChannel(sock, asyncio.get_running_loop()), None, bound, peer, ip)
            return

        def done(channel: Channel, principal: Principal | None) -> None:
            self._connect(channel, principal, bound, peer, ip)

        self._handshakes.start(sock, peer, bound.tls, done, lambda: self._left(ip))

    def _connect(self, channel: Channel, principal: Principal | None, bound: _Bound, peer: str, ip: str) -> None:
        session = Session(bound.name, peer, bound.protocol, principal or ANONYMOUS)
        connection = Connection(
            channel, session, self.request_limits, self._handler, lambda closed: self._closed(closed, ip)
        )
        if (gate := self._gates.get(bound.name)) is not None:
            connection.hand_over(gate, largest=gate.largest_frame)
        self.connections.add(connection)
        if self.creation_wait is not None:
            self._hold_back(connection, *self.creation_wait(ip))

    def _hold_back(self, connection: Connection, wait_s: float, served: bool) -> None:
        """Serve a new connection after a while, or close it then, if too many of its address wait already."""
        connection.throttle(wait_s * 1000)
        if not served:
            self._warn("Refusing connection from", connection.session.peer, "connection_creation_rate")
            asyncio.get_running_loop().call_later(wait_s, connection.close)

    def sessions(self) -> Iterator[Session]:
        """Of all open connections."""
        return (connection.session for connection in self.connections)

    def end_throttles(self) -> None:
        """Serve throttled connections again, since quotas have changed. Each request is judged anew."""
        for connection in list(self.connections):
            connection.end_throttle()

    def _closed(self, connection: Connection, ip: str) -> None:
        self.connections.discard(connection)
        self._left(ip)

    def _left(self, ip: str) -> None:
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def close_idle(self) -> None:
        """Close connections without a byte in either direction for connections.max.idle.ms."""
        if self.limits.idle_ms < 0:
            return
        oldest = self._now() - self.limits.idle_ms / 1000
        for connection in [each for each in self.connections if each.active_at < oldest]:
            connection.close("idle for longer than connections.max.idle.ms")

    def stop_listening(self) -> None:
        """Accept no more connections; those accepted stay open."""
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()

    def close(self) -> None:
        """Close all sockets and connections."""
        self.stop_listening()
        self._handshakes.close()
        for connection in list(self.connections):
            connection.close()


def _bind_error(host: str, port: int, problem: OSError) -> str:
    error = f"cannot listen on {host or '*'}:{port}"
    if problem.errno == errno.EADDRINUSE:
        other = "choose another port with --listen or the setting listeners"
        return f"{error}: the port is in use; stop the other program, or {other}"
    if problem.errno == errno.EACCES:
        return f"{error}: permission denied; ports below 1024 need privileges"
    return f"{error}: {problem.strerror}"
