"""Entities of quotas as requests name them: by pairs of a type and a name."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from moldau.base.errors import Refusal, WireError
from moldau.security.quotas import DEFAULT, Entity, Name

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


def parts_of(entity: Entity) -> dict[str, Name]:
    """The names in an entity by their types."""
    named = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    return {kind: name for kind, name in named.items() if name is not None}


def read_entity(pairs: Iterable[tuple[str, str | None]]) -> Entity | Refusal:
    """The entity of types and names, None for the default; or why there can be none."""
    parts: dict[str, Name] = {}
    for kind, name in pairs:
        if kind not in (USER, CLIENT_ID, IP):
            return _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return _invalid(f"Empty {kind} not supported")
        if kind in parts:
            return _invalid(f"A {kind} appears more than once in the entity.")
        parts[kind] = DEFAULT if name is None else name
    if not parts:
        return _invalid("Invalid empty client quota entity")
    if IP in parts:
        return _read_ip(parts)
    return Entity(parts.get(USER), parts.get(CLIENT_ID))


def _read_ip(parts: dict[str, Name]) -> Entity | Refusal:
    if len(parts) > 1:
        return _invalid("An ip cannot be combined with a user or a client-id in an entity.")
    name = parts[IP]
    if not isinstance(name, str):
        return Entity(ip=name)
    try:
        return Entity(ip=str(ip_address(name)))
    except ValueError:
        return _invalid(f"{name} is not a valid IP address.")


def _invalid(message: str) -> Refusal:
    return Refusal(WireError.INVALID_REQUEST, message)
