"""A broker with SASL for tests, its users, and raw logins with our own client machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from moldau.security.sasl_client import Sasl, conversation
from moldau.testing import Broker
from support.clients.raw import RawClient

SECONDS = 20
LISTENER = "listener.name.sasl_plaintext"
MODULE = "org.apache.kafka.common.security"
PLAIN_USERS = {"admin": "admin-secret", "alice": "alice-secret"}
SCRAM_USERS = {"bob": "bob-secret", "a,b=c": "s p,a=ce"}
ACLS_AND_TOKENS = {  # settings; admin is the super user
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": "a key of this cluster",
}
SCRAMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


def jaas(options: Mapping[str, str], module: str = "plain.PlainLoginModule") -> str:
    return f"{MODULE}.{module} required " + " ".join(f'{name}="{value}"' for name, value in options.items()) + ";"


def plain_jaas() -> str:
    """The JAAS text of a broker's PLAIN_USERS."""
    return jaas({f"user_{name}": password for name, password in PLAIN_USERS.items()})


def sasl_broker(directory: Path | None = None, **settings: object) -> Broker:
    """A broker with one listener, which wants SASL; PLAIN_USERS are its users."""
    given: dict[str, object] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAMS)),
        f"{LISTENER}.plain.sasl.jaas.config": plain_jaas(),
    }
    return Broker(directory, **given | settings)


def client_settings(bootstrap: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    """librdkafka's."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def as_admin(bootstrap: str, **others: str) -> AdminClient:
    """`others` are more settings of librdkafka."""
    return AdminClient({**client_settings(bootstrap, "PLAIN", "admin", PLAIN_USERS["admin"]), **others})


def set_password(admin: AdminClient, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    info = ScramCredentialInfo(SCRAMS[mechanism], 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    admin.alter_user_scram_credentials([change])[user].result(SECONDS)


def add_scram_users(bootstrap: str, **others: str) -> None:
    admin = as_admin(bootstrap, **others)
    for mechanism in SCRAMS:
        for user, password in SCRAM_USERS.items():
            set_password(admin, user, password, mechanism)


@dataclass
class Login:
    """The end of a raw login: the last response."""

    error: int
    message: str | None
    lifetime_ms: int


def shake(client: RawClient, mechanism: str, version: int = 1) -> Any:
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def log_in(client: RawClient, sasl: Sasl, version: int = 2) -> Login:
    """Log in on a raw connection, with our own client's machines."""
    handshake = shake(client, sasl.mechanism)
    if handshake.error_code:
        return Login(handshake.error_code, None, 0)
    talk = conversation(sasl, "fixed-nonce")
    saying = next(talk)
    while True:
        found = client.ask(SaslAuthenticateRequest(auth_bytes=saying), version)
        lifetime_ms = found.session_lifetime_ms if version >= 1 else 0
        if found.error_code:
            return Login(found.error_code, found.error_message, lifetime_ms)
        try:
            saying = talk.send(bytes(found.auth_bytes))
        except StopIteration:
            return Login(0, None, lifetime_ms)
