"""`moldau product`: create, list, alter and delete the products of organisations."""

from typing import Annotated

import typer

from moldau.security.organisations import Limits, plain_limits
from moldau.tools.common.app import App
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import misused, note
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext, DryRun, client_command
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.org.limits import (
    BytesMax,
    PartitionsMax,
    QuotaIn,
    QuotaOut,
    RetentionMax,
    limit_texts,
    read_limits,
    show_limits,
)

app = App(name="product", help="Create, list, alter and delete products: what an organisation's topics belong to.")

Name = Annotated[str, typer.Argument(metavar="ORGANISATION/PRODUCT", show_default=False)]


@client_command(app, "create")
def create(
    context: CommandContext,
    name: Name,
    quota_in: QuotaIn = None,
    quota_out: QuotaOut = None,
    retention_max: RetentionMax = None,
    partitions_max: PartitionsMax = None,
    bytes_max: BytesMax = None,
) -> None:
    """Create a product. Its topics begin with its name and a dot."""
    texts = limit_texts(quota_in, quota_out, retention_max, partitions_max, bytes_max)
    limits = _put(context, name, texts, new=True, dry_run=False)
    product = name.partition("/")[2]
    if context.json:
        print_json({"product": name, "outcome": "created", "limits": plain_limits(limits)})
    else:
        print_text(f"Created product {name}. Users of the organisation call its topics {product}.NAME.")


@client_command(app, "alter")
def alter(
    context: CommandContext,
    name: Name,
    quota_in: QuotaIn = None,
    quota_out: QuotaOut = None,
    retention_max: RetentionMax = None,
    partitions_max: PartitionsMax = None,
    bytes_max: BytesMax = None,
    dry_run: DryRun = False,
) -> None:
    """Change limits of a product; `none` removes one."""
    texts = limit_texts(quota_in, quota_out, retention_max, partitions_max, bytes_max)
    if not any(texts.values()):
        raise misused("no limit was given", remedy="Add one such as --partitions-max 200")
    limits = _put(context, name, texts, new=False, dry_run=dry_run)
    done = "Valid" if dry_run else "Changed"
    if context.json:
        print_json({"product": name, "outcome": done.lower(), "limits": plain_limits(limits)})
    else:
        print_text(f"{done}: limits of product {name}: {show_limits(limits)}")


@client_command(app, "list")
def list_all(
    context: CommandContext,
    organisation: Annotated[
        str | None, typer.Argument(metavar="ORGANISATION", help="All if none is named.", show_default=False)
    ] = None,
) -> None:
    """List the products of one organisation, or of all."""
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster

    with open_cluster(context.target) as cluster:
        found = (
            organisations.list_organisations(cluster)
            if organisation is None
            else [organisations.organisation(cluster, organisation)]
        )
    rows = [(f"{each.name}/{product}", limits) for each in found for product, limits in each.products.items()]
    if context.json:
        print_json([{"product": name, "limits": plain_limits(limits)} for name, limits in rows])
    elif rows:
        print_table(("PRODUCT", "LIMITS"), [(name, show_limits(limits)) for name, limits in rows])
    else:
        note(f"There are no products yet. Create one with: {suggest('product create ORGANISATION/PRODUCT')}")


@client_command(app, "delete")
def delete(context: CommandContext, name: Name, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a product that has no topics any more, and the roles in it."""
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster

    organisation, product = organisations.split_name(name, "PRODUCT")
    if not dry_run and not yes:
        require_yes("product delete", f"Delete product {name}?")
    with open_cluster(context.target) as cluster:
        organisations.change(cluster, organisation, organisations.without_product(product), validate_only=dry_run)
    done = "Would delete" if dry_run else "Deleted"
    if context.json:
        print_json({"product": name, "outcome": done.lower()})
    else:
        print_text(f"{done} product {name}.")


def _put(context: CommandContext, name: str, texts: dict[str, str | None], *, new: bool, dry_run: bool) -> Limits:
    from moldau.client.admin import organisations
    from moldau.client.admin.cluster import open_cluster
    from moldau.security.organisations import Organisation

    organisation, product = organisations.split_name(name, "PRODUCT")

    def changed(before: Organisation) -> Organisation:
        limits = read_limits(before.products.get(product, Limits()), texts)
        return organisations.with_product(product, limits, new=new)(before)

    with open_cluster(context.target) as cluster:
        return organisations.change(cluster, organisation, changed, validate_only=dry_run).products[product]
