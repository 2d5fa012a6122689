"""Organisations of a cluster: list, create, change and delete them, and what they use of its brokers."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from moldau.base.errors import WireError
from moldau.client.admin.cluster import Cluster, retry_transient
from moldau.client.admin.errors import (
    AdminError,
    InvalidArgument,
    NoSuchOrganisation,
    NoSuchProduct,
    NoSuchRole,
    Refused,
    refused,
)
from moldau.security.organisations import (
    ALL_PRODUCTS,
    NAME,
    Limits,
    MalformedOrganisation,
    Organisation,
    Role,
    from_json,
    to_json,
)
from moldau.wire.messages.alter_organisations import (
    AlterOrganisationsRequest,
    AlterOrganisationsResponse,
    OrganisationAlteration,
)
from moldau.wire.messages.describe_organisations import (
    DescribedOrganisation,
    DescribeOrganisationsRequest,
    DescribeOrganisationsResponse,
)

ATTEMPTS = 5  # to change an organisation that others change at the same time


@dataclass(frozen=True, slots=True)
class Usage:
    """What a product uses of the cluster; product "" is what belongs to none."""

    product: str
    bytes_in: int  # since the start of each broker
    bytes_out: int
    bytes_stored: int  # without replicas


def list_organisations(cluster: Cluster) -> list[Organisation]:
    return [_read(row) for row in _described(cluster, None)]


def organisation(cluster: Cluster, name: str) -> Organisation:
    (row,) = _described(cluster, (name,))
    return _read(row)


def usage(cluster: Cluster, name: str) -> tuple[list[Usage], int]:
    """The usage by product, and the number of connections, summed over all brokers."""
    sums: dict[str, Counter[str]] = {product: Counter() for product in organisation(cluster, name).products}
    connections = 0
    for node_id in cluster.ids:
        answer = cluster.broker(node_id).ask(DescribeOrganisationsRequest(names=(name,)), DescribeOrganisationsResponse)
        for row in answer.organisations:
            connections += row.connections
            for each in row.usage:
                found = sums.setdefault(each.product, Counter())
                found.update({"in": each.bytes_in, "out": each.bytes_out, "stored": each.bytes_stored})
    rows = [Usage(product, each["in"], each["out"], each["stored"]) for product, each in sorted(sums.items())]
    return rows, connections


def exists(cluster: Cluster, name: str) -> bool:
    try:
        _described(cluster, (name,))
    except NoSuchOrganisation:
        return False
    return True


def create(cluster: Cluster, name: str, limits: Limits) -> None:
    _alter(cluster, name, None, to_json(Organisation(name, limits)))


def delete(cluster: Cluster, name: str, *, validate_only: bool = False) -> None:
    (row,) = _described(cluster, (name,))
    _alter(cluster, name, row.definition, None, validate_only=validate_only)


def change(
    cluster: Cluster, name: str, changed: Callable[[Organisation], Organisation], *, validate_only: bool = False
) -> Organisation:
    """Change an organisation, again if somebody else has changed it meanwhile; returns what it is then."""
    for attempt in range(ATTEMPTS):
        (row,) = _described(cluster, (name,))
        after = changed(_read(row))
        try:
            _alter(cluster, name, row.definition, to_json(after), validate_only=validate_only)
        except Refused as problem:
            if problem.name != WireError.INVALID_UPDATE_VERSION.name or attempt == ATTEMPTS - 1:
                raise
        else:
            return after
    raise AssertionError("the last attempt either returns or raises")


# ── changes ──


def with_product(product: str, limits: Limits, *, new: bool) -> Callable[[Organisation], Organisation]:
    def changed(before: Organisation) -> Organisation:
        if new and product in before.products:
            raise InvalidArgument(f"product {before.name}/{product} exists")
        if not new and product not in before.products:
            raise NoSuchProduct(before.name, product)
        return replace(before, products={**before.products, product: limits})

    return changed


def without_product(product: str) -> Callable[[Organisation], Organisation]:
    """Without the product, and without the roles in it."""

    def changed(before: Organisation) -> Organisation:
        if product not in before.products:
            raise NoSuchProduct(before.name, product)
        left = {
            user: {of: role for of, role in roles.items() if of != product} for user, roles in before.members.items()
        }
        products = {name: limits for name, limits in before.products.items() if name != product}
        return replace(before, products=products, members={user: roles for user, roles in left.items() if roles})

    return changed


def with_roles(user: str, roles: Iterable[tuple[str, Role]]) -> Callable[[Organisation], Organisation]:
    given = dict(roles)

    def changed(before: Organisation) -> Organisation:
        for product in given:
            if product != ALL_PRODUCTS and product not in before.products:
                raise NoSuchProduct(before.name, product)
        return replace(before, members={**before.members, user: {**before.members.get(user, {}), **given}})

    return changed


def without_roles(user: str, products: Iterable[str] | None) -> Callable[[Organisation], Organisation]:
    """Without the user's roles in these products, or without any."""
    gone = None if products is None else set(products)

    def changed(before: Organisation) -> Organisation:
        roles = before.members.get(user, {})
        if not roles:
            raise NoSuchRole(before.name, user)
        for product in gone or ():
            if product not in roles:
                raise NoSuchRole(before.name, user, product)
        left = {} if gone is None else {of: role for of, role in roles.items() if of not in gone}
        others = {name: roles for name, roles in before.members.items() if name != user}
        return replace(before, members={**others, user: left} if left else others)

    return changed


def split_name(text: str, what: str) -> tuple[str, str]:
    """`acme/shop` or `acme/alice` as organisation and name."""
    organisation_name, slash, name = text.partition("/")
    if not slash or not name or not NAME.fullmatch(organisation_name):
        raise InvalidArgument(f"{text!r} is not ORGANISATION/{what}")
    return organisation_name, name


# ── requests ──


def _described(cluster: Cluster, names: tuple[str, ...] | None) -> tuple[DescribedOrganisation, ...]:
    request = DescribeOrganisationsRequest(names=names)
    answer = retry_transient(
        lambda: cluster.ask(request, DescribeOrganisationsResponse), lambda response: response.error_code
    )
    if answer.error_code:
        raise refused(answer.error_code, "the organisations cannot be described")
    for row in answer.organisations:
        if row.error_code == WireError.RESOURCE_NOT_FOUND:
            raise NoSuchOrganisation(row.name)
    return answer.organisations


def _read(row: DescribedOrganisation) -> Organisation:
    try:
        return from_json(row.name, row.definition or "")
    except MalformedOrganisation as problem:
        raise AdminError(f"{problem} cannot be read") from problem


def _alter(
    cluster: Cluster, name: str, expected: str | None, definition: str | None, *, validate_only: bool = False
) -> None:
    alteration = OrganisationAlteration(name=name, expected=expected, definition=definition)
    request = AlterOrganisationsRequest(alterations=(alteration,), validate_only=validate_only)
    answer = retry_transient(
        lambda: cluster.ask(request, AlterOrganisationsResponse), lambda response: response.results[0].error_code
    )
    (result,) = answer.results
    if result.error_code == WireError.INVALID_UPDATE_VERSION and expected is None:
        raise InvalidArgument(f"organisation {name!r} exists")
    if result.error_code:
        problem = (result.error_message or "the organisation cannot be changed").rstrip(".")
        raise Refused(WireError(result.error_code).name, problem[0].lower() + problem[1:])
