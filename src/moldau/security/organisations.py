"""Organisations: names of their own over the names of the cluster, products, members and limits. Enforces nothing.

A user `acme/alice` belongs to the organisation `acme`. What it calls `shop.orders` the cluster calls
`acme.shop.orders`; groups and transactional ids likewise. The first part of a topic's name is its product. Other names
of the cluster do not exist for it, and a topic id of others is as unknown as one that was never given.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final
from uuid import UUID

from moldau.base.session import Principal
from moldau.wire.declare import Name
from moldau.wire.primitives import ZERO_UUID

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")  # of organisations and products: no dot, which separates them
ROOT: Final = "/moldau/organisations"  # where their documents are
ALL_PRODUCTS: Final = "*"
_HIDDEN: Final = (1 << 128) - 1


class Role(Enum):
    """What a member may do with a product's topics."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of an organisation or product; None for no bound."""

    partitions: int | None = None
    retention_ms: int | None = None
    bytes_stored: int | None = None
    connections: int | None = None
    bytes_in: int | None = None  # per second
    bytes_out: int | None = None


@dataclass(frozen=True, slots=True)
class Organisation:
    name: str
    limits: Limits = Limits()
    products: Mapping[str, Limits] = field(default_factory=dict)
    members: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)  # user → product or "*" → role

    @property
    def prefix(self) -> str:
        return f"{self.name}."

    def roles(self, user: str, product: str) -> frozenset[Role]:
        own = self.members.get(user, {})
        return frozenset(own[each] for each in (product, ALL_PRODUCTS) if each in own)


def product_of(topic: str) -> str:
    """The product of a topic, by the organisation's name for it."""
    return topic.partition(".")[0]


def member_of(principal: Principal) -> tuple[str, str] | None:
    """Organisation and user of a principal `User:acme/alice`; None for a user of the cluster."""
    organisation, slash, user = principal.name.partition("/")
    return (organisation, user) if principal.kind == "User" and slash and NAME.fullmatch(organisation) else None


# ── documents ──


class MalformedOrganisation(ValueError):
    """A document that this release did not write."""


def to_json(organisation: Organisation) -> str:
    return json.dumps(
        {
            "version": 1,
            "limits": _plain_limits(organisation.limits),
            "products": {name: _plain_limits(limits) for name, limits in organisation.products.items()},
            "members": {
                user: {product: role.value for product, role in roles.items()}
                for user, roles in organisation.members.items()
            },
        }
    )


def from_json(name: str, text: str) -> Organisation:
    try:
        form = json.loads(text)
        return Organisation(
            name,
            Limits(**form["limits"]),
            {product: Limits(**limits) for product, limits in form["products"].items()},
            {user: {product: Role(role) for product, role in roles.items()} for user, roles in form["members"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise MalformedOrganisation(f"organisation {name}: {problem!r}") from problem


def _plain_limits(limits: Limits) -> dict[str, Any]:
    return {name: value for name in Limits.__slots__ if (value := getattr(limits, name)) is not None}


# ── names ──


class ToCluster:
    """A renaming of requests: from the organisation's names to the cluster's."""

    __slots__ = ("_owns", "_prefix")

    def __init__(self, organisation: str, owns: Callable[[UUID], bool]) -> None:
        self._prefix = f"{organisation}."
        self._owns = owns

    def name(self, kind: Name, name: str, /) -> str:
        return f"{self._prefix}{name}" if name else name  # empty: the request has an id instead

    def topic_id(self, topic_id: UUID, /) -> UUID:
        return topic_id if topic_id == ZERO_UUID or self._owns(topic_id) else _hidden(topic_id)

    def text(self, text: str, /) -> str:
        return text


class ToOrganisation:
    """A renaming of responses: from the cluster's names to the organisation's. Names of others are left out."""

    __slots__ = ("_mentions", "_owns", "_prefix")

    def __init__(self, organisation: str, owns: Callable[[UUID], bool]) -> None:
        self._prefix = f"{organisation}."
        self._mentions = re.compile(rf"(?<![\w.-]){re.escape(self._prefix)}")
        self._owns = owns

    def name(self, kind: Name, name: str, /) -> str | None:
        if not name:
            return name
        return name[len(self._prefix) :] if name.startswith(self._prefix) else None

    def topic_id(self, topic_id: UUID, /) -> UUID:
        return topic_id if topic_id == ZERO_UUID or self._owns(topic_id) else _hidden(topic_id)

    def text(self, text: str, /) -> str:
        return self._mentions.sub("", text)


def _hidden(topic_id: UUID) -> UUID:
    """The id that the cluster sees in place of one of others, and the way back: no topic has it."""
    return UUID(int=topic_id.int ^ _HIDDEN)
