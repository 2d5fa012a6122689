"""Connections between simulated brokers: messages are delayed but in order, wait during a partition, or are lost.

As with TCP, a cut between two brokers loses no message: they arrive when it heals. A connection that breaks loses the
messages of both directions, and both sides notice.
"""

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.base.session import Session
from moldau.broker.apis.fetch import fetch
from moldau.broker.apis.list_offsets import list_offsets
from moldau.broker.call import Call
from moldau.net.peer import PeerLost, PeerResponse
from moldau.net.reply import Parked
from moldau.wire.fetching import FETCH

if TYPE_CHECKING:
    from chaos.simulation.broker import SimulatedBroker

MOST_LATENCY_S = 0.01  # of a message; most are much faster
SESSION = Session("BROKERS", "simulated")
BODY = 5  # position of a response's body: after the correlation id and tags


class Network:
    """All pipes, and the directions that are cut. No broker has the id CONTROLLER."""

    CONTROLLER = 0

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.cut: set[tuple[int, int]] = set()
        self._pipes: list[Pipe] = []
        self.connections: list[Connection] = []
        self.messages = 0

    def pipe(self, source: int, target: int) -> "Pipe":
        made = Pipe(self, source, target)
        self._pipes.append(made)
        return made

    def connection(self, here: int, there: "Callable[[], SimulatedBroker | None]", target: int) -> "Connection":
        made = Connection(self, here, there, target)
        self.connections.append(made)
        return made

    def reaches(self, source: int, target: int) -> bool:
        return (source, target) not in self.cut

    def heal(self) -> None:
        self.cut.clear()
        for pipe in self._pipes:
            pipe.go_on()

    def latency(self) -> float:
        return MOST_LATENCY_S * self.dice.random() ** 3

    def forget(self, broker_id: int) -> None:
        """Break all connections of a broker whose process has ended."""
        for connection in self.connections:
            if broker_id in (connection.here, connection.target):
                connection.break_off("the process at one end is gone")
            if connection.here == broker_id:
                connection.close()
        self.connections = [each for each in self.connections if each.here != broker_id]
        self._pipes = [each for each in self._pipes if each.used]


class Pipe:
    """One direction of a connection: runs the callbacks in order, each after a delay."""

    def __init__(self, network: Network, source: int, target: int) -> None:
        self._network, self._source, self._target = network, source, target
        self._queue: deque[tuple[float, Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.used = True

    def put(self, arrive: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._queue.append((loop.time() + self._network.latency(), arrive))
        if self._timer is None:
            self._timer = loop.call_at(self._queue[0][0], self._pump)

    def _pump(self) -> None:
        self._timer = None
        if not self._queue or not self._network.reaches(self._source, self._target):
            return
        _, arrive = self._queue.popleft()
        self._network.messages += 1
        if self._queue:
            self._timer = asyncio.get_running_loop().call_at(self._queue[0][0], self._pump)
        arrive()

    def go_on(self) -> None:
        if self._timer is None and self._queue:
            self._timer = asyncio.get_running_loop().call_at(self._queue[0][0], self._pump)

    def clear(self) -> None:
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connection:
    """A fetcher's connection to its leader (`replication.fetcher.Link`). Responses have the order of the requests."""

    def __init__(self, network: Network, here: int, there: "Callable[[], SimulatedBroker | None]", target: int) -> None:
        self.here, self.target = here, target
        self._there = there
        self._to, self._fro = network.pipe(here, target), network.pipe(target, here)
        self._asked: dict[int, asyncio.Future[Any]] = {}  # by number, oldest first
        self._answers: dict[int, Any] = {}  # ready, or `Parked`, in the order of requests
        self._number = 0

    async def ask_raw(self, api_key: int, version: int, body: bytes, timeout_ms: int | None = None) -> PeerResponse:
        assert api_key == FETCH

        def serve(number: int, broker: "SimulatedBroker") -> None:
            reply = fetch(broker.context, memoryview(body), 0, Call(SESSION, version, number))
            self._answers[number] = reply
            if isinstance(reply, Parked):
                reply.on_done(self._reply)

        frame = await self._ask(serve, timeout_ms)
        return PeerResponse(memoryview(frame), BODY)

    async def ask(self, message: Any, version: int, timeout_ms: int | None = None) -> Any:
        def serve(number: int, broker: "SimulatedBroker") -> None:
            parked = Parked()
            self._answers[number] = parked
            parked.on_done(self._reply)

            async def answer() -> None:
                parked.resolve(await list_offsets(broker.context, message, Call(SESSION, version, number)))  # type: ignore[arg-type]

            broker.spawn(answer())

        return await self._ask(serve, timeout_ms)

    async def _ask(self, serve: "Callable[[int, SimulatedBroker], None]", timeout_ms: int | None) -> Any:
        self._number += 1
        number = self._number
        future = self._asked[number] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            broker = self._there()
            if broker is None:
                self.break_off("connection refused")
            else:
                serve(number, broker)
                self._reply()

        self._to.put(arrive)
        try:
            return await asyncio.wait_for(future, None if timeout_ms is None else timeout_ms / 1000)
        except TimeoutError:
            self.break_off("no response in time")
            raise PeerLost("no response in time") from None
        finally:
            self._asked.pop(number, None)

    def _reply(self) -> None:
        """Send the responses that are ready, in the order of their requests."""
        while self._answers:
            number, answer = next(iter(self._answers.items()))
            if isinstance(answer, Parked):
                if not answer.done:
                    return
                answer = answer.reply
            del self._answers[number]
            if isinstance(answer, Exception):
                self.break_off(str(answer))
                return
            frame = b"".join(map(_read, answer))[4:] if isinstance(answer, list) else answer
            self._fro.put(lambda number=number, frame=frame: self._arrived(number, frame))  # type: ignore[misc]

    def _arrived(self, number: int, frame: Any) -> None:
        future = self._asked.get(number)
        if future is not None and not future.done():
            future.set_result(frame)

    def break_off(self, reason: str) -> None:
        self._to.clear()
        self._fro.clear()
        for answer in self._answers.values():
            if isinstance(answer, Parked):
                answer.abandon()
        self._answers.clear()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(PeerLost(reason))

    def close(self) -> None:
        """Release the pipes: no request follows."""
        self._to.used = self._fro.used = False

    def disconnect(self, reason: str) -> None:
        raise AssertionError(reason)


def _read(part: Any) -> bytes:
    return bytes(part) if isinstance(part, bytes | bytearray) else os.pread(part.file.fd, part.length, part.position)
