"""The cluster to talk to: bootstrap addresses and client properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.client.admin.errors import InvalidAddress

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
DEFAULT_PORT = 9092
CLIENT_ID = "moldau-cli"


@dataclass(frozen=True, slots=True)
class Target:
    """Bootstrap addresses with commas, and properties by librdkafka's names."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def addresses(self) -> list[tuple[str, int]]:
        found = [read_address(part) for part in self.bootstrap.split(",") if part.strip()]
        if not found:
            raise InvalidAddress("no broker address given")
        return found


def read_address(text: str) -> tuple[str, int]:
    """`host:port`, `host`, `[v6]:port`, each with an optional `PROTOCOL://` before it, as librdkafka takes them."""
    rest = text.strip().rpartition("://")[2]
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidAddress(f"{text!r} is not a broker address")
    return host, int(port)


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
