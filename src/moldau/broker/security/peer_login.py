"""Logins of this broker at other brokers: a SASL exchange on a new connection, before a Peer gets it.

The session of a connection may end. It is retired before: requests in flight get their responses, and the next request
opens another connection.
"""

import asyncio
import secrets
from collections.abc import Callable

from moldau.net.peer import Address, Connect
from moldau.security.sasl_client import AuthenticationFailed, Sasl, conversation
from moldau.wire.codec import decode, encode
from moldau.wire.frames import LENGTH
from moldau.wire.headers import pack_request_header, read_response_header
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.wire.primitives import MalformedMessage

HANDSHAKE, AUTHENTICATE = 17, 36  # API keys
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
MAX_RESPONSE_BYTES = 64 * 1024
SESSION_SHARE = 0.85  # of a session's lifetime; then the connection is retired
NONCE_BYTES = 24


class LoginFailed(OSError):
    """Another broker did not let this one in; the text says why."""


def logged_in(connect: Connect, login: Callable[[], Sasl | None]) -> Connect:
    """Open connections with `connect` and log in on them. `login` is called for each: credentials may change."""

    async def connect_and_log_in(protocol: Callable[[], asyncio.BaseProtocol], address: Address) -> asyncio.Transport:
        exchange = _Exchange()
        transport = await connect(lambda: exchange, address)
        try:
            sasl = login()
            lifetime_ms = await _log_in(exchange, sasl) if sasl else 0
        except BaseException:
            transport.abort()
            raise
        peer = protocol()
        transport.set_protocol(peer)
        peer.connection_made(transport)
        retire = getattr(peer, "retire", None)
        if lifetime_ms > 0 and retire is not None:
            asyncio.get_running_loop().call_later(lifetime_ms / 1000 * SESSION_SHARE, retire)
        return transport

    return connect_and_log_in


async def _log_in(exchange: "_Exchange", sasl: Sasl) -> int:
    """The lifetime of the session in milliseconds, 0 for no limit."""
    try:
        talk = conversation(sasl, secrets.token_urlsafe(NONCE_BYTES))
        asked = encode(SaslHandshakeRequest(mechanism=sasl.mechanism), HANDSHAKE_VERSION)
        frame, at = await exchange.ask(HANDSHAKE, HANDSHAKE_VERSION, asked)
        shaken = decode(SaslHandshakeResponse, HANDSHAKE_VERSION, frame, at, exact=False)
        if shaken.error_code:
            raise LoginFailed(f"the broker does not offer SASL {sasl.mechanism}; see sasl.enabled.mechanisms there")
        saying = next(talk)
        while True:
            asked = encode(SaslAuthenticateRequest(auth_bytes=saying), AUTHENTICATE_VERSION)
            frame, at = await exchange.ask(AUTHENTICATE, AUTHENTICATE_VERSION, asked)
            found = decode(SaslAuthenticateResponse, AUTHENTICATE_VERSION, frame, at, exact=False)
            if found.error_code:
                raise LoginFailed(f"this broker's login failed: {found.error_message}; see sasl.jaas.config")
            try:
                saying = talk.send(found.auth_bytes)
            except StopIteration:
                return found.session_lifetime_ms
    except (AuthenticationFailed, MalformedMessage) as problem:
        raise LoginFailed(f"this broker's login failed: {problem}") from None


class _Exchange(asyncio.Protocol):
    """One request after the other, while the connection belongs to nobody else."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._response: asyncio.Future[bytes] | None = None
        self._correlation = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of asyncio's

    async def ask(self, key: int, version: int, body: bytes) -> tuple[memoryview, int]:
        """The response's frame, and the position of its body."""
        assert self._transport is not None
        self._correlation += 1
        header = pack_request_header(key, version, self._correlation, "")
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(LENGTH.pack(len(header) + len(body)) + header + body)
        frame = memoryview(await self._response)
        correlation, at = read_response_header(key, version, frame)
        if correlation != self._correlation:
            raise MalformedMessage("the response to another request")
        return frame, at

    def data_received(self, data: bytes) -> None:
        self._received += data
        waiting = self._response
        if len(self._received) < LENGTH.size or waiting is None or waiting.done():
            return
        (size,) = LENGTH.unpack_from(self._received)
        if not 0 <= size <= MAX_RESPONSE_BYTES:
            waiting.set_exception(LoginFailed("the broker does not respond as one"))
        elif len(self._received) >= LENGTH.size + size:
            frame = bytes(self._received[LENGTH.size : LENGTH.size + size])
            del self._received[: LENGTH.size + size]
            waiting.set_result(frame)

    def connection_lost(self, problem: Exception | None) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(LoginFailed("the broker closed the connection during the login"))
