"""`moldau acl`: list, create and delete ACLs, with the flags of kafka-acls."""

from typing import Annotated

import typer

from moldau.security.acls import AclBinding
from moldau.tools.acl.choices import (
    Groups,
    Ids,
    OfCluster,
    Operations,
    Tokens,
    Topics,
    Users,
    read_bindings,
    read_entries,
    read_filters,
    read_resources,
)
from moldau.tools.common.app import App
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import misused, note
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import counted, print_json, print_table

app = App(name="acl", help="List, create and delete ACLs.", add_completion=False)

COLUMNS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")

Pattern = Annotated[str, typer.Option("--resource-pattern-type", metavar="TYPE", help="literal or prefixed.")]
Match = Annotated[str, typer.Option("--resource-pattern-type", metavar="TYPE", help="literal, prefixed, match or any.")]
Principal = Annotated[str | None, typer.Option("--principal", metavar="User:NAME", help="Only this one's.")]
Host = Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Only those for this host.")]


@client_command(app, "list")
def list_all(
    context: CommandContext,
    topics: Topics = None,
    groups: Groups = None,
    ids: Ids = None,
    users: Users = None,
    tokens: Tokens = None,
    of_cluster: OfCluster = False,
    pattern: Match = "any",
    principal: Principal = None,
    host: Host = None,
    operations: Operations = None,
) -> None:
    """List ACLs: all, or those of resources, a principal or a host. 'match' finds all that apply to a name."""
    from moldau.client.admin.acls import find_acls
    from moldau.client.admin.cluster import open_cluster

    filters = read_filters(
        read_resources(topics, groups, ids, users, tokens, of_cluster), pattern, principal, host, operations
    )
    with open_cluster(context.target) as cluster:
        found = sorted({acl for each in filters for acl in find_acls(cluster, each)})
    print_acls(context, found, "No ACLs match.")


@client_command(app, "create")
def create(
    context: CommandContext,
    allowed: Annotated[
        list[str] | None, typer.Option("--allow-principal", metavar="User:NAME", help="Allow it, or User:* for all.")
    ] = None,
    denied: Annotated[
        list[str] | None, typer.Option("--deny-principal", metavar="User:NAME", help="Deny it, whatever is allowed.")
    ] = None,
    allow_hosts: Annotated[
        list[str] | None, typer.Option("--allow-host", metavar="ADDRESS", help="Only from there.", show_default="all")
    ] = None,
    deny_hosts: Annotated[
        list[str] | None, typer.Option("--deny-host", metavar="ADDRESS", help="Only from there.", show_default="all")
    ] = None,
    operations: Operations = None,
    producer: Annotated[bool, typer.Option("--producer", help="What a producer needs.")] = False,
    consumer: Annotated[bool, typer.Option("--consumer", help="What a consumer needs.")] = False,
    topics: Topics = None,
    groups: Groups = None,
    ids: Ids = None,
    users: Users = None,
    tokens: Tokens = None,
    of_cluster: OfCluster = False,
    pattern: Pattern = "literal",
) -> None:
    """Create ACLs: each operation on each resource for each principal. Those that exist already stay."""
    from moldau.client.admin.acls import create_acls
    from moldau.client.admin.cluster import open_cluster

    bindings = read_bindings(
        read_resources(topics, groups, ids, users, tokens, of_cluster),
        pattern,
        read_entries(allowed, denied, allow_hosts, deny_hosts),
        operations,
        producer=producer,
        consumer=consumer,
    )
    with open_cluster(context.target) as cluster:
        create_acls(cluster, bindings)
    print_acls(context, bindings, "")


@client_command(app, "delete")
def delete(
    context: CommandContext,
    topics: Topics = None,
    groups: Groups = None,
    ids: Ids = None,
    users: Users = None,
    tokens: Tokens = None,
    of_cluster: OfCluster = False,
    pattern: Match = "literal",
    principal: Principal = None,
    host: Host = None,
    operations: Operations = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Yes = False,
) -> None:
    """Delete the ACLs of resources, a principal or a host."""
    from moldau.client.admin.acls import delete_acls, find_acls
    from moldau.client.admin.cluster import open_cluster

    resources = read_resources(topics, groups, ids, users, tokens, of_cluster)
    if not (resources or principal or host or operations):
        raise misused("this would delete all ACLs", remedy="Give a resource, --principal or --host")
    filters = read_filters(resources, pattern if resources else "any", principal, host, operations)
    with open_cluster(context.target) as cluster:
        found = sorted({acl for each in filters for acl in find_acls(cluster, each)})
        if found and not dry_run:
            if not yes:
                require_yes("deleting ACLs", f"Delete {counted(len(found), 'ACL')}?")
            found = delete_acls(cluster, filters)
    print_acls(context, found, "No ACLs match; nothing was deleted.")


def print_acls(context: CommandContext, acls: list[AclBinding], nothing: str) -> None:
    rows = [
        (
            pattern.resource.title,
            pattern.name,
            pattern.pattern.title,
            entry.principal,
            entry.host,
            entry.operation.title,
            entry.permission.title,
        )
        for pattern, entry in acls
    ]
    if context.json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    elif rows:
        print_table([column.upper() for column in COLUMNS], rows)
    else:
        note(nothing)
