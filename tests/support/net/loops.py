"""Real event loops, sockets and peers for tests of the network room; no mocks."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from moldau.base.session import Session
from moldau.net.channel import PlainChannel
from moldau.net.connection import Connection, Handled
from moldau.net.reply import Parked
from moldau.net.request_limits import RequestLimits

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
on_both_loops = pytest.mark.parametrize("loop_kind", LOOPS)


def run(loop_kind: str, main: Coroutine[Any, Any, None]) -> None:
    """Run to the end; an exception in an asyncio callback fails the test."""
    escaped: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
        await asyncio.wait_for(main, 60)

    with asyncio.Runner(loop_factory=LOOPS[loop_kind]) as runner:
        runner.run(watched())
    assert not escaped


class ManualLoop(asyncio.SelectorEventLoop):
    """A loop with a clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def pass_time(self, seconds: float) -> None:
        """Timers due by then fire in the loop's next turn."""
        self.now += seconds


def run_by_hand(main: Callable[[ManualLoop], Coroutine[Any, Any, None]]) -> None:
    """Run to the end on a loop with a manual clock."""
    escaped: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, ManualLoop)
        loop.set_exception_handler(lambda _, context: escaped.append(context))
        runner.run(main(loop))
    assert not escaped


async def until(condition: Callable[[], object]) -> None:
    """Run the loop until a condition holds; `run` limits the time."""
    pause = 0 if isinstance(asyncio.get_running_loop(), ManualLoop) else 0.001
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(pause)


async def turns(count: int = 20) -> None:
    """Let the loop run everything that is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(number: int, padding: int = 0) -> bytes:
    """A request with nothing but its number."""
    return framed(struct.pack(">qh", number, 0) + bytes(padding))


def number_of(frame: memoryview | bytes) -> int:
    return int(struct.unpack_from(">q", frame)[0])


def answer(number: int, padding: int = 0) -> bytes:
    return request(number, padding)


def request_limits(largest: int = 1 << 20, requests: int = 500, memory: int = -1) -> RequestLimits:
    return RequestLimits(largest_request=largest, queued_requests=requests, queued_bytes=memory)


class Peer:
    """The client's end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    def send_some(self, data: bytes) -> int:
        """Send as much as the socket accepts now; return how much."""
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    async def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await self._loop.sock_recv(self.socket, size - len(data))
            assert part, "the connection ended"
            data += part
        return bytes(data)

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.exactly(4))
        return await self.exactly(size)

    async def numbers(self, count: int) -> list[int]:
        """The numbers of the next responses."""
        return [number_of(await self.frame()) for _ in range(count)]

    async def silent(self) -> bool:
        await turns()
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True

    async def ended(self) -> bool:
        """Whether the other side closes the connection without sending more."""
        try:
            return await self._loop.sock_recv(self.socket, 1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()


class Script:
    """A request handler that keeps its requests in order, and responds as scripted by request number."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.replies: dict[int, Callable[[], Handled]] = {}

    def __call__(self, connection: Connection, frame: memoryview) -> Handled:
        number = number_of(frame)
        self.seen.append(number)
        made = self.replies.get(number)
        return answer(number) if made is None else made()

    def park(self, number: int, abandoned: Callable[[], None] | None = None) -> Parked:
        parked = Parked(abandoned)
        self.replies[number] = lambda: parked
        return parked

    def work(self, number: int) -> asyncio.Event:
        """Handle the request in a task that ends when the event is set."""
        go_on = asyncio.Event()

        async def task() -> bytes:
            await go_on.wait()
            return answer(number)

        self.replies[number] = task
        return go_on


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection with small buffers, so that a peer that does not read shows soon."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.connect(listening.getsockname())
        server, _ = listening.accept()
    server.setblocking(False)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    return server, client


class Served:
    """A connection, its peer and its script."""

    def __init__(
        self,
        limits: RequestLimits | None = None,
        script: Script | None = None,
        channel_of: type[PlainChannel] = PlainChannel,
    ) -> None:
        server, client = tcp_pair()
        self.limits = limits or request_limits()
        self.script = script or Script()
        self.gone: list[Connection] = []
        self.server = server
        self.peer = Peer(client)
        channel = channel_of(server, asyncio.get_running_loop())
        self.connection = Connection(channel, Session("PLAINTEXT", "peer"), self.limits, self.script, self.gone.append)

    def close(self) -> None:
        self.connection.close()
        self.peer.close()
