"""PLAIN (RFC 4616): a password in clear text, verified against SCRAM credentials or the list of a JAAS string."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from moldau.security.sasl import Authenticated, Failed, NeedsWork, Outcome
from moldau.security.scram import OTHER_AUTHORIZATION, Credential, matches

INVALID = Failed("invalid credentials", "Authentication failed: Invalid username or password")


@dataclass(frozen=True, slots=True)
class Hashed:
    """A stored credential; `digest` is that of its SCRAM mechanism."""

    digest: str
    credential: Credential


@dataclass(frozen=True, slots=True)
class Listed:
    """A password of a JAAS string. It is compared after as much hashing as a stored one needs (`like`)."""

    password: bytes = field(repr=False)
    like: Hashed


Verifier: TypeAlias = Hashed | Listed


@dataclass(frozen=True, slots=True)
class PlainExchange:
    """One message. `find` names the verifiers of a user, `decoy` the one that an unknown user is hashed with."""

    find: Callable[[str], tuple[Verifier, ...]]
    decoy: Callable[[str], Hashed]

    def step(self, data: bytes) -> Outcome:
        parts = data.decode(errors="replace").split("\0")
        if len(parts) != 3:
            words = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            return Failed("malformed PLAIN message", words)
        authorization, user, password = parts
        if not user:
            return Failed("no user name", "Authentication failed: username not specified")
        if not password:
            return Failed("no password", "Authentication failed: password not specified")
        found = self.find(user)
        return NeedsWork(lambda: _verify(user, password.encode(), authorization, found, self.decoy(user)))


def _verify(
    user: str, password: bytes, authorization: str, verifiers: tuple[Verifier, ...], decoy: Hashed
) -> Authenticated | Failed:
    if not verifiers:
        _fits(password, decoy)
        return INVALID
    fitting = [_fits(password, verifier) for verifier in verifiers]  # all of them: the time says nothing
    if not any(fitting):
        return replace(INVALID, user=user)
    return Authenticated(user) if authorization in ("", user) else OTHER_AUTHORIZATION


def _fits(password: bytes, verifier: Verifier) -> bool:
    hashed = verifier.like if isinstance(verifier, Listed) else verifier
    same = matches(hashed.digest, password, hashed.credential)
    return hmac.compare_digest(password, verifier.password) if isinstance(verifier, Listed) else same
