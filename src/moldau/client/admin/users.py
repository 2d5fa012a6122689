"""Users: SCRAM credentials of a cluster, and of one that does not exist yet. PLAIN logs in with the same users."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.client.admin.clients import Admin, admin_error
from moldau.client.admin.errors import AdminError, InvalidArgument
from moldau.client.admin.target import REQUEST_TIMEOUT_S
from moldau.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM, new_credential
from moldau.security.users import FIRST_USERS_FILE, read_first_users, write_first_users

if TYPE_CHECKING:
    from confluent_kafka.admin import ScramMechanism, UserScramCredentialAlteration

SALT_BYTES: Final = 20
STORE_FILE: Final = "moldau-metadata.sqlite"  # of a broker that has run


class NoSuchUser(AdminError):
    def __init__(self, user: str) -> None:
        super().__init__(f"there is no user {user!r} with a SCRAM credential")
        self.user = user


@dataclass(frozen=True, slots=True)
class User:
    name: str
    iterations: Mapping[str, int]  # by mechanism


def list_users(admin: Admin, names: Sequence[str] | None = None) -> list[User]:
    """The users with these names, or all; NoSuchUser if one of them is missing."""
    from confluent_kafka import KafkaException

    asked = admin.client.describe_user_scram_credentials(
        list(names) if names else None, request_timeout=REQUEST_TIMEOUT_S
    )
    found = []
    futures = asked if isinstance(asked, dict) else dict.fromkeys(admin.wait(asked))
    described = {} if isinstance(asked, dict) else admin.wait(asked)
    for name, future in futures.items():
        try:
            user = described[name] if future is None else future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() == "RESOURCE_NOT_FOUND":
                raise NoSuchUser(name) from None
            raise admin_error(error, admin.target) from error
        infos = {_mechanism(info.mechanism): info.iterations for info in user.scram_credential_infos}
        found.append(User(name, dict(sorted(infos.items()))))
    return sorted(found, key=lambda user: user.name)


def set_password(admin: Admin, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Create the user's credentials, or replace them. The password leaves this process hashed only."""
    from confluent_kafka.admin import ScramCredentialInfo, UserScramCredentialUpsertion

    check(name, password, mechanisms, iterations)
    alterations: list[UserScramCredentialAlteration] = []
    for mechanism in mechanisms:  # a request may name a user once
        info = ScramCredentialInfo(_code(mechanism), iterations)
        salt = secrets.token_bytes(SALT_BYTES)
        alterations = [UserScramCredentialUpsertion(name, info, password.encode(), salt)]
        _alter(admin, name, alterations)


def delete_credentials(admin: Admin, name: str, mechanisms: Sequence[str]) -> None:
    from confluent_kafka.admin import UserScramCredentialDeletion

    for mechanism in mechanisms:
        _alter(admin, name, [UserScramCredentialDeletion(name, _code(mechanism))])


def create_first_user(directory: Path, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> Path:
    """Write a user into the data directory of a broker that has never run; returns the file."""
    check(name, password, mechanisms, iterations)
    if (directory / STORE_FILE).exists():
        raise InvalidArgument(f"{directory} belongs to a broker that has run: its users are in its metadata")
    path = directory / FIRST_USERS_FILE
    users = read_first_users(path.read_text()) if path.exists() else {}
    if isinstance(users, str):
        raise InvalidArgument(f"{path} {users}")
    made = {
        mechanism: new_credential(SCRAM[mechanism].digest, password, secrets.token_bytes(SALT_BYTES), iterations)
        for mechanism in mechanisms
    }
    users[name] = {**users.get(name, {}), **made}
    directory.mkdir(parents=True, exist_ok=True)
    _write_private(path, write_first_users(users))
    return path


def check(name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """InvalidArgument for what no broker accepts."""
    if not name:
        raise InvalidArgument("a user needs a name")
    if not password:
        raise InvalidArgument("a user needs a password, and this one is empty")
    for mechanism in mechanisms:
        if mechanism not in SCRAM:
            raise InvalidArgument(f"mechanism {mechanism!r} is none of {', '.join(SCRAM)}")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise InvalidArgument(f"iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}, got {iterations}")


def _alter(admin: Admin, name: str, alterations: "list[UserScramCredentialAlteration]") -> None:
    futures = admin.client.alter_user_scram_credentials(alterations, request_timeout=REQUEST_TIMEOUT_S)
    admin.wait(futures[name])


def _code(mechanism: str) -> "ScramMechanism":
    from confluent_kafka.admin import ScramMechanism

    return ScramMechanism[mechanism.replace("-", "_")]


def _mechanism(code: "ScramMechanism") -> str:
    return code.name.replace("_", "-")


def _write_private(path: Path, text: str) -> None:
    """Readable by its owner alone, also while it is written."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    new.replace(path)
