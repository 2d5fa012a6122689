"""Client side of the SASL mechanisms PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, without sockets.

A conversation is a generator: it yields bytes to send and receives the broker's bytes. It returns when authentication
succeeded, and raises `AuthenticationFailed` when it did not (a SCRAM server must prove that it knows the password).
The caller brings the nonce: this room has no randomness.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from moldau.security.scram import SCRAM, attributes, salted_password

Conversation: TypeAlias = Generator[bytes, bytes, None]

MIN_ITERATIONS = 4096  # as in Java's client: with fewer a recorded exchange is cheap to break
MAX_ITERATIONS = 1_000_000  # more would let a broker waste our CPU


class AuthenticationFailed(Exception):
    """The credentials or the broker's proof are wrong; a retry does not help."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """Credentials of one mechanism. `token` may be a function that returns a new token."""

    mechanism: str  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
    username: str = ""
    password: str = field(default="", repr=False)
    token: str | Callable[[], str] = field(default="", repr=False)
    by_token: bool = False  # SCRAM: username and password are the id and HMAC of a delegation token


def conversation(sasl: Sasl, nonce: str) -> Conversation:
    """The conversation of a mechanism. `nonce`: new random characters, for SCRAM."""
    mechanism = MECHANISMS.get(sasl.mechanism)
    if mechanism is None:
        raise AuthenticationFailed(f"SASL mechanism {sasl.mechanism!r} is none of {', '.join(MECHANISMS)}")
    return mechanism(sasl, nonce)


def _plain(sasl: Sasl, nonce: str) -> Conversation:
    yield b"\0" + sasl.username.encode() + b"\0" + sasl.password.encode()


def _oauthbearer(sasl: Sasl, nonce: str) -> Conversation:
    """RFC 7628. A broker that refuses the token sends the reason as JSON and expects one byte before it ends."""
    token = sasl.token() if callable(sasl.token) else sasl.token
    refused = yield b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    if refused:
        yield b"\x01"
        raise AuthenticationFailed(f"the broker refused the token: {refused.decode(errors='replace')}")


def scram(
    sasl: Sasl, digest: str, nonce: str, salt_password: Callable[[str, bytes, bytes, int], bytes] = salted_password
) -> Conversation:
    """RFC 5802 and 7677, without channel binding. `salt_password` may remember what it has hashed."""
    name = sasl.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}{',tokenauth=true' if sasl.by_token else ''}"
    response = (yield b"n,," + first.encode()).decode()
    said = attributes(response)
    if not said.get("r", "").startswith(nonce) or said["r"] == nonce:
        raise AuthenticationFailed("the broker responded with another nonce")
    iterations = int(said["i"]) if said.get("i", "").isdigit() else 0
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise AuthenticationFailed(
            f"the broker requires {iterations} iterations of the hash, allowed are {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    salted = salt_password(digest, sasl.password.encode(), base64.b64decode(said.get("s", "")), iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    last = f"c=biws,r={said['r']}"
    proven = f"{first},{response},{last}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), proven, digest)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    final = (yield f"{last},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), proven, digest)
    found = attributes(final)
    if "e" in found:
        raise AuthenticationFailed(f"the broker refused: {found['e']}")
    if not hmac.compare_digest(base64.b64decode(found.get("v", "")), expected):
        raise AuthenticationFailed("the broker did not prove that it knows the password")


def _scram_with(digest: str) -> Callable[[Sasl, str], Conversation]:
    return lambda sasl, nonce: scram(sasl, digest, nonce)


MECHANISMS: Final[dict[str, Callable[[Sasl, str], Conversation]]] = {
    "PLAIN": _plain,
    **{mechanism.name: _scram_with(mechanism.digest) for mechanism in SCRAM.values()},
    "OAUTHBEARER": _oauthbearer,
}
