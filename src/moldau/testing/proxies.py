"""TCP proxies between the processes of a test's cluster, for network faults.

Bytes and closes from one party to another can be held up. Nothing is lost or reset: they continue when the network
heals, as TCP would retransmit them. A connection made meanwhile is accepted, stays silent, and closes when the network
heals, because it could not have been made.

The kernel tells which process a connection belongs to (Linux).
"""

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from moldau.ensemble.ports import HOST

CHUNK = 256 * 1024
NO_LINGER = struct.pack("ii", 1, 0)  # close with a reset
SOCKETS = Path("/proc/net/tcp")

Party = Hashable
T = TypeVar("T")


class Network:
    """Proxies of one cluster, on an event loop in a separate thread. `pids` has the processes that may connect."""

    def __init__(self, pids: Callable[[], Mapping[Party, int]] = dict) -> None:
        self.pids = pids
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="moldau-proxies", daemon=True)
        self._held: set[tuple[Party, Party]] = set()  # sender, receiver
        self._changed = asyncio.Event()
        self._proxies: list[Proxy] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._ending = False
        self._thread.start()

    def hold(self, sender: Party, receiver: Party) -> None:
        """Hold up everything that `sender` sends to `receiver`."""
        self._call(self._set_held(self._held | {(sender, receiver)}))

    def heal(self) -> None:
        """Release everything that is held up."""
        self._call(self._set_held(set()))

    def proxy(self, target: Party, port: int, source: Party = None) -> "Proxy":
        """A proxy in front of a port of the target, for one source or any."""
        made = Proxy(self, target, port, source)
        self._proxies.append(made)
        made.listen()
        return made

    def close(self) -> None:
        """Close the proxies, their connections and the thread."""
        if self._thread.is_alive():
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def is_held(self, sender: Party, receiver: Party) -> bool:
        """An unknown party (None) may be any."""
        if sender is None or receiver is None:
            return any(each[0] == sender or each[1] == receiver for each in self._held)
        return (sender, receiver) in self._held

    async def passable(self, sender: Party, receiver: Party) -> None:
        while self.is_held(sender, receiver):
            await self._changed.wait()

    def keep(self, connection: "asyncio.Task[None]") -> bool:
        """Tell whether to keep a connection: not one that was accepted while the network closed."""
        if not self._ending:
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)
        return not self._ending

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _set_held(self, held: set[tuple[Party, Party]]) -> None:
        self._held = held
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _end(self) -> None:
        self._ending = True
        for proxy in self._proxies:
            await proxy._refuse()
        for each in self._connections:
            each.cancel()
        # Tasks of connections that were accepted and not yet started end by themselves. Tasks that outlive the loop
        # would warn when they are collected.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)


class Proxy:
    """Proxy for one port of a process. Refuses connections when the process would."""

    def __init__(self, network: Network, target: Party, port_behind: int, source: Party) -> None:
        self.port = 0
        self.target_runs = False  # afterwards a refused connection means that it has exited
        self._network = network
        self._target = target
        self._port_behind = port_behind
        self._source = source
        self._server: asyncio.Server | None = None
        self._changing = asyncio.Lock()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def listen(self) -> None:
        """Listen, always on the same port."""
        self._network._call(self._listen())

    def refuse(self) -> None:
        """Stop listening, because the target is down. Open connections stay."""
        self._network._call(self._refuse())

    async def _listen(self) -> None:
        async with self._changing:
            if self._server is None:
                self._server = await asyncio.start_server(self._accept, HOST, self.port)
                self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        self.target_runs = False
        async with self._changing:
            server, self._server = self._server, None
            if server is None:
                return
            # Handle accepted connections first: asyncio never closes them once their server is closed.
            for each in server.sockets:
                asyncio.get_running_loop().remove_reader(each.fileno())
            await asyncio.sleep(0)
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if not self._network.keep(task):
                raise ConnectionResetError
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            _reset(writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = self._source
        if source is None:
            source = find_caller(writer.get_extra_info("peername")[1], self.port, self._network.pids())
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
            await self._pass_on(source, (reader, writer), (behind_reader, behind_writer))
        finally:
            behind_writer.close()

    async def _pass_on(
        self,
        source: Party,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Copy until either side closes the connection and the other side has seen it."""
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


def find_caller(port: int, called: int, pids: Mapping[Party, int]) -> Party:
    """The process with the socket that connects this local port to the called port; or None."""
    try:
        rows = [line.split() for line in SOCKETS.read_text().splitlines()[1:]]
    except OSError:  # not Linux
        return None
    ends = (f":{port:04X}", f":{called:04X}")
    inodes = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1])}
    for party, pid in pids.items():
        if inodes & _open_files(pid):
            return party
    return None


def _open_files(pid: int) -> set[str]:
    found = set()
    try:
        for each in os.scandir(f"/proc/{pid}/fd"):
            found.add(os.readlink(each.path))
    except OSError:  # the process or file descriptor is gone
        return found
    return found


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection, as when its process is killed."""
    link = writer.get_extra_info("socket")
    if link is not None and link.fileno() >= 0:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()
