"""Authentication of HTTP requests: the Authorization header, and middleware that asks a `Logins` about it.

`logins` checks logins at the broker. Without authentication every request is ANONYMOUS, as on a PLAINTEXT listener.
"""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final, Protocol

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from moldau.services.http.problems import UNAUTHORIZED, HttpProblem

OPEN_PATHS: Final = frozenset({"/live", "/ready"})
PRINCIPAL: Final = "moldau.principal"  # the key in an ASGI scope


@dataclass(frozen=True, slots=True)
class BasicLogin:
    """User name and password: SASL PLAIN or SCRAM at the broker."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerLogin:
    """A token: SASL OAUTHBEARER at the broker."""

    token: str = field(repr=False)


Login = BasicLogin | BearerLogin


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request: the user by the broker's name, from where, and with which login."""

    user: str  # without `User:`
    host: str
    login: Login | None = None


ANONYMOUS: Final = "ANONYMOUS"


class Logins(Protocol):
    """Checks logins; see `logins.BrokerLogins`."""

    async def user_of(self, login: Login) -> str | None:
        """The user's name if the login is right, None if it is not; raises HttpProblem if nobody can tell now."""


class Authentication:
    """Puts a Principal into each request's scope, and refuses requests without a right login."""

    def __init__(self, app: ASGIApp, *, logins: Logins | None) -> None:
        self._app = app
        self._logins = logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            client = scope.get("client")
            host = client[0] if client else ""
            scope[PRINCIPAL] = Principal(ANONYMOUS, host)
            if self._logins is not None and scope["path"] not in OPEN_PATHS and scope["method"] != "OPTIONS":
                scope[PRINCIPAL] = await self._authenticate(self._logins, scope, host)
        await self._app(scope, receive, send)

    async def _authenticate(self, logins: Logins, scope: Scope, host: str) -> Principal:
        header = HTTPConnection(scope).headers.get("authorization")
        if header is None:
            raise HttpProblem(401, "Authentication is required: send a user and password, or a token.", UNAUTHORIZED)
        login = read_login(header)
        user = None if login is None else await logins.user_of(login)
        if user is None:
            raise HttpProblem(401, "The login was refused. Check user and password, or get a new token.", UNAUTHORIZED)
        return Principal(user, host, login)


def principal_of(connection: HTTPConnection) -> Principal:
    principal = connection.scope[PRINCIPAL]
    assert isinstance(principal, Principal), "the application has the Authentication middleware"
    return principal


def read_login(header: str) -> Login | None:
    """The login in an Authorization header; None for one that is malformed or of another scheme."""
    scheme, _, rest = header.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer" and rest:
        return BearerLogin(rest)
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return BasicLogin(user, password) if colon and user else None
