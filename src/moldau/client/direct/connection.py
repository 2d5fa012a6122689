"""One blocking socket to one broker: API versions, TLS, SASL, and several requests in flight. Retries nothing.

A broker responds in the order of the requests. `receive` reads up to the response of its request and keeps the ones
before it for their own `receive`. Every error on the wire raises `ConnectionLost` or `TimeoutError` and closes the
socket, because the rest of a partly read frame cannot be found.
"""

import secrets
import select
import socket
import ssl
import time
from collections import deque
from struct import Struct
from typing import Any, Final, Generic, TypeVar

import moldau
from moldau.base.errors import WireError
from moldau.client.direct.failure import failure_of
from moldau.client.direct.security import PLAINTEXT, Security
from moldau.security.sasl_client import AuthenticationFailed, conversation
from moldau.wire.codec import MalformedMessage, decode, encode
from moldau.wire.headers import API_VERSIONS, pack_request_header, read_response_header
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.registry import APIS, ApiMessages
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

Response = TypeVar("Response")

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
INITIAL_BUFFER_BYTES = 256 * 1024  # grows with the bytes received: the length of a frame is not trusted
LATEST_VERSION: Final = 0x7FFF
NONCE_BYTES = 24  # of randomness, for SCRAM
SESSION_SHARE = 0.85  # of a SASL session's lifetime; then a new connection is made (KIP-368)

_LENGTH = Struct(">i")
_ERROR = Struct(">h")
_APIS: Final = {api.request: api for api in APIS}


class ConnectionLost(ConnectionError):
    """The peer closed the connection, or does not speak Kafka's protocol."""


class UnsupportedByBroker(Exception):
    """The broker supports no version of the API that this request needs."""


class InFlightRequest(Generic[Response]):
    """A request that was sent and waits for its response."""

    __slots__ = ("api", "correlation_id", "frame", "response", "version")

    def __init__(self, api: ApiMessages, response: type[Response], version: int, correlation_id: int) -> None:
        self.api = api
        self.response = response
        self.version = version
        self.correlation_id = correlation_id
        self.frame: bytearray | None = None


class Connection:
    """A connected and authenticated connection; the constructor raises if it cannot be one."""

    def __init__(
        self,
        host: str,
        port: int,
        security: Security = PLAINTEXT,
        *,
        client_id: str,
        timeout_s: float,
        connect_timeout_s: float | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self.broken = False
        self.features: dict[str, int] = {}
        self._client_id = client_id
        self._sent: deque[InFlightRequest[Any]] = deque()
        self._correlation_id = 0
        self._served: dict[int, tuple[int, int]] = {}
        self._expires: float | None = None
        self._socket = socket.create_connection((host, port), timeout=connect_timeout_s or timeout_s)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket = security.tls.context().wrap_socket(self._socket, server_hostname=host)
            self._negotiate()
            if security.sasl is not None:
                self._authenticate(security)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.broken = True
        self._socket.close()

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    @property
    def stale(self) -> bool:
        """Not usable for new requests: broken, or its SASL session is about to expire."""
        return self.broken or (self._expires is not None and time.monotonic() > self._expires)

    @property
    def idle(self) -> bool:
        """Usable, and waits for no response. A socket that can be read then was closed by the broker."""
        return not self.stale and not self._sent and not self._readable()

    @property
    def has_response(self) -> bool:
        """Tell whether response bytes are ready to be read."""
        return not self.broken and bool(self._sent) and self._readable()

    def _readable(self) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(0))

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(
        self, request: object, response: type[Response], *, since: int = 0, until: int = LATEST_VERSION
    ) -> Response:
        return self.receive(self.send(request, response, since=since, until=until))

    def send(
        self, request: object, response: type[Response], *, since: int = 0, until: int = LATEST_VERSION
    ) -> InFlightRequest[Response]:
        """Send in the latest version that both sides support, between `since` and `until`."""
        api = _APIS[type(request)]
        version = self.version_of(type(request), since=since, until=until)
        if version is None:
            raise UnsupportedByBroker(f"the broker at {self.address} supports no usable version of {api.name}")
        return self._send(api, request, response, version)

    def tell(self, request: object, *, until: int = LATEST_VERSION) -> None:
        """Send a request without a response: Produce with acks=0."""
        api = _APIS[type(request)]
        version = self.version_of(type(request), until=until)
        if version is None:
            raise UnsupportedByBroker(f"the broker at {self.address} supports no usable version of {api.name}")
        self._write(api, request, version)

    def version_of(self, request: type, *, since: int = 0, until: int = LATEST_VERSION) -> int | None:
        api = _APIS[request]
        least, newest = self._served.get(api.key, (0, -1))
        version = min(newest, api.highest, until)
        return version if version >= max(least, api.lowest, since) else None

    def receive(self, in_flight: InFlightRequest[Response]) -> Response:
        """The response to a request. Responses to earlier requests are kept for their own `receive`."""
        frame = self._frame_of(in_flight)
        try:
            _, position = read_response_header(in_flight.api.key, in_flight.version, frame)
            return decode(in_flight.response, in_flight.version, memoryview(frame), position)
        except MalformedMessage as bad:
            self.close()
            raise ConnectionLost(f"malformed {in_flight.api.name} response from {self.address}: {bad}") from bad

    def forget(self, in_flight: InFlightRequest[Any]) -> None:
        """Read and drop the response to a request."""
        self._frame_of(in_flight)

    def _send(
        self, api: ApiMessages, request: object, response: type[Response], version: int
    ) -> InFlightRequest[Response]:
        self._write(api, request, version)
        in_flight = InFlightRequest(api, response, version, self._correlation_id)
        self._sent.append(in_flight)
        return in_flight

    def _write(self, api: ApiMessages, request: object, version: int) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        head = pack_request_header(api.key, version, self._correlation_id, self._client_id)
        body = encode(request, version)
        try:
            self._socket.sendall(_LENGTH.pack(len(head) + len(body)) + head + body)
        except (OSError, ValueError) as lost:
            raise self._lost(lost) from lost

    def _frame_of(self, in_flight: InFlightRequest[Any]) -> bytearray:
        while in_flight.frame is None:
            if not self._sent:
                raise ConnectionLost("the response was already read, or its request was never sent")
            frame = self._read_frame()
            first = self._sent.popleft()
            (correlation_id,) = _LENGTH.unpack_from(frame)
            if correlation_id != first.correlation_id:
                self.close()
                raise ConnectionLost(
                    f"{self.address} responded with correlation id {correlation_id}, expected {first.correlation_id}"
                )
            first.frame = frame
        frame, in_flight.frame = in_flight.frame, None
        return frame

    def _read_frame(self) -> bytearray:
        try:
            (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
            if not _LENGTH.size <= size <= MAX_RESPONSE_BYTES:
                raise ConnectionLost(f"the server at {self.address} does not respond like a Kafka broker")
            return self._read(size)
        except (OSError, ValueError) as lost:
            raise self._lost(lost) from lost

    def _read(self, size: int) -> bytearray:
        data = bytearray(min(size, INITIAL_BUFFER_BYTES))
        filled = 0
        while True:
            with memoryview(data) as view:
                while filled < len(data):
                    count = self._socket.recv_into(view[filled:])
                    if not count:
                        raise ConnectionLost(f"{self.address} closed the connection")
                    filled += count
            if filled == size:
                return data
            data.extend(bytes(min(size - filled, filled)))

    def _lost(self, error: OSError | ValueError) -> OSError:
        """Close the socket and return the error to raise. ssl raises ValueError for a socket that is already closed."""
        self.close()
        if isinstance(error, ConnectionLost | TimeoutError):
            return error
        return ConnectionLost(f"{self.address}: {getattr(error, 'strerror', None) or error}")

    # ── versions and authentication ─────────────────────────────────────────────────────────────────────────────────

    def _negotiate(self) -> None:
        api = _APIS[ApiVersionsRequest]
        request = ApiVersionsRequest(client_software_name="moldau", client_software_version=moldau.__version__)
        response = self._api_versions(api, request, api.highest)
        if response.error_code == WireError.UNSUPPORTED_VERSION:
            known = next((row.max_version for row in response.api_keys if row.api_key == API_VERSIONS), 0)
            response = self._api_versions(api, request, min(known, api.highest))
        if response.error_code:
            raise ConnectionLost(str(failure_of(response.error_code, f"{self.address} failed ApiVersions")))
        self._served = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self.features = {row.name: row.max_version_level for row in response.finalized_features}

    def _api_versions(self, api: ApiMessages, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        """A broker that does not support the version responds in version 0, so the error is read first."""
        in_flight = self._send(api, request, ApiVersionsResponse, version)
        frame = self._frame_of(in_flight)
        if len(frame) < _LENGTH.size + _ERROR.size:
            raise ConnectionLost(f"the server at {self.address} does not respond like a Kafka broker")
        if _ERROR.unpack_from(frame, _LENGTH.size)[0] == WireError.UNSUPPORTED_VERSION:
            in_flight.version = 0
        in_flight.frame = frame
        return self.receive(in_flight)

    def _authenticate(self, security: Security) -> None:
        sasl = security.sasl
        assert sasl is not None
        talk = conversation(sasl, secrets.token_urlsafe(NONCE_BYTES))
        shaken = self.ask(SaslHandshakeRequest(mechanism=sasl.mechanism), SaslHandshakeResponse, since=1)
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            raise AuthenticationFailed(f"{self.address} does not offer SASL {sasl.mechanism}; it offers: {offered}")
        saying = next(talk)
        while True:
            response = self.ask(SaslAuthenticateRequest(auth_bytes=saying), SaslAuthenticateResponse)
            if response.error_code:
                raise AuthenticationFailed(f"{self.address}: {response.error_message or 'authentication failed'}")
            try:
                saying = talk.send(response.auth_bytes)
            except StopIteration:
                break
        if response.session_lifetime_ms > 0:
            self._expires = time.monotonic() + response.session_lifetime_ms / 1000 * SESSION_SHARE


def is_fatal(error: Exception) -> bool:
    """Tell whether a retry is useless: a wrong password, an untrusted certificate, a missing file."""
    if isinstance(error, ssl.SSLError):
        return not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return isinstance(error, AuthenticationFailed | UnsupportedByBroker | FileNotFoundError)
