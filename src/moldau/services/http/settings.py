"""Settings of one HTTP listener: address, TLS, limits, CORS and authentication. Reads no files."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024


class InvalidAddress(ValueError):
    """The text is not an address to listen on."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. An empty host means every interface, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files of an HTTPS listener. With `client_ca`, clients need a certificate of it."""

    certificate: str
    key: str | None = None  # None: in the certificate's file
    key_password: str | None = None
    client_ca: str | None = None


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """What a service allows its HTTP clients."""

    address: Address
    tls: ServerTls | None = None
    max_body_bytes: int = 16 * MIB
    request_timeout_s: float = 60.0  # until the answer begins; streams may go on
    max_connections: int = 2_000  # connections beyond it get 503
    cors_origins: tuple[str, ...] = ()  # "*" for any; none: browsers on other sites cannot read answers
    authentication: bool = False  # every request but /live and /ready must have a login that the broker accepts

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"


def read_address(text: str) -> Address:
    """The address in HOST:PORT, with [brackets] around an IPv6 host."""
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed) or any(mark in host for mark in "/ ,@"):
        raise InvalidAddress(f"{text!r} is not of the form HOST:PORT, for example localhost:8081")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise InvalidAddress(f"{text!r}: {port!r} is not a port; ports are 0 to 65535")
    return Address(host.strip("[]"), int(port))
