"""Documents of quotas: the entity that each belongs to by its path, and the values in its text. Counts nothing.

Paths and texts are those of Kafka on ZooKeeper: `/config/users/alice/clients/app` has
`{"version":1,"config":{"producer_byte_rate":"1024"}}`. A user's document holds SCRAM credentials as well: keys that
are no quotas stay as they are.
"""

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from moldau.metadata.documents import Documents, segment
from moldau.security.quotas import DEFAULT, QUOTA_KEYS, Entity, Name, Quotas, wrong_value

USERS: Final = "/config/users/"
CLIENTS: Final = "/config/clients/"
IPS: Final = "/config/ips/"
OF_USER: Final = "/clients/"  # between a user and one of the user's client ids
VERSION: Final = 1  # of the text


def path_of(entity: Entity) -> str:
    """The path of an entity's document."""
    if entity.ip is not None:
        return IPS + _step(entity.ip)
    if entity.user is None:
        return CLIENTS + _step(entity.client_id)
    user = USERS + _step(entity.user)
    return user if entity.client_id is None else user + OF_USER + _step(entity.client_id)


def entity_of(path: str) -> Entity | None:
    """The entity whose document this is; None: it is a document of something else."""
    if path.startswith(CLIENTS):
        return Entity(None, _name(path.removeprefix(CLIENTS)))
    if path.startswith(IPS):
        return Entity(ip=_name(path.removeprefix(IPS)))
    if not path.startswith(USERS):
        return None
    user, both, client_id = path.removeprefix(USERS).partition(OF_USER)
    return Entity(_name(user), _name(client_id) if both else None)


def read_quotas(documents: Documents) -> tuple[Quotas, list[str]]:
    """All quotas, and the paths of documents with something that cannot be read, which counts as not set."""
    quotas: dict[Entity, Mapping[str, float]] = {}
    unreadable: list[str] = []
    for path, text in documents.items():
        entity = entity_of(path)
        if entity is None:
            continue
        config, values = _config(text), dict[str, float]()
        for name, value in (config or {}).items():
            if name in QUOTA_KEYS:
                number = _number(name, value)
                if number is not None:
                    values[name] = number
        if config is None or len(values) < sum(name in QUOTA_KEYS for name in config):
            unreadable.append(path)
        if values:
            quotas[entity] = values
    return quotas, unreadable


def altered(text: str | None, changes: Mapping[str, float | None]) -> str | None:
    """A document's text after quotas were set or, with None, removed; None if nothing is left in it."""
    config = dict(_config(text or "") or {})
    for name, value in changes.items():
        if value is None:
            config.pop(name, None)
        else:
            config[name] = _plain(value)
    return json.dumps({"version": VERSION, "config": config}, separators=(",", ":")) if config else None


def _config(text: str) -> dict[str, str] | None:
    """The config in a document's text; None if that is not JSON, or another."""
    try:
        config = json.loads(text)["config"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def _number(name: str, value: object) -> float | None:
    """A quota's value; None if it cannot have that one."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return None if wrong_value(QUOTA_KEYS[name], number) else number


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _step(name: Name) -> str:
    return segment(name) if isinstance(name, str) else DEFAULT.value


def _name(step: str) -> Name:
    return DEFAULT if step == DEFAULT.value else unquote(step)
