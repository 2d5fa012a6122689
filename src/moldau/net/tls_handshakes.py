"""Handshakes: connections between accept and their first request. Bounded in number, memory and time.

A connection costs a socket until its first bytes come; only then OpenSSL's state is made. Handshakes compute: they take
turns, and other connections are served in between. Beyond MAX_HANDSHAKES the oldest is closed, since an honest client
is done in a few round trips.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from moldau.base.session import Principal
from moldau.net.foreign import describe_instead_of_tls
from moldau.net.throttled_log import ThrottledLog
from moldau.net.tls import PIECE, TlsChannel, describe, send_quietly
from moldau.security.distinguished_names import MalformedCertificate, subject_of
from moldau.security.principals import MappingRule, user_name

MAX_HANDSHAKES: Final = 1_000  # at a time, of all listeners
MAX_CLIENT_BYTES: Final = 256 * 1024  # of a handshake: a chain of certificates is a tenth of it
TIMEOUT_S: Final = 30.0
TURN_S: Final = 0.005  # for handshakes in one turn of the loop

_TLS_HANDSHAKE: Final = 0x16


@dataclass(slots=True)
class TlsListener:
    """The TLS side of a listener. `context` is replaced when certificates are reloaded; connections keep theirs."""

    name: str
    context: ssl.SSLContext
    rules: tuple[MappingRule, ...]


class OnDone(Protocol):
    """Takes a connection whose handshake is done; a principal of None is a client without a certificate."""

    def __call__(self, channel: TlsChannel, principal: Principal | None, /) -> None: ...


@dataclass(slots=True, eq=False)
class _Handshake:
    sock: socket.socket
    peer: str
    listener: TlsListener
    done: OnDone
    failed: Callable[[], None]
    timer: asyncio.TimerHandle | None = None
    incoming: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    outgoing: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    tls: ssl.SSLObject | None = None
    received: int = 0


class Handshakes:
    """`log` gets a line for each handshake that fails."""

    def __init__(self, log: ThrottledLog) -> None:
        self._log = log
        self._pending: dict[_Handshake, None] = {}  # the oldest first
        self._ready: deque[_Handshake] = deque()  # bytes have come
        self._turn: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def start(
        self, sock: socket.socket, peer: str, listener: TlsListener, done: OnDone, failed: Callable[[], None]
    ) -> None:
        """Do the handshake of an accepted, non-blocking socket; then call `done` or `failed`, never from within."""
        loop = asyncio.get_running_loop()
        if len(self._pending) >= MAX_HANDSHAKES:
            self._fail(next(iter(self._pending)), f"{MAX_HANDSHAKES} other TLS handshakes are under way")
        handshake = _Handshake(sock, peer, listener, done, failed)
        handshake.timer = loop.call_later(TIMEOUT_S, self._timed_out, handshake)
        self._pending[handshake] = None
        loop.add_reader(sock.fileno(), self._readable, handshake)

    def close(self) -> None:
        for handshake in list(self._pending):
            self._end(handshake)
            handshake.sock.close()
            handshake.failed()

    def _readable(self, handshake: _Handshake) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(handshake.sock.fileno())  # until its turn: the socket stays readable
        self._ready.append(handshake)
        if self._turn is None:
            self._turn = loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._turn = None
        until = time.perf_counter() + TURN_S
        while self._ready:
            handshake = self._ready.popleft()
            if handshake in self._pending:
                self._step(handshake)
            if time.perf_counter() > until:
                break
        if self._ready:
            self._turn = asyncio.get_running_loop().call_later(0, self._take_turns)

    def _step(self, handshake: _Handshake) -> None:
        try:
            data = handshake.sock.recv(PIECE)
        except (BlockingIOError, InterruptedError):
            self._wait(handshake)
            return
        except OSError as problem:
            self._fail(handshake, f"TLS handshake: {problem.strerror}")
            return
        first = not handshake.received
        handshake.received += len(data)
        if not data:
            self._fail(handshake, "" if first else "client disconnected during the TLS handshake")
        elif first and data[0] != _TLS_HANDSHAKE:
            self._fail(handshake, describe_instead_of_tls(data, handshake.listener.name), logging.WARNING)
        elif handshake.received > MAX_CLIENT_BYTES:
            self._fail(handshake, f"TLS handshake of more than {MAX_CLIENT_BYTES // 1024} KiB")
        else:
            handshake.incoming.write(data)
            self._advance(handshake)

    def _advance(self, handshake: _Handshake) -> None:
        tls = handshake.tls
        if tls is None:
            tls = handshake.listener.context.wrap_bio(handshake.incoming, handshake.outgoing, server_side=True)
            handshake.tls = tls
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            if self._send(handshake):
                self._wait(handshake)
            return
        except ssl.SSLError as problem:
            send_quietly(handshake.sock, handshake.outgoing.read())  # the alert, so that the client knows too
            self._fail(handshake, explain(problem), logging.WARNING)
            return
        self._succeed(handshake, tls)

    def _send(self, handshake: _Handshake) -> bool:
        """Send the broker's part. A client that does not take these few kilobytes is closed."""
        data = handshake.outgoing.read()
        try:
            whole = not data or handshake.sock.send(data) == len(data)
        except OSError:
            whole = False
        if not whole:
            self._fail(handshake, "client does not read the TLS handshake")
        return whole

    def _succeed(self, handshake: _Handshake, tls: ssl.SSLObject) -> None:
        certificate = tls.getpeercert(binary_form=True)
        principal = None
        if certificate:
            try:
                subject = subject_of(certificate)
            except MalformedCertificate as problem:
                self._fail(handshake, f"TLS client certificate: {problem}", logging.WARNING)
                return
            name = user_name(subject, handshake.listener.rules)
            if name is None:
                words = f"no rule of ssl.principal.mapping.rules matches the client's certificate ({subject})"
                self._fail(handshake, words, logging.WARNING)
                return
            principal = Principal("User", name)
        self._end(handshake)
        loop = asyncio.get_running_loop()
        try:
            channel = TlsChannel(handshake.sock, tls, handshake.incoming, handshake.outgoing, loop)
        except OSError:
            handshake.sock.close()
            handshake.failed()
            return
        handshake.done(channel, principal)

    def _wait(self, handshake: _Handshake) -> None:
        if handshake in self._pending:
            loop = asyncio.get_running_loop()
            loop.add_reader(handshake.sock.fileno(), self._readable, handshake)

    def _timed_out(self, handshake: _Handshake) -> None:
        if handshake.received:
            self._fail(handshake, f"TLS handshake not finished within {TIMEOUT_S:.0f} s")
        else:
            self._fail(handshake, f"no TLS handshake within {TIMEOUT_S:.0f} s")

    def _fail(self, handshake: _Handshake, reason: str, level: int = logging.INFO) -> None:
        if handshake not in self._pending:
            return
        self._end(handshake)
        if reason:
            now = asyncio.get_running_loop().time()
            self._log.write(level, "Closing connection from", handshake.peer, reason, now)
        handshake.sock.close()
        handshake.failed()

    def _end(self, handshake: _Handshake) -> None:
        del self._pending[handshake]
        if handshake.timer is not None:
            handshake.timer.cancel()
        asyncio.get_running_loop().remove_reader(handshake.sock.fileno())


# OpenSSL's reason → what happened and what to do. The first eight are alerts of the client: it refused our certificate.
_REASONS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this broker's certificate: give the client the certificate of "
    "the authority that signed it (ssl.ca.location, or ssl.truststore.location in Java)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that this broker's certificate has expired: renew it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses this broker's certificate: does it name the host that the "
    "client connects to, and is it valid now?",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses this broker's certificate: it does not trust the authority, "
    "the certificate has expired, or it does not name the host that the client connects to",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the client found no common TLS version or cipher suite "
    "(ssl.enabled.protocols, ssl.cipher.suites)",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client says that this broker's certificate was revoked: renew it",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client speaks none of ssl.enabled.protocols",
    "TLSV1_ALERT_DECRYPT_ERROR": "the client could not verify this broker's certificate: is its authority's "
    "certificate an older one of the same name?",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate, which ssl.client.auth=required asks for",
    "NO_SHARED_CIPHER": "the client and ssl.cipher.suites have no cipher suite in common",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the client knows no signature algorithm of this broker's certificate",
    "UNSUPPORTED_PROTOCOL": "the client speaks none of ssl.enabled.protocols",
    "VERSION_TOO_LOW": "the client speaks none of ssl.enabled.protocols",
    "WRONG_VERSION_NUMBER": "the bytes of the client are no TLS",
}


def explain(problem: ssl.SSLError) -> str:
    """A failed handshake in words."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        words = f"the client's certificate is not accepted: {problem.verify_message}"
        return f"TLS handshake failed: {words}; is its authority in ssl.truststore.location?"
    return f"TLS handshake failed: {_REASONS.get(problem.reason or '', describe(problem))}"
