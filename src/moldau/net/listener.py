"""A listening socket: accepts connections, within the limits, and closes idle ones. Knows nothing of requests."""

import asyncio
import errno
import logging
import socket
from collections import Counter
from dataclasses import dataclass

from moldau.base.session import Session
from moldau.net.channel import PlainChannel
from moldau.net.connection import Connection, Handler
from moldau.net.request_limits import RequestLimits

logger = logging.getLogger("moldau.net")

ACCEPTS_AT_MOST = 64  # connections accepted in one turn of the loop
PAUSE_SECONDS = 0.5  # after the process ran out of file descriptors


class CannotListen(Exception):
    """The address cannot be listened on; the text says why and what to do."""


@dataclass(slots=True)
class ConnectionLimits:
    most: int  # max.connections
    most_per_ip: int  # max.connections.per.ip
    overrides: dict[str, int]  # max.connections.per.ip.overrides
    rate: int  # max.connection.creation.rate: connections accepted in a second
    idle_ms: int  # connections.max.idle.ms; negative: never
    send_buffer: int  # socket.send.buffer.bytes; -1: the system's own
    receive_buffer: int  # socket.receive.buffer.bytes
    backlog: int  # socket.listen.backlog.size


class Listeners:
    """All listening sockets of a broker and the connections they accepted."""

    def __init__(self, request_limits: RequestLimits, limits: ConnectionLimits, handler: Handler) -> None:
        self.request_limits = request_limits
        self.limits = limits
        self.connections: set[Connection] = set()
        self._handler = handler
        self._per_ip: Counter[str] = Counter()
        self._second = 0  # the one that `_accepted` counts in
        self._accepted = 0
        self._sockets: dict[socket.socket, str] = {}  # and their listener's name

    def bind(self, name: str, host: str, port: int) -> int:
        """Take every address that the host name has; returns the port (a free one if 0 was asked for).

        Nobody can connect before `start`: a busy port is found out at once, a broker that still recovers is not met.
        """
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as problem:
            raise CannotListen(f"cannot listen on {host}:{port}: {problem.strerror}") from None
        taken = len(self._sockets)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = self._bind(family, kind, protocol, (host, port), (address[0], port, *address[2:]))
            if sock is None:
                continue
            port = sock.getsockname()[1]
            self._sockets[sock] = name
        if len(self._sockets) == taken:
            raise CannotListen(f"cannot listen on {host}:{port}: the host has no address that this machine can use")
        return port

    def _bind(
        self, family: int, kind: int, protocol: int, asked: tuple[str, int], address: tuple[object, ...]
    ) -> socket.socket | None:
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError:
            return None  # the kernel has no such address family, IPv6 for example: the others serve
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
                return None  # "localhost" names ::1 on machines without IPv6
            raise CannotListen(_why(asked[0], asked[1], problem)) from None
        return sock

    def start(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        for sock, name in self._sockets.items():
            try:
                sock.listen(self.limits.backlog)
            except OSError as problem:  # two may be bound to a port as long as none of them listens
                host, port = sock.getsockname()[:2]
                raise CannotListen(_why(host, port, problem)) from None
            loop.add_reader(sock.fileno(), self._accept, sock, name)

    def _accept(self, listening: socket.socket, name: str) -> None:
        for _ in range(ACCEPTS_AT_MOST):
            held_back = self._held_back()
            if held_back:
                self._warn("new connections wait on", name, held_back)
                self._pause(listening, name)
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                logger.error("cannot accept connections: %s; raise the limit with: ulimit -n 100000", problem.strerror)
                self._pause(listening, name)
                return
            self._accepted += 1
            try:
                self._admit(sock, str(address[0]), int(address[1]), name)
            except OSError as problem:  # gone again before it was here
                logger.info("lost connection from %s: %s", address[0], problem.strerror)
                sock.close()

    def _held_back(self) -> str:
        """The limit that keeps new connections in the kernel's queue now, as Kafka does; "" if there is none."""
        second = int(self._now())
        if second != self._second:
            self._second, self._accepted = second, 0
        if self._accepted >= self.limits.rate:
            return f"max.connection.creation.rate={self.limits.rate}"
        if len(self.connections) >= self.limits.most:
            return f"max.connections={self.limits.most}"
        return ""

    def _warn(self, event: str, subject: str, limit: str) -> None:
        self.request_limits.log.write(logging.WARNING, event, subject, f"{limit} reached", self._now())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _pause(self, listening: socket.socket, name: str) -> None:
        """Without a free descriptor, or over a limit, the socket stays readable: do not spin on it."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())

        def go_on() -> None:
            if listening in self._sockets:
                loop.add_reader(listening.fileno(), self._accept, listening, name)

        loop.call_later(PAUSE_SECONDS, go_on)

    def _admit(self, sock: socket.socket, ip: str, port: int, name: str) -> None:
        shown = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        refusal = self._refusal(ip)
        if refusal:
            self._warn("refusing connection from", shown, refusal)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.limits.send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer)
        channel = PlainChannel(sock, asyncio.get_running_loop())
        session = Session(name, shown)
        connection = Connection(channel, session, self.request_limits, self._handler, lambda gone: self._left(gone, ip))
        self.connections.add(connection)
        self._per_ip[ip] += 1

    def _refusal(self, ip: str) -> str:
        most = self.limits.overrides.get(ip, self.limits.most_per_ip)
        if self._per_ip[ip] >= most:
            return f"max.connections.per.ip={most}"
        return ""

    def _left(self, connection: Connection, ip: str) -> None:
        self.connections.discard(connection)
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def close_idle(self) -> None:
        """Close connections that neither sent nor took a byte for connections.max.idle.ms."""
        if self.limits.idle_ms < 0:
            return
        oldest = asyncio.get_running_loop().time() - self.limits.idle_ms / 1000
        for connection in [each for each in self.connections if each.active_at < oldest]:
            connection.close("idle for longer than connections.max.idle.ms")

    def stop_listening(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()

    def close(self) -> None:
        self.stop_listening()
        for connection in list(self.connections):
            connection.close()


def _why(host: str, port: int, problem: OSError) -> str:
    where = f"cannot listen on {host or '*'}:{port}"
    if problem.errno == errno.EADDRINUSE:
        return f"{where}: the port is in use; stop the other program or choose another port"
    if problem.errno == errno.EACCES:
        return f"{where}: not allowed; ports below 1024 need privileges"
    return f"{where}: {problem.strerror}"
