"""`moldau group`: list, describe and delete consumer groups; reset and delete their committed offsets."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.base.ids import Offset, TopicPartition
from moldau.client.admin.clients import Admin
from moldau.client.admin.errors import AdminError, NoSuchGroup, NothingCommitted
from moldau.client.admin.groups import (
    REBALANCING,
    STATES,
    Group,
    delete_groups,
    describe_groups,
    is_control_group,
    list_groups,
    require_group,
)
from moldau.client.admin.scope import Scope
from moldau.tools.common.app import App
from moldau.tools.common.complete import complete_group
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import CommandError, misused, note
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext, client_command, read_choices
from moldau.tools.common.output import counted, print_json, print_table, print_text
from moldau.tools.common.partitions import read_scope, show_partitions
from moldau.tools.common.remedies import command_error
from moldau.tools.group.reset import GroupName, Topics, reset_offsets

if TYPE_CHECKING:
    from moldau.client.admin.group_lag import Progress

app = App(name="group", help="List, describe and delete consumer groups; reset their offsets.", add_completion=False)

All = Annotated[
    bool, typer.Option("--all", help="Also control groups, in which exactly-once sinks keep their progress.")
]


@client_command(app, "list")
def list_all(
    context: CommandContext,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE,…", help="Only these: Stable, Empty, Rebalancing, …"),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE,…", help="Only groups of this protocol: classic, consumer."),
    ] = None,
    everything: All = False,
) -> None:
    """List the consumer groups, with protocol and state."""
    wanted_states = read_choices(states, "--state", sorted({*STATES.values(), *REBALANCING}))
    wanted_types = read_choices(types, "--type", ["classic", "consumer"])
    if "Rebalancing" in wanted_states:
        wanted_states.update(REBALANCING)
    matching = [
        one
        for one in list_groups(Admin(context.target))
        if (not wanted_states or one.state in wanted_states) and (not wanted_types or one.protocol in wanted_types)
    ]
    found = [one for one in matching if everything or not is_control_group(one.name)]
    hidden = len(matching) - len(found)
    if context.json:
        print_json([{"group": one.name, "protocol": one.protocol, "state": one.state} for one in found])
    elif found:
        print_table(("GROUP", "PROTOCOL", "STATE"), [(one.name, one.protocol, one.state) for one in found])
    if hidden:
        remedy = f"List all with: {suggest('group list --all')}"
        note(f"{counted(hidden, 'control group')} of exactly-once sinks not shown. {remedy}")
    elif found or context.json:
        return
    elif wanted_states or wanted_types:
        note(f"No group matches. List all with: {suggest('group list')}")
    else:
        note(f"No groups yet. Start one with: {suggest('consume TOPIC --group NAME')}")


@client_command(app, "describe")
def describe(
    context: CommandContext,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP", autocompletion=complete_group, help="All when none is named.", show_default=False
        ),
    ] = None,
    everything: All = False,
) -> None:
    """Show state, members, and for each partition how far the group is behind: in records, and in seconds.

    The lag in seconds is the age of the first record that the group has not consumed.
    """
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.group_lag import read_progress

    admin = Admin(context.target)
    wanted = list(dict.fromkeys(names or _group_names(admin, everything)))
    groups = describe_groups(admin, wanted)
    for group in groups:
        if names and not group.exists():
            raise NoSuchGroup(group.name)
    with open_cluster(context.target) as cluster:
        documents = [group_document(group, read_progress(admin, cluster, group)) for group in groups if group.exists()]
    if context.json:
        print_json(documents)
        return
    if not documents:
        note(f"No groups yet. Start one with: {suggest('consume TOPIC --group NAME')}")
    for index, document in enumerate(documents):
        if index:
            print_text("")
        _print_group(document)


def _group_names(admin: Admin, everything: bool) -> list[str]:
    return [one.name for one in list_groups(admin) if everything or not is_control_group(one.name)]


def group_document(group: Group, progress: "list[Progress]") -> dict[str, Any]:
    return {
        "group": group.name,
        "state": group.state,
        "protocol": group.protocol,
        "assignor": group.assignor,
        "coordinator": dict(zip(("id", "host", "port"), group.coordinator, strict=True)),
        "members": [
            {
                "member": member.id,
                "client": member.client,
                "instance": member.instance,
                "host": member.host,
                "partitions": [tp._asdict() for tp in member.partitions],
            }
            for member in group.members
        ],
        "offsets": [
            {
                **one.partition._asdict(),
                "committed": one.committed,
                "end": one.end,
                "lag": one.lag,
                "lag_seconds": one.lag_seconds,
                "owner": one.owner,
            }
            for one in progress
        ],
        "lag": sum(one.lag or 0 for one in progress),
    }


def _print_group(document: dict[str, Any]) -> None:
    facts = [f"{name} {document[name]}" for name in ("state", "protocol", "assignor") if document[name]]
    coordinator = document["coordinator"]
    facts.append(f"coordinator {coordinator['id']} ({coordinator['host']}:{coordinator['port']})")
    print_text("  ".join((f"Group {document['group']}", *facts)))
    if document["members"]:
        rows = [
            (
                member["member"],
                member["client"],
                member["instance"],
                member["host"],
                show_partitions([TopicPartition(**row) for row in member["partitions"]]) or None,
            )
            for member in document["members"]
        ]
        print_table(("MEMBER", "CLIENT", "INSTANCE", "HOST", "PARTITIONS"), rows)
        print_text("")
    columns = ("topic", "partition", "committed", "end", "lag", "lag_seconds", "owner")
    if document["offsets"]:
        rows = [tuple(row[column] for column in columns) for row in document["offsets"]]
        print_table([column.upper().replace("_", " ") for column in columns], rows)
    else:
        print_text("No committed offsets.")


client_command(app, "reset-offsets")(reset_offsets)


@client_command(app, "delete")
def delete(
    context: CommandContext,
    names: Annotated[list[str], typer.Argument(metavar="GROUP…", autocompletion=complete_group, show_default=False)],
    yes: Yes = False,
) -> None:
    """Delete groups with their committed offsets. They must have no members."""
    wanted = list(dict.fromkeys(names))
    if not yes:
        require_yes("deleting groups", f"Delete {', '.join(wanted)} with all committed offsets?")
    outcomes = delete_groups(Admin(context.target), wanted)
    tell_outcomes(context, ("group",), {(name,): refused for name, refused in outcomes.items()})


@client_command(app, "delete-offsets")
def delete_offsets(context: CommandContext, name: GroupName, topics: Topics = None, yes: Yes = False) -> None:
    """Delete a group's committed offsets of topics that it is not subscribed to."""
    if not topics:
        raise misused("no topic was given", remedy="Give --topic NAME, or --topic NAME:0,1 for some partitions")
    scopes = [read_scope(text, "--topic") for text in topics]
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.group_offsets import delete_committed, read_committed

    admin = Admin(context.target)
    require_group(admin, name)
    partitions = committed_partitions(name, scopes, read_committed(admin, name))
    if not yes:
        require_yes("deleting offsets", f"Delete the committed offsets of {name} for {show_partitions(partitions)}?")
    with open_cluster(context.target) as cluster:
        outcomes = delete_committed(cluster, name, partitions)
    tell_outcomes(context, ("topic", "partition"), {tuple(tp): refused for tp, refused in outcomes.items()})


def committed_partitions(
    name: str, scopes: list[Scope], committed: Mapping[TopicPartition, Offset]
) -> list[TopicPartition]:
    """The partitions of the scopes, each with a committed offset."""
    partitions: set[TopicPartition] = set()
    for scope in scopes:
        present = {tp for tp in committed if tp.topic == scope.topic}
        wanted = present if scope.partitions is None else {TopicPartition(scope.topic, one) for one in scope.partitions}
        if not wanted or wanted - present:
            raise NothingCommitted(name, str(min(wanted - present)) if wanted else scope.topic)
        partitions |= wanted
    return sorted(partitions)


def tell_outcomes(
    context: CommandContext, columns: tuple[str, ...], outcomes: Mapping[tuple[Any, ...], AdminError | None]
) -> None:
    """Print the outcome of each deletion; the command fails if one was refused."""
    failures = [command_error(refused) for refused in outcomes.values() if refused is not None]
    rows = [(*key, "deleted" if refused is None else str(command_error(refused))) for key, refused in outcomes.items()]
    if context.json:
        print_json([dict(zip((*columns, "outcome"), row, strict=True)) for row in rows])
    elif not failures:
        print_text(f"Deleted {', '.join('-'.join(map(str, key)) for key in outcomes)}.")
    elif len(rows) > 1:
        print_table([column.upper() for column in (*columns, "outcome")], rows)
    if failures:
        raise failures[0] if len(rows) == 1 else CommandError(f"{len(failures)} of {len(rows)} were not deleted")
