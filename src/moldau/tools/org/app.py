"""`moldau org`: create, list, describe, alter and delete organisations, give roles, show what they use."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.security.organisations import ALL_PRODUCTS, Limits, plain_limits
from moldau.tools.common.app import App
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import CommandError, misused, note
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext, DryRun, client_command
from moldau.tools.common.output import counted, print_json, print_table, print_text
from moldau.tools.org.limits import (
    BytesMax,
    ConnectionsMax,
    PartitionsMax,
    QuotaIn,
    QuotaOut,
    RetentionMax,
    Roles,
    limit_texts,
    read_limits,
    read_roles,
    show_limits,
    show_roles,
)

if TYPE_CHECKING:
    from moldau.security.organisations import Organisation

app = App(name="org", help="Create, list, describe, alter and delete organisations; give roles; show usage.")

Name = Annotated[str, typer.Argument(metavar="ORGANISATION", show_default=False)]
OwnName = Annotated[
    str | None,
    typer.Argument(metavar="ORGANISATION", help="May be left out by its administrators.", show_default=False),
]
Member = Annotated[str, typer.Argument(metavar="ORGANISATION/USER", show_default=False)]


@client_command(app, "create")
def create(
    context: CommandContext,
    name: Name,
    quota_in: QuotaIn = None,
    quota_out: QuotaOut = None,
    retention_max: RetentionMax = None,
    partitions_max: PartitionsMax = None,
    bytes_max: BytesMax = None,
    connections_max: ConnectionsMax = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="Take over topics that are named like its own.")] = False,
) -> None:
    """Create an organisation: its users see its own topics only."""
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster

    limits = read_limits(
        Limits(), limit_texts(quota_in, quota_out, retention_max, partitions_max, bytes_max, connections_max)
    )
    with open_cluster(context.target) as cluster:
        if organisations.exists(cluster, name):
            raise misused(f"organisation {name!r} exists", remedy=f"Change it with: {suggest(f'org alter {name}')}")
        taken = [row.name for row in cluster.metadata().topics if (row.name or "").startswith(f"{name}.")]
        if taken and not adopt:
            raise CommandError(
                f"{counted(len(taken), 'topic')} with names that begin with '{name}.' would belong to the organisation",
                remedy="Add --adopt to give them to it, or choose another name",
            )
        organisations.create(cluster, name, limits)
    _tell(context, name, "created", f"Created organisation {name}. Next: {suggest(f'product create {name}/PRODUCT')}")


@client_command(app, "alter")
def alter(
    context: CommandContext,
    name: Name,
    quota_in: QuotaIn = None,
    quota_out: QuotaOut = None,
    retention_max: RetentionMax = None,
    partitions_max: PartitionsMax = None,
    bytes_max: BytesMax = None,
    connections_max: ConnectionsMax = None,
    dry_run: DryRun = False,
) -> None:
    """Change limits of an organisation; `none` removes one."""
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster

    texts = limit_texts(quota_in, quota_out, retention_max, partitions_max, bytes_max, connections_max)
    if not any(texts.values()):
        raise misused("no limit was given", remedy="Add one such as --partitions-max 200")
    with open_cluster(context.target) as cluster:
        after = organisations.change(
            cluster,
            name,
            lambda before: replace(before, limits=read_limits(before.limits, texts)),
            validate_only=dry_run,
        )
    done = "Valid" if dry_run else "Changed"
    _tell(context, name, done.lower(), f"{done}: limits of organisation {name}: {show_limits(after.limits)}")


@client_command(app, "list")
def list_all(context: CommandContext) -> None:
    """List the organisations."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.organisations import list_organisations

    with open_cluster(context.target) as cluster:
        found = list_organisations(cluster)
    if context.json:
        print_json([_plain(each) for each in found])
    elif found:
        rows = [(each.name, list(each.products), len(each.members) or None, show_limits(each.limits)) for each in found]
        print_table(("ORGANISATION", "PRODUCTS", "USERS WITH ROLES", "LIMITS"), rows)
    else:
        note(f"There are no organisations yet. Create one with: {suggest('org create NAME')}")


@client_command(app, "describe")
def describe(context: CommandContext, name: Name) -> None:
    """Show the products, roles and limits of an organisation."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.organisations import organisation

    with open_cluster(context.target) as cluster:
        found = organisation(cluster, name)
    if context.json:
        print_json(_plain(found))
        return
    print_text(f"Organisation {found.name}: limits {show_limits(found.limits)}")
    print_table(("PRODUCT", "LIMITS"), [(each, show_limits(limits)) for each, limits in found.products.items()])
    if found.members:
        print_table(("USER", "ROLES"), [(f"{name}/{user}", show_roles(roles)) for user, roles in found.members.items()])


@client_command(app, "usage")
def usage(context: CommandContext, name: OwnName = None) -> None:
    """Show bytes in and out since the brokers started, and bytes stored, by product."""
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster

    with open_cluster(context.target) as cluster:
        if name is None:
            name = _only([each.name for each in organisations.list_organisations(cluster)])
        rows, connections = organisations.usage(cluster, name)
    if context.json:
        products = [
            {"product": row.product, "in": row.bytes_in, "out": row.bytes_out, "stored": row.bytes_stored}
            for row in rows
        ]
        print_json({"organisation": name, "connections": connections, "products": products})
        return
    shown = [(row.product or "(no product)", row.bytes_in, row.bytes_out, row.bytes_stored) for row in rows]
    sums = [sum(column) for column in zip(*(row[1:] for row in shown), strict=True)]
    print_table(("PRODUCT", "BYTES IN", "BYTES OUT", "BYTES STORED"), [*shown, ("all", *(sums or (0, 0, 0)))])
    print_text(f"Connections: {connections}")


@client_command(app, "grant")
def grant(context: CommandContext, member: Member, roles: Roles = None) -> None:
    """Give a user roles, in place of those that it has in the same products."""
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster

    name, user = organisations.split_name(member, "USER")
    given = read_roles(roles)
    with open_cluster(context.target) as cluster:
        after = organisations.change(cluster, name, organisations.with_roles(user, given.items()))
    _tell(context, member, "granted", f"{member} is {show_roles(after.members[user])}.")


@client_command(app, "revoke")
def revoke(
    context: CommandContext,
    member: Member,
    products: Annotated[
        list[str] | None, typer.Option("--product", metavar="PRODUCT", help="In this one only; * for that in all.")
    ] = None,
) -> None:
    """Take roles from a user; without any it sees nothing."""
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster

    name, user = organisations.split_name(member, "USER")
    with open_cluster(context.target) as cluster:
        after = organisations.change(cluster, name, organisations.without_roles(user, products))
    left = after.members.get(user)
    _tell(context, member, "revoked", f"{member} is {show_roles(left)}." if left else f"{member} has no role any more.")


@client_command(app, "delete")
def delete(context: CommandContext, name: Name, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete an organisation that has no topics and no users any more."""
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster

    if not dry_run and not yes:
        require_yes("org delete", f"Delete organisation {name}?")
    with open_cluster(context.target) as cluster:
        organisations.delete(cluster, name, validate_only=dry_run)
    done = "Would delete" if dry_run else "Deleted"
    _tell(context, name, done.lower(), f"{done} organisation {name}.")


def _only(names: list[str]) -> str:
    if len(names) != 1:
        raise misused("no organisation was named", remedy=f"There are: {', '.join(names) or 'none'}")
    return names[0]


def _plain(found: "Organisation") -> dict[str, object]:
    return {
        "organisation": found.name,
        "limits": plain_limits(found.limits),
        "products": {product: plain_limits(limits) for product, limits in found.products.items()},
        "users": {
            user: {"all" if product == ALL_PRODUCTS else product: role.value for product, role in roles.items()}
            for user, roles in found.members.items()
        },
    }


def _tell(context: CommandContext, name: str, outcome: str, sentence: str) -> None:
    if context.json:
        print_json({"name": name, "outcome": outcome})
    else:
        print_text(sentence)
