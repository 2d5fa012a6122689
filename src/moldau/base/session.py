"""Session: the identity of a connection, with its principal, client and listener. Authenticates nothing."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A user as Kafka writes it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
BROKER: Final = Principal("Broker", "")  # a broker's own requests: no client can have a principal of this kind


class SecurityProtocol(Enum):
    """The security protocol of a listener, as in `listener.security.protocol.map`."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


ENCRYPTED: Final = frozenset((SecurityProtocol.SSL, SecurityProtocol.SASL_SSL))
AUTHENTICATED: Final = frozenset((SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL))  # by SASL


@dataclass(slots=True)
class Session:
    """One per connection, made by its listener, handed to every handler as part of the call.

    `client_id` is that of the last request other than Produce and Fetch, or of the first request. The software name and
    version come from ApiVersions. `principal` is set when authentication ends. `quota` is the client's
    quotas, whose counts all of its connections share.
    """

    listener: str
    peer: str  # address and port, for logs
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    principal: Principal = ANONYMOUS
    client_id: str | None = None
    software_name: str = ""
    software_version: str = ""
    authentication: object | None = None  # the state of a SASL exchange
    repeated: object | None = None  # the last Produce request, to recognise the next one by
    quota: object | None = None  # of its principal and client id, while any client has one
    rights: object | None = None  # what the principal may do, as far as it was asked for
    membership: object | None = None  # in an organisation, while there are any
