"""`moldau group`: list, describe and delete consumer groups, and change what they have committed."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from moldau.tools.common.complete import complete_group
from moldau.tools.common.confirm import require_yes
from moldau.tools.common.failure import CommandError, misused, note
from moldau.tools.common.options import Session, client_command, read_choices
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.connect import REQUEST_TIMEOUT_S, build_admin
from moldau.tools.group.reset import GroupName, Topics, reset_offsets
from moldau.tools.group_admin import (
    REBALANCING,
    STATES,
    Group,
    Progress,
    await_group,
    build_age_reader,
    describe_groups,
    list_groups,
    no_such_group,
    read_committed,
    read_progress,
    require_group,
)
from moldau.tools.places import Place, Scope, read_scope, show_places

app = typer.Typer(
    name="group", help="List, describe and delete consumer groups; reset their offsets.", add_completion=False
)

NO_GROUPS = "No groups yet. Start one with: moldau consume TOPIC --group NAME"

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@client_command(app, "list")
def list_all(
    session: Session,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE,…", help="Only these: Stable, Empty, Rebalancing, …"),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE,…", help="Only groups of this protocol: classic, consumer."),
    ] = None,
) -> None:
    """List the consumer groups, with protocol and state."""
    wanted_states = read_choices(states, "--state", sorted({*STATES.values(), *REBALANCING}))
    wanted_types = read_choices(types, "--type", ["classic", "consumer"])
    if "Rebalancing" in wanted_states:
        wanted_states.update(REBALANCING)
    found = [
        one
        for one in list_groups(build_admin(session.target), session.target)
        if (not wanted_states or one.state in wanted_states) and (not wanted_types or one.protocol in wanted_types)
    ]
    if session.json:
        print_json([{"group": one.name, "protocol": one.protocol, "state": one.state} for one in found])
    elif found:
        print_table(("GROUP", "PROTOCOL", "STATE"), [(one.name, one.protocol, one.state) for one in found])
    elif wanted_states or wanted_types:
        note("No group is like that. See all with: moldau group list")
    else:
        note(NO_GROUPS)


@client_command(app, "describe")
def describe(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GROUP]…", autocompletion=complete_group, help="All when none is named.", show_default=False
        ),
    ] = None,
) -> None:
    """Show state, members, and for each partition how far the group is behind: in records, and in seconds.

    The lag in seconds is the age of the first record that the group has not consumed.
    """
    admin = build_admin(session.target)
    wanted = list(dict.fromkeys(names or [one.name for one in list_groups(admin, session.target)]))
    groups = describe_groups(admin, session.target, wanted)
    for group in groups:
        if names and not group.exists():
            raise no_such_group(group.name)
    consumer = build_age_reader(session.target)
    try:
        documents = [
            group_document(group, read_progress(admin, consumer, session.target, group))
            for group in groups
            if group.exists()
        ]
    finally:
        consumer.close()
    if session.json:
        print_json(documents)
        return
    if not documents:
        note(NO_GROUPS)
    for index, document in enumerate(documents):
        if index:
            print_text("")
        _print_group(document)


def group_document(group: Group, progress: list[Progress]) -> dict[str, Any]:
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
                "partitions": [place._asdict() for place in member.places],
            }
            for member in group.members
        ],
        "offsets": [
            {
                **one.place._asdict(),
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
                show_places([Place(**place) for place in member["partitions"]]) or None,
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
        print_text("It has committed nothing.")


client_command(app, "reset-offsets")(reset_offsets)


@client_command(app, "delete")
def delete(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="GROUP…", autocompletion=complete_group, show_default=False)],
    yes: Yes = False,
) -> None:
    """Delete groups with all that they have committed. They must have no members."""
    wanted = list(dict.fromkeys(names))
    if not yes:
        require_yes("deleting groups", f"Delete {', '.join(wanted)} with all committed offsets?")
    admin = build_admin(session.target)
    outcomes: dict[tuple[str], CommandError | None] = {}
    for name, future in admin.delete_consumer_groups(wanted, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            await_group(future, session.target, name)
            outcomes[name,] = None
        except CommandError as refused:
            outcomes[name,] = refused
    tell_outcomes(session, ("group",), outcomes)


@client_command(app, "delete-offsets")
def delete_offsets(session: Session, name: GroupName, topics: Topics = None, yes: Yes = False) -> None:
    """Make a group forget what it has committed for some topics, which it must not be subscribed to."""
    if not topics:
        raise misused("no topic was given", remedy="Give --topic NAME, or --topic NAME:0,1 for some partitions")
    scopes = [read_scope(text, "--topic") for text in topics]
    admin = build_admin(session.target)
    require_group(admin, session.target, name)
    places = committed_places(name, scopes, read_committed(admin, session.target, name))
    if not yes:
        require_yes("deleting offsets", f"Delete what {name} has committed for {show_places(places)}?")
    from moldau.tools.group_forget import forget_offsets  # here, because it loads the wire layer

    outcomes = forget_offsets(session.target, name, places)
    tell_outcomes(session, ("topic", "partition"), outcomes)


def committed_places(name: str, scopes: list[Scope], committed: Mapping[Place, int]) -> list[Place]:
    """The partitions that the scopes mean, for all of which the group has committed something."""
    places: set[Place] = set()
    for scope in scopes:
        present = {place for place in committed if place.topic == scope.topic}
        wanted = present if scope.partitions is None else {Place(scope.topic, one) for one in scope.partitions}
        if not wanted or wanted - present:
            missing = str(min(wanted - present)) if wanted else scope.topic
            raise CommandError(
                f"group {name!r} has committed nothing for {missing}",
                remedy=f"See what it has with: moldau group describe {name}",
            )
        places |= wanted
    return sorted(places)


def tell_outcomes(
    session: Session, columns: tuple[str, ...], outcomes: Mapping[tuple[Any, ...], CommandError | None]
) -> None:
    """What was deleted and what was not, each with the reason; what was not is the command's failure."""
    failures = [refused for refused in outcomes.values() if refused is not None]
    rows = [(*key, "deleted" if refused is None else str(refused)) for key, refused in outcomes.items()]
    if session.json:
        print_json([dict(zip((*columns, "outcome"), row, strict=True)) for row in rows])
    elif not failures:
        print_text(f"Deleted {', '.join('-'.join(map(str, key)) for key in outcomes)}.")
    elif len(rows) > 1:
        print_table([column.upper() for column in (*columns, "outcome")], rows)
    if failures:
        raise failures[0] if len(rows) == 1 else CommandError(f"{len(failures)} of {len(rows)} were not deleted")
