"""`moldau quota`: list, describe, set and delete quotas of users, client ids and addresses."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.tools.common.app import App
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import misused, note, split_pair
from moldau.tools.common.formats import read_size
from moldau.tools.common.options import CommandContext, DryRun, client_command
from moldau.tools.common.output import print_json, print_table, print_text

if TYPE_CHECKING:  # at run time where they are used: they load all messages of the protocol
    from moldau.client.admin.quotas import Entity

app = App(name="quota", help="List, describe, set and delete quotas of users, client ids and addresses.")

OF_ADDRESSES = "connection_creation_rate"
BYTES = ("producer_byte_rate", "consumer_byte_rate")  # take sizes
UNITS = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "%",
    "controller_mutation_rate": "partitions/s",
    OF_ADDRESSES: "connections/s",
}

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")]
UserDefault = Annotated[bool, typer.Option("--user-default", help="Of every user without one.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="Of this client id.")]
ClientDefault = Annotated[bool, typer.Option("--client-default", help="Of every client id without one.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Of this address.")]
IpDefault = Annotated[bool, typer.Option("--ip-default", help="Of every address without one.")]


@client_command(app, "list")
def list_all(context: CommandContext) -> None:
    """List all quotas that are set."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.quotas import list_quotas

    with open_cluster(context.target) as cluster:
        found = list_quotas(cluster)
    if context.json:
        print_json([{"entity": dict(each.entity), "quotas": dict(each.values)} for each in found])
    elif found:
        rows = [(each.name, key, show(value), unit_of(key)) for each in found for key, value in each.values.items()]
        print_table(("ENTITY", "QUOTA", "VALUE", "UNIT"), rows)
    else:
        note("No quotas are set.")


@client_command(app, "describe")
def describe(context: CommandContext, user: User = None, client_id: ClientId = None, ip: Ip = None) -> None:
    """Show the quotas that hold for a client, and where each is set: the most specific one counts."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.quotas import name_of, quotas_for

    named = {"user": user, "client-id": client_id, "ip": ip}
    client = {kind: name for kind, name in named.items() if name is not None}
    if not client or ("ip" in client and len(client) > 1):
        raise misused("name a user, a client id or both, or an address", remedy="Add --user, --client-id or --ip")
    with open_cluster(context.target) as cluster:
        found = quotas_for(cluster, client)
    if context.json:
        print_json({key: {"value": value, "set_for": dict(entity)} for key, (value, entity) in sorted(found.items())})
    elif found:
        rows = [(key, show(value), unit_of(key), name_of(entity)) for key, (value, entity) in sorted(found.items())]
        print_table(("QUOTA", "VALUE", "UNIT", "SET FOR"), rows)
    else:
        note("No quota holds for this client.")


@client_command(app, "set")
def set_(
    context: CommandContext,
    quotas: Annotated[
        list[str],
        typer.Argument(metavar="QUOTA=VALUE", help="Such as producer_byte_rate=10MB/s.", show_default=False),
    ],
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_default: ClientDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    dry_run: DryRun = False,
) -> None:
    """Set quotas: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate of users and
    client ids; connection_creation_rate of addresses.
    """
    entity = read_entity((user, user_default), (client_id, client_default), (ip, ip_default))
    values = dict(read_quota(text) for text in quotas)
    check_kinds(entity, values)
    _alter(context, entity, values, dry_run=dry_run)
    done = "valid" if dry_run else "set"
    if context.json:
        print_json({"entity": dict(entity), "quotas": values, "outcome": done})
        return
    for key, value in values.items():
        print_text(f"{'Valid' if dry_run else 'Set'}: {key} of {_name(entity)}: {show(value)} {unit_of(key)}".rstrip())


@client_command(app, "delete")
def delete(
    context: CommandContext,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="QUOTA", help="Only these.", show_default="all of the entity")
    ] = None,
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_default: ClientDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete quotas of an entity: then a less specific one holds, or none."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.quotas import list_quotas

    entity = read_entity((user, user_default), (client_id, client_default), (ip, ip_default))
    with open_cluster(context.target) as cluster:
        present = {key: value for each in list_quotas(cluster, entity) for key, value in each.values.items()}
    missing = [key for key in keys or () if key not in present]
    if missing:
        raise misused(
            f"{_name(entity)} has no quota {', '.join(missing)}", remedy=f"It has {', '.join(present) or 'none'}"
        )
    doomed = [key for key in present if not keys or key in keys]
    if doomed and not yes and not dry_run:
        require_yes("deleting quotas", f"Delete {', '.join(doomed)} of {_name(entity)}?")
    if doomed:
        _alter(context, entity, dict.fromkeys(doomed), dry_run=dry_run)
    if context.json:
        print_json({"entity": dict(entity), "quotas": doomed, "outcome": "would delete" if dry_run else "deleted"})
    elif doomed:
        print_text(f"{'Would delete' if dry_run else 'Deleted'} {', '.join(doomed)} of {_name(entity)}.")
    else:
        note(f"{_name(entity)} has no quotas.")


def _alter(context: CommandContext, entity: "Entity", changes: Mapping[str, float | None], *, dry_run: bool) -> None:
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.quotas import alter_quotas

    with open_cluster(context.target) as cluster:
        alter_quotas(cluster, entity, changes, validate_only=dry_run)


def _name(entity: "Entity") -> str:
    from moldau.client.admin.quotas import name_of

    return name_of(entity)


def read_entity(
    user: tuple[str | None, bool], client_id: tuple[str | None, bool], ip: tuple[str | None, bool]
) -> "Entity":
    """The entity that the options name."""
    from moldau.client.admin.quotas import entity_of

    for option, (name, default) in (("--user", user), ("--client-id", client_id), ("--ip", ip)):
        if name is not None and default:
            raise misused(f"{option} names one, and its default means all others: choose one of them")
        if name == "":
            raise misused(f"{option} is empty", remedy="Give a name, or the option for its default")
    entity = entity_of((("user", *user), ("client-id", *client_id), ("ip", *ip)))
    if not entity:
        raise misused("no entity was given", remedy="Add --user, --client-id or --ip, or one of their defaults")
    if "ip" in entity and len(entity) > 1:
        raise misused("an address cannot be combined with a user or a client id")
    return entity


def check_kinds(entity: "Entity", quotas: Iterable[str]) -> None:
    """Addresses have a quota of their own, and no others."""
    for key in quotas:
        if (key == OF_ADDRESSES) != ("ip" in entity):
            of, option = ("addresses", "--ip") if key == OF_ADDRESSES else ("users and client ids", "--user")
            raise misused(f"{key} is a quota of {of}, not of {_name(entity)}", remedy=f"Give {option}")


def read_quota(text: str) -> tuple[str, float]:
    """`producer_byte_rate=10MB/s`, `request_percentage=50%`, or a plain number."""
    key, value = split_pair(text, "QUOTA")
    if key not in UNITS:
        raise misused(f"there is no quota {key!r}", remedy=f"One of {', '.join(UNITS)}")
    number = value.strip().removesuffix("/s").removesuffix("%")
    try:
        return key, float(read_size(number)) if key in BYTES else float(number)
    except ValueError:
        example = "10MB/s" if key in BYTES else "50"
        raise misused(f"{key}={value} is not a number such as {example}") from None


def show(value: float) -> str:
    return f"{int(value):,}" if value.is_integer() else f"{value:g}"


def unit_of(key: str) -> str:
    return UNITS.get(key, "")
