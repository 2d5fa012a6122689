"""SCRAM-SHA-256 and SCRAM-SHA-512: credentials, and the server's side of RFC 5802 with Kafka's extension `tokenauth`.

No channel binding. User names and passwords are not normalized, as in Kafka. The caller brings salts and nonces.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from moldau.security.sasl import Authenticated, Challenge, Failed, NeedsWork, Outcome

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16_384  # as Kafka accepts them for new credentials
DEFAULT_ITERATIONS: Final = 8192  # of our own commands

_GS2 = re.compile(r"[ny],(?:a=(?P<authorization>[^,]*))?,")
_ESCAPE = re.compile("=.{0,2}")
_ESCAPES = {"=2C": ",", "=3D": "="}
_PRINTABLE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")  # a nonce: no comma, no space


class Mechanism(NamedTuple):
    name: str
    digest: str  # as hashlib names it
    code: int  # in Describe- and AlterUserScramCredentials


SCRAM: Final = {
    mechanism.name: mechanism
    for mechanism in (Mechanism("SCRAM-SHA-256", "sha256", 1), Mechanism("SCRAM-SHA-512", "sha512", 2))
}
BY_CODE: Final = {mechanism.code: mechanism for mechanism in SCRAM.values()}


@dataclass(frozen=True, slots=True)
class Credential:
    """What a broker keeps of a password: enough to verify a proof, not enough to log in elsewhere."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def __str__(self) -> str:
        """As Kafka keeps it in ZooKeeper."""
        parts = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        written = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items())
        return f"{written},iterations={self.iterations}"


def read_credential(text: str) -> Credential | None:
    """A credential as Kafka writes it; None if it is damaged."""
    found = attributes(text)
    try:
        salt, stored, server = (
            base64.b64decode(found[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(found["iterations"])
    except (KeyError, ValueError):
        return None
    return Credential(salt, stored, server, iterations) if salt and stored and server and iterations > 0 else None


def salted_password(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The slow hash of a password: milliseconds."""
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)


def credential_of(digest: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """The credential of a password that was hashed already."""
    stored = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    return Credential(salt, stored, hmac.digest(salted, b"Server Key", digest), iterations)


def new_credential(digest: str, password: str, salt: bytes, iterations: int) -> Credential:
    return credential_of(digest, salted_password(digest, password.encode(), salt, iterations), salt, iterations)


def matches(digest: str, password: bytes, credential: Credential) -> bool:
    """Whether this is the password of the credential: milliseconds, and as long if it is not."""
    salted = salted_password(digest, password, credential.salt, credential.iterations)
    found = credential_of(digest, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


class TokenLogin(NamedTuple):
    """A delegation token, as a login with it needs it: its HMAC in base64 is the password."""

    owner: str
    password: bytes
    expires_ms: int


@dataclass(frozen=True, slots=True)
class ScramUsers:
    """Where a SCRAM exchange finds credentials. `decoy` is a credential that no password fits, the same every time."""

    find: Callable[[str], Credential | None]
    find_token: Callable[[str], TokenLogin | None]
    decoy: Callable[[str], Credential]


class _State(Enum):
    FIRST = "client-first"
    FINAL = "client-final"
    ENDED = "ended"


class _ClientFirst(NamedTuple):
    gs2: str  # up to the second comma
    bare: str
    user: str
    nonce: str
    authorization: str
    by_token: bool


class ScramExchange:
    """RFC 5802, section 3. An unknown user gets a challenge as any other does, and fails at the end."""

    __slots__ = (
        "_challenge",
        "_credential",
        "_digest",
        "_expires_ms",
        "_first",
        "_known",
        "_nonce",
        "_state",
        "_users",
    )

    def __init__(self, mechanism: Mechanism, users: ScramUsers, nonce: str) -> None:
        self._digest = mechanism.digest
        self._users = users
        self._nonce = nonce
        self._state = _State.FIRST
        self._known = ""  # the user that a right proof authenticates; "" if there is none
        self._expires_ms: int | None = None

    def step(self, data: bytes) -> Outcome:
        state, self._state = self._state, _State.ENDED
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Failed("a SCRAM message is not UTF-8")
        if state is _State.FIRST:
            return self._begin(text)
        return self._finish(text) if state is _State.FINAL else Failed("a SCRAM message after the last one")

    def _begin(self, text: str) -> Outcome:
        first = _read_first(text)
        if isinstance(first, Failed):
            return first
        if first.authorization not in ("", first.user):
            return OTHER_AUTHORIZATION
        self._first = first
        if first.by_token:
            token = self._users.find_token(first.user)
            self._known = token.owner if token else ""
            self._expires_ms = token.expires_ms if token else None
            password = token.password if token else b""
            return NeedsWork(lambda: self._challenge_with(self._of_token(first.user, password)))
        credential = self._users.find(first.user)
        if credential is not None and credential.iterations >= MIN_ITERATIONS:
            self._known = first.user
            return self._challenge_with(credential)
        return self._challenge_with(self._users.decoy(first.user))

    def _of_token(self, token_id: str, password: bytes) -> Credential:
        """A token has no stored credential: its salt is that of a decoy, and its password is hashed at each login."""
        salt = self._users.decoy(token_id).salt
        salted = salted_password(self._digest, password, salt, MIN_ITERATIONS)
        return credential_of(self._digest, salted, salt, MIN_ITERATIONS)

    def _challenge_with(self, credential: Credential) -> Challenge:
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={self._first.nonce}{self._nonce},s={salt},i={credential.iterations}"
        self._state = _State.FINAL
        return Challenge(self._challenge.encode())

    def _finish(self, text: str) -> Outcome:
        without_proof, found, proof_text = text.rpartition(",p=")
        binding = f"c={base64.b64encode(self._first.gs2.encode()).decode()},r="
        if not found or not without_proof.startswith(binding):
            return Failed("malformed SCRAM client-final message")
        nonce, _, _ = without_proof[len(binding) :].partition(",")  # extensions may follow
        expected = f"{self._first.nonce}{self._nonce}"
        if nonce != expected:
            return REPEATED_NONCE if nonce == f"{self._first.nonce}{expected}" else WRONG_NONCE
        credential, digest = self._credential, self._digest
        proof = _decode(proof_text)
        if proof is None or len(proof) != len(credential.stored_key):
            return Failed("malformed proof in the SCRAM client-final message")
        proven = f"{self._first.bare},{self._challenge},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, proven, digest)
        client_key = (int.from_bytes(proof) ^ int.from_bytes(signature)).to_bytes(len(signature))
        right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        if not (right and self._known):
            return Failed("invalid credentials", user=self._known)
        verifier = base64.b64encode(hmac.digest(credential.server_key, proven, digest))
        return Authenticated(self._known, b"v=" + verifier, self._expires_ms, by_token=self._first.by_token)


WRONG_NONCE: Final = Failed("invalid nonce in the SCRAM client-final message")
# RFC 5802 and Kafka 4 refuse it; Kafka 3.9 did not.
REPEATED_NONCE: Final = Failed(
    "invalid nonce in the SCRAM client-final message: librdkafka before 2.6.1 repeats its own part; update the client",
    "Authentication failed: the client repeats its nonce, as librdkafka before 2.6.1 does; update it, or use PLAIN",
)
OTHER_AUTHORIZATION: Final = Failed(
    "the client asked for the identity of another user",
    "Authentication failed: Client requested an authorization id that is different from username",
)


def _read_first(text: str) -> _ClientFirst | Failed:
    malformed = Failed("malformed SCRAM client-first message")
    gs2 = _GS2.match(text)
    if gs2 is None:
        return malformed
    bare = text[gs2.end() :]
    name, found, rest = bare.removeprefix("n=").partition(",r=")
    nonce, *extensions = rest.split(",")
    user, authorization = read_name(name), read_name(gs2["authorization"] or "")
    if not (bare.startswith("n=") and found and user and authorization is not None and _PRINTABLE.fullmatch(nonce)):
        return malformed
    said = attributes(",".join(extensions)) if extensions else {}
    by_token = said.get("tokenauth", "").lower() == "true"
    return _ClientFirst(gs2[0], bare, user, nonce, authorization, by_token)


def read_name(text: str) -> str | None:
    """A saslname without its escapes; None if it has a wrong one, or a comma."""
    if "," in text:
        return None
    if "=" not in text:
        return text
    if any(each not in _ESCAPES for each in _ESCAPE.findall(text)):
        return None
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape[0]], text)


def attributes(text: str) -> dict[str, str]:
    """`name=value,…` by name; values may have equals signs."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
