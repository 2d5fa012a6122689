"""User documents: SCRAM credentials of one user, as Kafka keeps them in `/config/users/<user>`. Paths are not here.

The same document holds the user's quotas: keys that are not of a SCRAM mechanism are kept as they are.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from moldau.security.scram import SCRAM, Credential, read_credential

VERSION: Final = 1
REMEMBERED_DOCUMENTS: Final = 1_000  # whose credentials need not be read again at the next login


def read_config(text: str | None) -> dict[str, str]:
    """The settings of a user document; those of a damaged one are none."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    config = found.get("config") if isinstance(found, dict) else None
    if not isinstance(config, dict):
        return {}
    return {name: value for name, value in config.items() if isinstance(name, str) and isinstance(value, str)}


@lru_cache(REMEMBERED_DOCUMENTS)
def credentials(text: str | None) -> Mapping[str, Credential]:
    """The user's credentials by mechanism."""
    config = read_config(text)
    found = {name: read_credential(config[name]) for name in SCRAM if name in config}
    return {name: credential for name, credential in found.items() if credential is not None}


def with_credentials(text: str | None, changes: Mapping[str, Credential | None]) -> str | None:
    """The document after credentials were set or, with None, deleted. None if nothing is left in it."""
    config = read_config(text)
    for mechanism, credential in changes.items():
        if credential is None:
            config.pop(mechanism, None)
        else:
            config[mechanism] = str(credential)
    return json.dumps({"version": VERSION, "config": config}, separators=(",", ":")) if config else None


# ── users of a cluster that does not exist yet ──

FIRST_USERS_FILE: Final = "moldau-users.json"  # in a data directory; read when the cluster is created


def read_first_users(text: str) -> dict[str, dict[str, Credential]] | str:
    """Credentials by user and mechanism, or the end of the sentence "the file …"."""
    try:
        users = json.loads(text)["users"]
        found = {
            str(user): {str(name): read_credential(str(value)) for name, value in config.items()}
            for user, config in users.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return "is damaged"
    read: dict[str, dict[str, Credential]] = {}
    for user, config in found.items():
        read[user] = {name: value for name, value in config.items() if value is not None and name in SCRAM}
        if not user or len(read[user]) < len(config):
            return f"has a damaged credential of user {user!r}"
    return read


def write_first_users(users: Mapping[str, Mapping[str, Credential]]) -> str:
    written = {user: {name: str(value) for name, value in config.items()} for user, config in users.items()}
    return json.dumps({"version": VERSION, "users": written}, indent=2) + "\n"
