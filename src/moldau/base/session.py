"""The identity of a connection: its principal, its client, its listener. Authenticates and authorises nobody."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Principal(NamedTuple):
    """A user as Kafka writes it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class SecurityProtocol(Enum):
    """How a listener protects its connections; the names are those of `listener.security.protocol.map`."""

    PLAINTEXT = "PLAINTEXT"


@dataclass(slots=True)
class Session:
    """One per connection, made by its listener, handed to every handler as part of the call.

    `client_id` is that of the newest request: a connection may change it. The software is what ApiVersions told.
    """

    listener: str
    peer: str  # address and port, as shown to people
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    principal: Principal = ANONYMOUS
    client_id: str | None = None
    software_name: str = ""
    software_version: str = ""
    authentication: object | None = None  # the state of a SASL exchange
    quota: object | None = None  # the state of this client's quotas
