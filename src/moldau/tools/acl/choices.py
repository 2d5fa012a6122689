"""Options of `moldau acl` as ACLs and filters: the flags are those of kafka-acls."""

import ipaddress
from collections.abc import Iterator
from typing import Annotated, TypeVar

import typer

from moldau.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from moldau.tools.common.complete import complete_group, complete_topic, complete_transactional_id
from moldau.tools.common.failure import misused

E = TypeVar("E", Operation, PatternType)

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="NAME", autocompletion=complete_topic, help="A topic, or '*' for all."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", metavar="NAME", autocompletion=complete_group, help="A group, or '*' for all."),
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--transactional-id", metavar="ID", autocompletion=complete_transactional_id, help="An id, or '*' for all."
    ),
]
Users = Annotated[
    list[str] | None,
    typer.Option(
        "--user-principal",
        metavar="User:NAME",
        help="A user, for the tokens that it owns; or '*' for all.",
    ),
]
Tokens = Annotated[
    list[str] | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token, or '*' for all.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Operations = Annotated[
    list[str] | None, typer.Option("--operation", metavar="NAME", help="Read, Write, Describe, …, or All.")
]

RESOURCE_OPTIONS = "--topic, --group, --transactional-id, --user-principal, --delegation-token or --cluster"
PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER = {ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE), ResourceType.GROUP: (Operation.READ,)}


def read_resources(
    topics: list[str] | None,
    groups: list[str] | None,
    ids: list[str] | None,
    users: list[str] | None,
    tokens: list[str] | None,
    of_cluster: bool,
) -> list[tuple[ResourceType, str]]:
    """The resources that were named; a name that is empty is a mistake."""
    named = [
        (kind, name)
        for kind, names in (
            (ResourceType.TOPIC, topics),
            (ResourceType.GROUP, groups),
            (ResourceType.TRANSACTIONAL_ID, ids),
            (ResourceType.USER, users),
            (ResourceType.DELEGATION_TOKEN, tokens),
        )
        for name in names or ()
    ]
    if any(not name for _, name in named):
        raise misused("the name of a resource is empty", remedy="Give '*' for all")
    for user in users or ():
        if user != WILDCARD:
            check_principal(user)
    return [*named, *([(ResourceType.CLUSTER, CLUSTER_NAME)] if of_cluster else [])]


def check_principal(text: str) -> None:
    """A principal without its type or name would match nobody."""
    kind, colon, name = text.partition(":")
    if colon and kind and name:
        return
    missing = "type" if name or not colon else "name"
    known = (name or kind) if missing == "type" else ""
    raise misused(f"principal {text!r} has no {missing}", remedy=f"Write User:{known or 'NAME'}")


def check_host(text: str, option: str) -> None:
    """Clients are known by their addresses: a name would match none of them."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if text != WILDCARD:
            raise misused(f"{option} {text!r} is not an address", remedy="Give one such as 10.0.0.7") from None


def read_member(of: type[E], text: str, option: str) -> E:
    try:
        return of.of_title(text)
    except ValueError as problem:
        raise misused(f"{option} {problem}") from None


def read_filters(
    resources: list[tuple[ResourceType, str]],
    pattern: str,
    principal: str | None,
    host: str | None,
    operations: list[str] | None,
) -> list[AclFilter]:
    if principal is not None:
        check_principal(principal)
    kind = read_member(PatternType, pattern, "--resource-pattern-type")
    asked = [read_member(Operation, text, "--operation") for text in operations or ("Any",)]
    places: list[tuple[ResourceType, str | None]] = [*resources] or [(ResourceType.ANY, None)]
    return [
        AclFilter(
            resource,
            name,
            PatternType.LITERAL if resource is ResourceType.CLUSTER else kind,
            principal,
            host,
            operation,
        )
        for resource, name in places
        for operation in asked
    ]


def read_bindings(
    resources: list[tuple[ResourceType, str]],
    pattern: str,
    entries: list[tuple[str, str, Permission]],
    operations: list[str] | None,
    *,
    producer: bool,
    consumer: bool,
) -> list[AclBinding]:
    """The ACLs to create: each operation on each resource, for each principal and host."""
    kind = read_member(PatternType, pattern, "--resource-pattern-type")
    if kind not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise misused(f"--resource-pattern-type {pattern} is for filters", remedy="Give literal or prefixed")
    asked = [read_member(Operation, text, "--operation") for text in operations or ()]
    if not resources:
        raise misused("no resource was given", remedy=f"Give {RESOURCE_OPTIONS}")
    if kind is PatternType.PREFIXED and any(name == WILDCARD for _, name in resources):
        raise misused("'*' is no prefix: as a literal name it stands for all", remedy="Leave out 'prefixed'")
    if not entries:
        raise misused("no principal was given", remedy="Give --allow-principal User:NAME, or --deny-principal")
    wanted = [
        (ResourcePattern(resource, name, PatternType.LITERAL if resource is ResourceType.CLUSTER else kind), operation)
        for resource, name in resources
        for operation in _operations(resource, asked, producer=producer, consumer=consumer)
    ]
    return [
        AclBinding(place, AclEntry(principal, host, operation, permission))
        for place, operation in wanted
        for principal, host, permission in entries
    ]


def _operations(
    resource: ResourceType, asked: list[Operation], *, producer: bool, consumer: bool
) -> Iterator[Operation]:
    if producer or consumer:
        found = [*(PRODUCER.get(resource, ()) if producer else ()), *(CONSUMER.get(resource, ()) if consumer else ())]
        if asked or not found:
            what = "--operation" if asked else f"a resource of type {resource.title}"
            raise misused(f"{what} does not go with --producer or --consumer")
        yield from dict.fromkeys(found)
        return
    if not asked:
        raise misused("no operation was given", remedy="Give --operation, --producer or --consumer")
    for operation in asked:
        if operation is not Operation.ALL and operation not in SUPPORTED[resource]:
            known = ", ".join(each.title for each in SUPPORTED[resource])
            raise misused(f"{operation.title} is no operation on a {resource.title}", remedy=f"There are: All, {known}")
        yield operation


def read_entries(
    allowed: list[str] | None, denied: list[str] | None, allow_hosts: list[str] | None, deny_hosts: list[str] | None
) -> list[tuple[str, str, Permission]]:
    """Principals, hosts and whether they are allowed."""
    found: list[tuple[str, str, Permission]] = []
    for principals, hosts, permission in (
        (allowed, allow_hosts, Permission.ALLOW),
        (denied, deny_hosts, Permission.DENY),
    ):
        word = permission.name.lower()
        if hosts and not principals:
            raise misused(f"--{word}-host needs --{word}-principal")
        for host in hosts or ():
            check_host(host, f"--{word}-host")
        for principal in principals or ():
            check_principal(principal)
            found += [(principal, host, permission) for host in hosts or (WILDCARD,)]
    return found
