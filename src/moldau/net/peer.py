"""A connection to another broker, as its client: asks, and hands out the answers in order. Knows no API but by its row.

The connection is made when somebody asks, and made again after it ended; after failures with growing pauses. A request
whose answer does not come in time ends the connection: replies are ordered, so whatever was asked behind it is stuck as
well. Whether a request that got no answer was carried out is unknown; that is what `PeerLost` means.
"""

import asyncio
import errno
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from moldau.wire.codec import decode, encode
from moldau.wire.declare import layout_of
from moldau.wire.frames import LEAST_GROWTH, LENGTH, FrameCutter
from moldau.wire.headers import pack_request_header, read_response_header
from moldau.wire.messages.registry import APIS, ASKED
from moldau.wire.primitives import MalformedMessage

log = logging.getLogger("moldau.net")

SCRATCH_BYTES = 64 * 1024  # of one read; larger answers get a buffer that grows with what came
LARGEST_ANSWER = 1024**3  # bytes
IN_FLIGHT_AT_MOST = 1000  # requests without an answer on one connection
CONNECT_TIMEOUT_MS = 10_000  # socket.connection.setup.timeout.ms
REQUEST_TIMEOUT_MS = 30_000  # request.timeout.ms
LEAST_BACKOFF_MS = 50  # between attempts to connect, doubled with each one that fails
MOST_BACKOFF_MS = 1_000

_RESPONSES = {api.request: api.response for api in (*APIS, *ASKED)}


class PeerLost(ConnectionError):
    """There is no connection, or it ended before the answer came: nobody knows whether the request was carried out."""

    def __init__(self, reason: str, *, refused: bool = False, sent: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused  # the machine answered that nobody listens there: the process is not running
        self.sent = sent  # the request may have reached the peer


class Address(NamedTuple):
    host: str
    port: int


class Answer(NamedTuple):
    """A response as it came: its frame, which belongs to the receiver, and where the body begins."""

    frame: memoryview
    at: int


Connect = Callable[[Callable[[], asyncio.BaseProtocol], Address], Awaitable[asyncio.Transport]]


async def connect_plain(protocol: Callable[[], asyncio.BaseProtocol], address: Address) -> asyncio.Transport:
    """The one place where connections to brokers are opened."""
    transport, _ = await asyncio.get_running_loop().create_connection(protocol, address.host, address.port)
    return transport


class _Cutter(FrameCutter):
    """Grows a frame by moving it into a larger buffer: a transport still holds the one that it wrote to."""

    def room(self) -> memoryview:
        own = self._own
        if own is None or not self._need:
            return super().room()
        if self._filled == len(own):
            larger = bytearray(min(self._need, 2 * max(self._filled, LEAST_GROWTH)))
            larger[: self._filled] = own
            self._own = own = larger
        return memoryview(own)[self._filled :]


class _Waiting(NamedTuple):
    correlation: int
    api_key: int
    version: int
    answer: asyncio.Future[Answer]


class _Lost(Protocol):
    def __call__(self, link: "_Link", lost: PeerLost) -> None: ...


class _Link(asyncio.BufferedProtocol):
    """One TCP connection: from when it is made until it ends."""

    def __init__(self, largest: int, lost: _Lost) -> None:
        self.address: Address | None = None
        self.waiting: deque[_Waiting] = deque()
        self.answered = False  # at least once: the peer is what it should be
        self._lost: _Lost | None = lost
        self._transport: asyncio.Transport | None = None
        self._cutter = _Cutter(memoryview(bytearray(SCRATCH_BYTES)), largest)

    @property
    def open(self) -> bool:
        return self._transport is not None and self._lost is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._lost is None:  # given up while it was being made
            transport.close()

    def send(self, waiting: _Waiting, pieces: list[bytes]) -> None:
        assert self._transport is not None
        self.waiting.append(waiting)
        self._transport.writelines(pieces)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._cutter.room()

    def buffer_updated(self, nbytes: int) -> None:
        own = self._cutter.partial  # a frame in a buffer of its own need not be copied
        frames = self._cutter.feed(nbytes)
        for frame in frames:
            if self._lost is None:
                return
            self._answered(frame if own else memoryview(bytes(frame)))
        if self._cutter.refusal:
            self.end(PeerLost("an answer has an impossible length"))

    def _answered(self, frame: memoryview) -> None:
        if not self.waiting:
            self.end(PeerLost("an answer came that nobody asked for"))
            return
        waiting = self.waiting.popleft()
        try:
            correlation, at = read_response_header(waiting.api_key, waiting.version, frame)
        except MalformedMessage as problem:
            self._fail(waiting, PeerLost(str(problem)))
            return
        if correlation != waiting.correlation:
            self._fail(waiting, PeerLost(f"answer {correlation} came where {waiting.correlation} was due"))
            return
        self.answered = True
        if not waiting.answer.done():  # the caller may have been cancelled
            waiting.answer.set_result(Answer(frame, at))

    def _fail(self, waiting: _Waiting, lost: PeerLost) -> None:
        self.waiting.appendleft(waiting)
        self.end(lost)

    def eof_received(self) -> bool:
        self.end(PeerLost("the peer closed the connection"))  # at once, and not in the loop's next turn
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self.end(PeerLost(f"the connection ended: {problem}" if problem else "the peer closed the connection"))

    def end(self, lost: PeerLost) -> None:
        """No more answers come: whoever waits for one is told. Only the first reason counts."""
        tell, self._lost = self._lost, None
        if self._transport is not None:
            self._transport.abort()
        waiting, self.waiting = self.waiting, deque()
        for each in waiting:
            if not each.answer.done():
                each.answer.set_exception(lost)
        if tell is not None:
            tell(self, lost)


class Peer:
    """Another broker. `where` says its address at the time of each connect; None: it is not known just now."""

    def __init__(
        self,
        where: Callable[[], Address | None],
        *,
        name: str = "",
        client_id: str = "",
        connect: Connect = connect_plain,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        largest: int = LARGEST_ANSWER,
    ) -> None:
        self.name = name
        self.on_closed: Callable[[PeerLost], None] | None = None  # told when a connection that was open has ended
        self._where = where
        self._client_id = client_id
        self._connect = connect
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._largest = largest
        self._link: _Link | None = None
        self._connecting: asyncio.Task[_Link] | None = None
        self._failures = 0  # in a row
        self._not_before = 0.0  # of the loop's clock: when the next attempt to connect is due
        self._correlation = 0
        self._stopped = False

    @property
    def connected(self) -> bool:
        return self._link is not None and self._link.open

    async def ask(self, message: object, version: int, timeout_ms: int | None = None) -> Any:
        """The peer's response to a request message. PeerLost: there is none, and nobody knows what became of it."""
        layout = layout_of(type(message))
        response = _RESPONSES[type(message)]
        answer = await self.ask_raw(layout.key, version, encode(message, version), timeout_ms)
        try:
            return decode(response, version, answer.frame, answer.at, exact=False)
        except MalformedMessage as problem:
            lost = PeerLost(f"a response of {self.name or 'a peer'} cannot be read: {problem}")
            self._end(lost)
            raise lost from None

    async def ask_raw(self, api_key: int, version: int, body: bytes, timeout_ms: int | None = None) -> Answer:
        """As `ask`, with a request's and a response's body as bytes. The time-out includes connecting."""
        timeout = (self._request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        deadline = asyncio.get_running_loop().time() + timeout
        link = self._usable()
        if link is None:
            try:
                link = await asyncio.wait_for(self._linked(), timeout)
            except TimeoutError:
                raise PeerLost("no connection in time", sent=False) from None
        if len(link.waiting) >= IN_FLIGHT_AT_MOST:
            raise PeerLost(f"{IN_FLIGHT_AT_MOST} requests wait for an answer already", sent=False)
        return await self._exchange(link, api_key, version, body, deadline)

    async def _exchange(self, link: _Link, api_key: int, version: int, body: bytes, deadline: float) -> Answer:
        loop = asyncio.get_running_loop()
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        answer: asyncio.Future[Answer] = loop.create_future()
        header = pack_request_header(api_key, version, self._correlation, self._client_id)
        prefix = LENGTH.pack(len(header) + len(body)) + header
        link.send(_Waiting(self._correlation, api_key, version, answer), [prefix, body])
        timer = loop.call_at(deadline, link.end, PeerLost("no answer in time"))
        try:
            return await answer
        finally:  # of a caller that was cancelled the answer may still come; if not, the next who asks finds out
            timer.cancel()
            if answer.done() and not answer.cancelled():
                answer.exception()

    # ── the connection ──

    async def connect(self) -> None:
        """Be connected: one attempt at once, whatever failed before. PeerLost says why not."""
        self._not_before = 0.0
        if self._usable() is None:
            await self._linked()

    def disconnect(self, reason: str) -> None:
        """End the connection that there is; whoever waits is told. The next one who asks makes another."""
        self._end(PeerLost(reason))

    async def stop(self) -> None:
        """For good."""
        self._stopped = True
        connecting = self._connecting
        if connecting is not None:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
        self.on_closed = None
        self._end(PeerLost("this broker is stopping"))

    def _end(self, lost: PeerLost) -> None:
        if self._link is not None:
            self._link.end(lost)

    def _usable(self) -> _Link | None:
        """The connection, unless the broker has moved to another address meanwhile."""
        link = self._link
        if link is None or not link.open:
            return None
        address = self._where()
        if address is not None and address != link.address:
            link.end(PeerLost(f"{self.name or 'the peer'} has moved to {address.host}:{address.port}"))
            return None
        return link

    async def _linked(self) -> _Link:
        """All who ask meanwhile wait for the same attempt; one that is cancelled does not end it for the others."""
        if self._stopped:
            raise PeerLost("this broker is stopping", sent=False)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._make_link())
            self._connecting.add_done_callback(self._made)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if self._stopped and connecting.cancelled():
                raise PeerLost("this broker is stopping", sent=False) from None
            raise

    def _made(self, task: asyncio.Task[_Link]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # whoever waited was told; if nobody did, nobody needs to know

    async def _make_link(self) -> _Link:
        loop = asyncio.get_running_loop()
        pause = self._not_before - loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        address = self._where()
        if address is None:
            self._failed()
            raise PeerLost(f"{self.name or 'the peer'} has no address just now", sent=False)
        link = _Link(self._largest, self._closed)
        link.address = address
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                await self._connect(lambda: link, address)
        except TimeoutError:
            raise self._not_made(link, address, "the connect timed out") from None
        except OSError as problem:
            refused = problem.errno == errno.ECONNREFUSED or isinstance(problem, ConnectionRefusedError)
            raise self._not_made(link, address, problem.strerror or str(problem), refused) from None
        if not link.open:
            raise self._not_made(link, address, "the connection ended at once")
        self._link = link
        return link

    def _not_made(self, link: _Link, address: Address, why: str, refused: bool = False) -> PeerLost:
        self._failed()
        lost = PeerLost(f"{address.host}:{address.port}: {why}", refused=refused, sent=False)
        link.end(lost)
        return lost

    def _failed(self) -> None:
        """Wait longer after each failure, and not as long as all others do."""
        pause_ms = min(LEAST_BACKOFF_MS * 2**self._failures, MOST_BACKOFF_MS)
        self._failures = min(self._failures + 1, 16)
        pause_ms *= random.uniform(0.8, 1.2)
        self._not_before = asyncio.get_running_loop().time() + pause_ms / 1000

    def _closed(self, link: _Link, lost: PeerLost) -> None:
        if self._link is not link:
            return
        self._link = None
        if link.answered:  # it was a working connection: another attempt is due at once
            self._failures = 0
            self._not_before = 0.0
        else:
            self._failed()
        if self.on_closed is not None:
            self.on_closed(lost)
