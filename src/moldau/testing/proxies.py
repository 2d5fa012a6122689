"""TCP proxies between the processes of a test's cluster, so that a network can fail. Knows of Kafka only who calls.

What one party sends to another can be held up. Nothing is lost and nobody is told: bytes and the ends of connections
wait where they are and go on when the network heals, as TCP would send them again. A connection that is made meanwhile
is accepted and silent, and ends when the network heals, since in truth it would not have come about.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Hashable
from typing import Any, TypeVar

HOST = "127.0.0.1"
CHUNK = 256 * 1024
LONGEST_NAME = 1024
NO_LINGER = struct.pack("ii", 1, 0)  # close with a reset
# Length, API key, version, correlation id, length of the client id: how every request of Kafka's protocol begins.
_REQUEST_HEAD = struct.Struct(">ihhih")

Party = Hashable
T = TypeVar("T")


class Network:
    """The proxies of one cluster, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="moldau-proxies", daemon=True)
        self._held: set[tuple[Party, Party]] = set()  # sender, receiver
        self._changed = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread.start()

    def hold(self, sender: Party, receiver: Party) -> None:
        """From now on nothing that `sender` sends arrives at `receiver`."""
        self._call(self._set_held(self._held | {(sender, receiver)}))

    def heal(self) -> None:
        """Everything arrives again."""
        self._call(self._set_held(set()))

    def proxy(self, target: Party, port: int, source: Party = None) -> "Proxy":
        """A proxy in front of a port of the target. Without a source, callers are brokers and say who they are."""
        made = Proxy(self, target, port, source)
        made.listen()
        return made

    def close(self) -> None:
        """End all connections, and the thread."""
        if self._thread.is_alive():
            self._call(self._end_connections())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def is_held(self, sender: Party, receiver: Party) -> bool:
        return (sender, receiver) in self._held

    async def passable(self, sender: Party, receiver: Party) -> None:
        while self.is_held(sender, receiver):
            await self._changed.wait()

    def keep(self, connection: "asyncio.Task[None]") -> None:
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _set_held(self, held: set[tuple[Party, Party]]) -> None:
        self._held = held
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _end_connections(self) -> None:
        for each in self._connections:
            each.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


class Proxy:
    """One address for one port of a process. Refuses connections when the process would."""

    def __init__(self, network: Network, target: Party, port_behind: int, source: Party) -> None:
        self.port = 0
        self.target_runs = False  # once it does, a refused connection means that it has ended
        self._network = network
        self._target = target
        self._port_behind = port_behind
        self._source = source
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def listen(self) -> None:
        """Take connections, always on the same port."""
        self._network._call(self._listen())

    def refuse(self) -> None:
        """Take no more connections: nobody is behind. Those that are open go on."""
        self._network._call(self._refuse())

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        self.target_runs = False
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._network.keep(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            _reset(writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source, first = (self._source, b"") if self._source is not None else await _read_caller(reader)
        held = [each for each in ((source, self._target), (self._target, source)) if self._network.is_held(*each)]
        for each in held:
            await self._network.passable(*each)
        if held:
            return
        try:
            behind_reader, behind_writer = await asyncio.open_connection(HOST, self._port_behind)
        except ConnectionRefusedError:
            if self.target_runs:
                await self._refuse()
            raise
        try:
            behind_writer.write(first)
            await self._pass_on(source, (reader, writer), (behind_reader, behind_writer))
        finally:
            behind_writer.close()

    async def _pass_on(
        self,
        source: Party,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Until either side ends the connection, and that has arrived at the other one."""
        ways = (
            asyncio.create_task(self._one_way(near[0], far[1], source, self._target)),
            asyncio.create_task(self._one_way(far[0], near[1], self._target, source)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _one_way(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: Party, receiver: Party
    ) -> None:
        while True:
            try:
                data = await reader.read(CHUNK)
            except OSError:
                data = b""
            await self._network.passable(sender, receiver)
            if not data:
                return
            writer.write(data)
            await writer.drain()


async def _read_caller(reader: asyncio.StreamReader) -> tuple[Party, bytes]:
    """Which broker calls, by the client id of its first request (`broker-3-fetch`), and the bytes read for that."""
    head = await reader.readexactly(_REQUEST_HEAD.size)
    *_, length = _REQUEST_HEAD.unpack(head)
    name = await reader.readexactly(min(max(length, 0), LONGEST_NAME))
    kind, _, rest = name.decode(errors="replace").partition("-")
    number = rest.partition("-")[0]
    caller = int(number) if kind == "broker" and number.isdecimal() else None
    return caller, head + name


def _reset(writer: asyncio.StreamWriter) -> None:
    """The connection ends as one does whose process was killed."""
    link = writer.get_extra_info("socket")
    if link is not None and link.fileno() >= 0:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()
