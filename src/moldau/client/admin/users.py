"""Users: SCRAM credentials of a cluster, and of one that does not exist yet. PLAIN logs in with the same users."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moldau.base.errors import WireError
from moldau.client.admin.cluster import Cluster, retry_transient
from moldau.client.admin.errors import BrokerHasRun, InvalidArgument, NoPassword, NoSuchUser, refused
from moldau.security.scram import BY_CODE, MAX_ITERATIONS, MIN_ITERATIONS, SCRAM, new_credential, salted_password
from moldau.security.users import FIRST_USERS_FILE, read_first_users, write_first_users
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

SALT_BYTES: Final = 20
STORE_FILE: Final = "moldau-metadata.sqlite"  # of a broker that has run


@dataclass(frozen=True, slots=True)
class User:
    name: str
    iterations: Mapping[str, int]  # by mechanism


def list_users(cluster: Cluster, names: Sequence[str] | None = None) -> list[User]:
    """The users with these names, or all; NoSuchUser if one of them is missing.

    Not with librdkafka, which ends the process when it is refused the list of all.
    """
    users = tuple(UserName(name=name) for name in dict.fromkeys(names)) if names else None
    answer = cluster.ask(DescribeUserScramCredentialsRequest(users=users), DescribeUserScramCredentialsResponse)
    _check(answer.error_code, answer.error_message, "cannot list users")
    found = []
    for row in answer.results:
        if row.error_code == WireError.RESOURCE_NOT_FOUND:
            raise NoSuchUser(row.user)
        _check(row.error_code, row.error_message, f"cannot describe user {row.user!r}")
        infos = {BY_CODE[info.mechanism].name: info.iterations for info in row.credential_infos}
        found.append(User(row.user, dict(sorted(infos.items()))))
    return sorted(found, key=lambda user: user.name)


def set_password(cluster: Cluster, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Create the user's credentials, or replace them. The password leaves this process hashed only."""
    check(name, password, mechanisms, iterations)
    for mechanism in (SCRAM[each] for each in mechanisms):  # a request may name a user once
        salt = secrets.token_bytes(SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism.code,
            iterations=iterations,
            salt=salt,
            salted_password=salted_password(mechanism.digest, password.encode(), salt, iterations),
        )
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))


def delete_credentials(cluster: Cluster, name: str, mechanisms: Sequence[str]) -> None:
    for each in mechanisms:
        deletion = ScramCredentialDeletion(name=name, mechanism=SCRAM[each].code)
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=()))


def create_first_user(directory: Path, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> Path:
    """Write a user into the data directory of a broker that has never run; returns the file."""
    check(name, password, mechanisms, iterations)
    if (directory / STORE_FILE).exists():
        raise BrokerHasRun(str(directory))
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
        raise NoPassword
    for mechanism in mechanisms:
        if mechanism not in SCRAM:
            raise InvalidArgument(f"mechanism {mechanism!r} is none of {', '.join(SCRAM)}")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise InvalidArgument(f"iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}, got {iterations}")


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    answer = retry_transient(
        lambda: cluster.ask(request, AlterUserScramCredentialsResponse), lambda found: found.results[0].error_code
    )
    (result,) = answer.results
    _check(result.error_code, result.error_message, f"cannot change user {result.user!r}")


def _check(code: int, message: str | None, problem: str) -> None:
    if code:
        raise refused(code, f"{problem}: {message.rstrip('.')}" if message else problem)


def _write_private(path: Path, text: str) -> None:
    """Readable by its owner alone, also while it is written."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    new.replace(path)
