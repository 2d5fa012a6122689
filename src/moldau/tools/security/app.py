"""`moldau security`: what a principal may do in a cluster, by its ACLs."""

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.security.acls import ANYONE, CLUSTER_NAME, SUPPORTED, Operation, PatternType, ResourceType
from moldau.tools.acl.choices import check_host, check_principal
from moldau.tools.common.app import App
from moldau.tools.common.failure import note
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import print_json, print_table

if TYPE_CHECKING:
    from moldau.client.admin.acls import Authorization

app = App(name="security", help="Show what clients may do.", add_completion=False)

ANONYMOUS = "User:ANONYMOUS"
LOCAL = "127.0.0.1"
SHOWN = 5  # names in a row of the table
TYPES = (ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
OF_OTHERS = (ResourceType.DELEGATION_TOKEN, ResourceType.USER)  # tokens of others: nobody's without an authorizer

Row = tuple[ResourceType, list[str], list[Operation]]


@app.callback()
def security() -> None:
    """Show what clients may do."""


@client_command(app, "check")
def check(
    context: CommandContext,
    principal: Annotated[
        str, typer.Option("--principal", metavar="User:NAME", help="A user; one without authentication by default.")
    ] = ANONYMOUS,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where it connects from.")] = LOCAL,
) -> None:
    """Show what a principal may do from a host: on the cluster, its topics and groups, and by patterns of names."""
    from moldau.client.admin.acls import read_authorization
    from moldau.client.admin.cluster import open_cluster

    check_principal(principal)
    check_host(host, "--host")
    with open_cluster(context.target) as cluster:
        authorization = read_authorization(cluster)
        topics = [row.name for row in cluster.metadata().topics if row.name]
    rows = decide(authorization, topics, principal, host)
    if context.json:
        print_json(
            [{"resource": kind.title, "names": names, "may": [each.title for each in may]} for kind, names, may in rows]
        )
        return
    if not authorization.enabled:
        note("No authorizer is configured: every client may do everything. Set authorizer.class.name and super.users.")
    elif not authorization.told:
        note("These brokers do not tell super.users and allow.everyone.if.no.acl.found: only ACLs are counted.")
    elif principal in authorization.super_users:
        note(f"{principal} is a super user.")
    print_table(("RESOURCE", "NAMES", "MAY"), [(kind.title, _few(names), _list(may)) for kind, names, may in rows])


def decide(authorization: "Authorization", topics: list[str], principal: str, host: str) -> list[Row]:
    """The operations that are allowed, for names with the same ones in one row. Pure, but for the values it takes."""
    index = authorization.index()
    rows: list[Row] = []
    for kind in (*TYPES, *OF_OTHERS) if authorization.enabled else TYPES:
        alike: dict[tuple[Operation, ...], list[str]] = {}
        for name in _names(authorization, kind, topics, principal):
            bare = name.removesuffix("*") or name
            may = tuple(
                each
                for each in SUPPORTED[kind]
                if not authorization.enabled or index.allowed(principal, host, each, kind, bare)
            )
            alike.setdefault(may, []).append(name)
        rows += [(kind, names, list(may)) for may, names in alike.items()]
    return rows


def _names(authorization: "Authorization", kind: ResourceType, topics: list[str], principal: str) -> list[str]:
    """The cluster; the topics that exist; and what ACLs of the principal name, with a star behind a prefix."""
    if kind is ResourceType.CLUSTER:
        return [CLUSTER_NAME]
    named = [
        pattern.name + ("*" if pattern.pattern is PatternType.PREFIXED else "")
        for pattern, entry in authorization.acls
        if pattern.resource is kind and entry.principal in (principal, ANYONE)
    ]
    return list(dict.fromkeys([*(sorted(topics) if kind is ResourceType.TOPIC else ()), *named, "*"]))


def _few(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _list(operations: list[Operation]) -> str:
    return ", ".join(each.title for each in operations) or "nothing"
