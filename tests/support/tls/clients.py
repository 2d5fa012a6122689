"""TLS for tests: an authority with certificates, and a client's end of a TLS connection on memory."""

import ssl
from functools import cache
from pathlib import Path

from moldau.net.key_stores import PEM, StoreSettings
from moldau.net.tls_context import NONE, TlsSettings
from moldau.tools.certs.authority import Authority, Certificate, write_private
from support.net.loops import Peer

HOST = "localhost"


@cache
def authority() -> Authority:
    """One for all tests of a process: making keys takes time."""
    return Authority()


@cache
def broker_certificate() -> Certificate:
    return authority().broker([HOST, "127.0.0.1"])


def keys(certificate: Certificate) -> StoreSettings:
    return StoreSettings("ssl.keystore", PEM, None, None, certificate.key_pem(), certificate.chain_pem)


def trust(pem: str) -> StoreSettings:
    return StoreSettings("ssl.truststore", PEM, None, None, chain=pem, chain_setting="certificates")


def settings(certificate: Certificate | None = None, client_auth: str = NONE) -> TlsSettings:
    """Settings of a listener with the test's certificates."""
    shown = certificate or broker_certificate()
    return TlsSettings("", keys(shown), trust(authority().pem), client_auth=client_auth)


def client_side(certificate: Path | None = None, ca: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca or authority().pem)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def keystore(path: Path, certificate: Certificate) -> Path:
    return write_private(path, certificate.keystore_pem())


class TlsPeer(Peer):
    """The client's end: `Peer`, with TLS over it."""

    def __init__(self, plain: Peer, context: ssl.SSLContext, host: str = HOST) -> None:
        super().__init__(plain.socket)
        self._plain = plain
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=host)

    async def handshake(self) -> "TlsPeer":
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush()
                await self._more()
            else:
                await self.flush()
                return self

    async def flush(self) -> None:
        await self._plain.send(self.outgoing.read())

    async def _more(self) -> None:
        data = await self._loop.sock_recv(self.socket, 65536)
        self.incoming.write(data) if data else self.incoming.write_eof()

    async def send(self, data: bytes) -> None:
        self.tls.write(data)
        await self.flush()

    async def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.tls.read(size - len(data))
            except ssl.SSLWantReadError:
                await self._more()
                continue
            assert part, "the connection ended"
            data += part
        return bytes(data)

    async def said_goodbye(self) -> bool:
        """Whether the broker ends the TLS connection, not only the TCP connection."""
        while True:
            try:
                return self.tls.read(1) == b""
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLZeroReturnError:
                return True
            except ssl.SSLError:
                return False
