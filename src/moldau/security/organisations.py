"""Organisations: their products, members, roles and limits, and the documents that hold them. Enforces nothing.

A user `acme/alice` belongs to the organisation `acme`. What it calls `shop.orders` the cluster calls
`acme.shop.orders`; groups and transactional ids likewise. The first part of a topic's name is its product. Other names
of the cluster do not exist for it, and a topic id of others is as unknown as one that was never given.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from moldau.base.session import Principal

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")  # of organisations and products: no dot, which separates them
ROOT: Final = "/moldau/organisations"  # where their documents are
ALL_PRODUCTS: Final = "*"


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

    @property
    def limits_rates(self) -> bool:
        """Whether the rate of the organisation or of a product is limited."""
        return any(each.bytes_in is not None or each.bytes_out is not None for each in self._all_limits())

    @property
    def limits_storage(self) -> bool:
        return any(each.bytes_stored is not None for each in self._all_limits())

    def is_administered_by(self, user: str) -> bool:
        """Whether the user has the role of an administrator in all products."""
        return self.members.get(user, {}).get(ALL_PRODUCTS) is Role.ADMIN

    def _all_limits(self) -> tuple[Limits, ...]:
        return (self.limits, *self.products.values())


def product_of(topic: str) -> str:
    """The product of a topic, by the organisation's name for it."""
    return topic.partition(".")[0]


def member_of(principal: Principal) -> tuple[str, str] | None:
    """Organisation and user of a principal `User:acme/alice`; None for a user of the cluster."""
    organisation, slash, user = principal.name.partition("/")
    return (organisation, user) if principal.kind == "User" and slash and NAME.fullmatch(organisation) else None


def problem_of(organisation: Organisation) -> str | None:
    """What is wrong with an organisation; None: nothing."""
    for product, limits in organisation.products.items():
        if not NAME.fullmatch(product):
            return f"A product's name has lower-case letters, digits and dashes, got {product!r}."
        if limits.connections is not None:
            return f"Connections belong to no product: limit those of organisation {organisation.name}."
    for limits in (organisation.limits, *organisation.products.values()):
        for name in Limits.__slots__:
            value = getattr(limits, name)
            if value is not None and (type(value) is not int or value < 0):
                return f"Limit {name} of organisation {organisation.name} must be a number from 0 on, got {value!r}."
    for user, roles in organisation.members.items():
        if not user:
            return "A user needs a name."
        for product in roles:
            if product != ALL_PRODUCTS and product not in organisation.products:
                return f"User {user!r} has a role in product {product!r}, which does not exist."
    return None


# ── documents ──


def path_of(name: str) -> str:
    return f"{ROOT}/{name}"


class MalformedOrganisation(ValueError):
    """A document that this release did not write."""


def to_json(organisation: Organisation) -> str:
    return json.dumps(
        {
            "version": 1,
            "limits": plain_limits(organisation.limits),
            "products": {name: plain_limits(limits) for name, limits in organisation.products.items()},
            "members": {
                user: {product: role.value for product, role in roles.items()}
                for user, roles in organisation.members.items()
            },
        }
    )


def without_members(name: str, text: str) -> str:
    """The document with products and limits only."""
    return to_json(replace(from_json(name, text), members={}))


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


def plain_limits(limits: Limits) -> dict[str, int]:
    """Those that are set, by name."""
    return {name: value for name in Limits.__slots__ if (value := getattr(limits, name)) is not None}
