"""Peer: this broker's client connection to another broker, with reconnects and time-outs. Knows APIs only by layout.

The connection is opened by the first request and again after it was lost, with growing backoff after failures. A
request that times out closes the connection: responses are ordered, so all requests behind it are stuck as well. The
fate of a request without a response is unknown; that is the meaning of `PeerLost`.
"""

import asyncio
import errno
import logging
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from moldau.net.tasks import cancel
from moldau.wire.codec import decode, encode
from moldau.wire.declare import layout_of
from moldau.wire.frames import LENGTH, CopyingFrameDecoder
from moldau.wire.headers import pack_request_header, read_response_header
from moldau.wire.messages.registry import APIS
from moldau.wire.primitives import MalformedMessage

logger = logging.getLogger("moldau.net")

SCRATCH_BYTES = 64 * 1024  # of one read; a larger response gets a buffer that grows with the received bytes
MAX_RESPONSE_BYTES = 1024**3
MAX_IN_FLIGHT = 1000  # requests of one connection without a response
CONNECT_TIMEOUT_MS = 10_000  # socket.connection.setup.timeout.ms
REQUEST_TIMEOUT_MS = 30_000  # request.timeout.ms
MIN_BACKOFF_MS = 50  # between attempts to connect, doubled after each failure
MAX_BACKOFF_MS = 1_000

_RESPONSES = {api.request: api.response for api in APIS}


class PeerLost(ConnectionError):
    """No connection, or it was lost before the response came. If `sent`, the request may have been carried out."""

    def __init__(self, reason: str, *, refused: bool = False, sent: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused  # connection refused: the process is not running
        self.sent = sent  # the request may have reached the peer


class Address(NamedTuple):
    host: str
    port: int


class PeerResponse(NamedTuple):
    """A received response: its frame, which belongs to the caller, and the position of the body in it."""

    frame: memoryview
    at: int


Connect = Callable[[Callable[[], asyncio.BaseProtocol], Address], Awaitable[asyncio.Transport]]


async def connect_plain(protocol: Callable[[], asyncio.BaseProtocol], address: Address) -> asyncio.Transport:
    """Open a TCP connection to a broker."""
    transport, _ = await asyncio.get_running_loop().create_connection(protocol, address.host, address.port)
    return transport


def connect_tls(context: Callable[[], ssl.SSLContext]) -> Connect:
    """Open TLS connections to brokers, each with the context of that time: certificates are reloaded."""
    told: dict[Address, str] = {}  # the problems that were logged, and are not yet over

    async def connect(protocol: Callable[[], asyncio.BaseProtocol], address: Address) -> asyncio.Transport:
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(
                protocol, address.host, address.port, ssl=context(), server_hostname=address.host
            )
        except ssl.SSLError as problem:
            words = _tls_words(problem)
            if told.get(address) != words:
                told[address] = words
                logger.error("TLS connection to the broker at %s:%d failed, and is retried: %s", *address, words)
            raise OSError(0, words) from None
        told.pop(address, None)
        return transport

    return connect


def _tls_words(problem: ssl.SSLError) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        remedy = "check ssl.truststore.location here, and ssl.keystore.location and the advertised host name there"
        return f"its certificate is not accepted: {problem.verify_message}; {remedy}"
    return f"TLS handshake failed: {(problem.reason or str(problem)).replace('_', ' ').lower()}"


class _InFlight(NamedTuple):
    correlation: int
    api_key: int
    version: int
    response: asyncio.Future[PeerResponse]


class _OnClosed(Protocol):
    def __call__(self, connection: "_PeerConnection", lost: PeerLost) -> None: ...


class _PeerConnection(asyncio.BufferedProtocol):
    """One TCP connection and its requests in flight."""

    def __init__(self, largest: int, on_closed: _OnClosed) -> None:
        self.address: Address | None = None
        self.in_flight: deque[_InFlight] = deque()
        self.responded = False  # at least once: the peer speaks the protocol
        self.retired = False  # takes no more requests, and is closed after the last response
        self._on_closed: _OnClosed | None = on_closed  # None: closed
        self._transport: asyncio.Transport | None = None
        self._decoder = CopyingFrameDecoder(memoryview(bytearray(SCRATCH_BYTES)), largest)

    @property
    def open(self) -> bool:
        return self._transport is not None and self._on_closed is not None

    def retire(self) -> None:
        """Take no more requests: the session that was authenticated ends soon. Called by what logged in."""
        self.retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self.retired and not self.in_flight:
            self.close(PeerLost("the session of the connection ends", sent=False))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._on_closed is None:  # closed while it was being opened
            transport.close()

    def send(self, request: _InFlight, pieces: list[bytes]) -> None:
        assert self._transport is not None
        self.in_flight.append(request)
        self._transport.writelines(pieces)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        own = self._decoder.partial  # a frame in a buffer of its own is not copied
        frames = self._decoder.feed(nbytes)
        for frame in frames:
            if self._on_closed is None:
                return
            self._response_received(frame if own else memoryview(bytes(frame)))
        if self._decoder.refusal:
            self.close(PeerLost("a response has an impossible length"))

    def _response_received(self, frame: memoryview) -> None:
        if not self.in_flight:
            self.close(PeerLost("received a response without a request"))
            return
        request = self.in_flight.popleft()
        try:
            correlation, at = read_response_header(request.api_key, request.version, frame)
        except MalformedMessage as problem:
            self._fail(request, PeerLost(str(problem)))
            return
        if correlation != request.correlation:
            self._fail(request, PeerLost(f"received correlation id {correlation}, expected {request.correlation}"))
            return
        self.responded = True
        if not request.response.done():  # the caller may have been cancelled
            request.response.set_result(PeerResponse(frame, at))
        self._close_if_idle()

    def _fail(self, request: _InFlight, lost: PeerLost) -> None:
        self.in_flight.appendleft(request)
        self.close(lost)

    def eof_received(self) -> bool:
        self.close(PeerLost("the peer closed the connection"))  # now, not in the next turn of the loop
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self.close(PeerLost(f"connection lost: {problem}" if problem else "the peer closed the connection"))

    def close(self, lost: PeerLost) -> None:
        """Close the connection and fail all requests in flight. Only the first reason counts."""
        on_closed, self._on_closed = self._on_closed, None
        if self._transport is not None:
            self._transport.abort()
        in_flight, self.in_flight = self.in_flight, deque()
        for each in in_flight:
            if not each.response.done():
                each.response.set_exception(lost)
        if on_closed is not None:
            on_closed(self, lost)


class Peer:
    """Another broker. `address` is called before each connect; None if the address is not known now."""

    def __init__(
        self,
        address: Callable[[], Address | None],
        *,
        name: str = "",
        client_id: str = "",
        connect: Connect = connect_plain,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        largest: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self.name = name
        self.on_closed: Callable[[PeerLost], None] | None = None  # called when an open connection was closed
        self._address = address
        self._client_id = client_id
        self._connect = connect
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._largest = largest
        self._connection: _PeerConnection | None = None
        self._connecting: asyncio.Task[_PeerConnection] | None = None
        self._failures = 0  # in a row
        self._not_before = 0.0  # loop time of the next attempt to connect
        self._correlation = 0
        self._stopped = False

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.open

    async def ask(self, message: object, version: int, timeout_ms: int | None = None) -> Any:
        """Send a request message and return the response message; PeerLost if none comes."""
        layout = layout_of(type(message))
        response = _RESPONSES[type(message)]
        raw = await self.ask_raw(layout.key, version, encode(message, version), timeout_ms)
        try:
            return decode(response, version, raw.frame, raw.at, exact=False)
        except MalformedMessage as problem:
            lost = PeerLost(f"malformed response from {self.name or 'the peer'}: {problem}")
            self._close(lost)
            raise lost from None

    async def ask_raw(self, api_key: int, version: int, body: bytes, timeout_ms: int | None = None) -> PeerResponse:
        """As `ask`, with encoded bodies. The timeout includes connecting."""
        timeout = (self._request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        deadline = asyncio.get_running_loop().time() + timeout
        connection = self._usable_connection()
        if connection is None:
            try:
                connection = await asyncio.wait_for(self._opened(), timeout)
            except TimeoutError:
                raise PeerLost("connecting timed out", sent=False) from None
        if len(connection.in_flight) >= MAX_IN_FLIGHT:
            raise PeerLost(f"{MAX_IN_FLIGHT} requests are in flight already", sent=False)
        return await self._exchange(connection, api_key, version, body, deadline)

    async def _exchange(
        self, connection: _PeerConnection, api_key: int, version: int, body: bytes, deadline: float
    ) -> PeerResponse:
        loop = asyncio.get_running_loop()
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        response: asyncio.Future[PeerResponse] = loop.create_future()
        header = pack_request_header(api_key, version, self._correlation, self._client_id)
        prefix = LENGTH.pack(len(header) + len(body)) + header
        connection.send(_InFlight(self._correlation, api_key, version, response), [prefix, body])
        timer = loop.call_at(deadline, connection.close, PeerLost("request timed out"))
        try:
            return await response
        finally:  # after a cancel the response may still come; if it does not, the next request times out
            timer.cancel()
            if response.done() and not response.cancelled():
                response.exception()  # marks it as retrieved

    # ── the connection ──

    async def connect(self) -> None:
        """Connect now, without backoff; PeerLost if that fails."""
        self._not_before = 0.0
        if self._usable_connection() is None:
            await self._opened()

    def disconnect(self, reason: str) -> None:
        """Close the connection and fail its requests. The next request opens another."""
        self._close(PeerLost(reason))

    async def stop(self) -> None:
        """Close for good: later requests fail."""
        self._stopped = True
        await cancel(self._connecting)
        self.on_closed = None
        self._close(PeerLost("this broker is shutting down"))

    def _close(self, lost: PeerLost) -> None:
        if self._connection is not None:
            self._connection.close(lost)

    def _usable_connection(self) -> _PeerConnection | None:
        """The open connection, unless the address of the broker has changed since."""
        connection = self._connection
        if connection is None or not connection.open or connection.retired:
            return None
        address = self._address()
        if address is not None and address != connection.address:
            connection.close(PeerLost(f"{self.name or 'the peer'} now listens on {address.host}:{address.port}"))
            return None
        return connection

    async def _opened(self) -> _PeerConnection:
        """Open a connection, or join the attempt under way. A cancelled caller does not cancel it for the others."""
        if self._stopped:
            raise PeerLost("this broker is shutting down", sent=False)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._open())
            self._connecting.add_done_callback(self._open_done)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if self._stopped and connecting.cancelled():
                raise PeerLost("this broker is shutting down", sent=False) from None
            raise

    def _open_done(self, task: asyncio.Task[_PeerConnection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved: callers get it through `_opened`

    async def _open(self) -> _PeerConnection:
        loop = asyncio.get_running_loop()
        pause = self._not_before - loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        address = self._address()
        if address is None:
            self._back_off()
            raise PeerLost(f"{self.name or 'the peer'} has no known address", sent=False)
        connection = _PeerConnection(self._largest, self._closed)
        connection.address = address
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                await self._connect(lambda: connection, address)
        except TimeoutError:
            raise self._open_failed(connection, address, "connecting timed out") from None
        except OSError as problem:
            refused = problem.errno == errno.ECONNREFUSED or isinstance(problem, ConnectionRefusedError)
            raise self._open_failed(connection, address, problem.strerror or str(problem), refused) from None
        if not connection.open:
            raise self._open_failed(connection, address, "the connection was closed at once")
        self._connection = connection
        return connection

    def _open_failed(self, connection: _PeerConnection, address: Address, why: str, refused: bool = False) -> PeerLost:
        self._back_off()
        lost = PeerLost(f"{address.host}:{address.port}: {why}", refused=refused, sent=False)
        connection.close(lost)
        return lost

    def _back_off(self) -> None:
        """Wait longer after each failure, with jitter."""
        pause_ms = min(MIN_BACKOFF_MS * 2**self._failures, MAX_BACKOFF_MS)
        self._failures = min(self._failures + 1, 16)
        pause_ms *= random.uniform(0.8, 1.2)
        self._not_before = asyncio.get_running_loop().time() + pause_ms / 1000

    def _closed(self, connection: _PeerConnection, lost: PeerLost) -> None:
        if self._connection is not connection:
            return
        self._connection = None
        if connection.responded:  # it worked: reconnect at once
            self._failures = 0
            self._not_before = 0.0
        else:
            self._back_off()
        if self.on_closed is not None and not connection.retired:  # a retired one says nothing about the peer
            self.on_closed(lost)
