"""Credentials: the users and delegation tokens of the image's documents, and decoys for unknown users."""

import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Final

from moldau.broker.settings import BrokerConfig
from moldau.metadata.documents import segment
from moldau.metadata.image import ClusterImage
from moldau.security.plain import Hashed, Listed, Verifier
from moldau.security.scram import DEFAULT_ITERATIONS, SCRAM, Credential, Mechanism, ScramUsers, TokenLogin
from moldau.security.tokens import DelegationToken, password_of, read_token
from moldau.security.users import credentials

USERS: Final = "/config/users/"
TOKENS: Final = "/delegation_token/tokens/"
TOKEN_SECRET: Final = "delegation.token.secret.key"
SALT_BYTES: Final = 20
PLAIN_LIKE: Final = SCRAM["SCRAM-SHA-256"]  # what a password without a stored credential is hashed as


def user_path(user: str) -> str:
    return USERS + segment(user)


def token_path(token_id: str) -> str:
    return TOKENS + segment(token_id)


def token_secret(config: BrokerConfig) -> str | None:
    value = config.values[TOKEN_SECRET]
    return str(value) if value else None


class Credentials:
    """`now`: milliseconds since the Unix epoch. `token_secret`: delegation.token.secret.key, if there is one."""

    def __init__(
        self, image: Callable[[], ClusterImage], now: Callable[[], int], token_secret: Callable[[], str | None]
    ) -> None:
        self._image = image
        self._now = now
        self._token_secret = token_secret
        self._decoy_key = secrets.token_bytes(32)  # a salt that is the same for the same name, until the next start
        self.scram: Final = {name: self._users_of(mechanism) for name, mechanism in SCRAM.items()}

    def _users_of(self, mechanism: Mechanism) -> ScramUsers:
        return ScramUsers(
            find=lambda user: self._stored(user).get(mechanism.name),
            find_token=self.find_token_login,
            decoy=lambda user: self.decoy(mechanism, user),
        )

    def _stored(self, user: str) -> Mapping[str, Credential]:
        return credentials(self._image().documents.get(user_path(user)))

    def verifiers(self, user: str, listed: str | None) -> tuple[Verifier, ...]:
        """What verifies a password of PLAIN: the user's stored credentials, and the password in the JAAS string."""
        stored = self._stored(user)
        found: list[Verifier] = [Hashed(SCRAM[name].digest, credential) for name, credential in stored.items()]
        if listed is not None:
            found.append(Listed(listed.encode(), self.plain_decoy(user)))
        return tuple(found)

    def plain_decoy(self, user: str) -> Hashed:
        return Hashed(PLAIN_LIKE.digest, self.decoy(PLAIN_LIKE, user))

    def decoy(self, mechanism: Mechanism, user: str) -> Credential:
        """A credential that no password fits: with it an unknown user is answered as a known one."""
        keys = [hmac.digest(self._decoy_key, f"{part}:{user}".encode(), mechanism.digest) for part in ("salt", "key")]
        return Credential(keys[0][:SALT_BYTES], keys[1], keys[1], DEFAULT_ITERATIONS)

    def find_token(self, token_id: str) -> DelegationToken | None:
        text = self._image().documents.get(token_path(token_id))
        return read_token(text) if text else None

    def find_token_login(self, token_id: str) -> TokenLogin | None:
        token, secret = self.find_token(token_id), self._token_secret()
        if token is None or secret is None or token.over(self._now()):
            return None
        return TokenLogin(token.owner.name, password_of(secret, token.id), token.expires_ms)
