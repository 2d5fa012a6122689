"""`moldau group reset-offsets`: from what was typed to a plan, and with --execute to the group."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.tools.common.complete import complete_group, complete_topic
from moldau.tools.common.failure import CommandError, misused, note
from moldau.tools.common.formats import read_span, read_time
from moldau.tools.common.options import Session
from moldau.tools.common.output import print_json, print_table, print_text, show_time
from moldau.tools.connect import Target, build_admin, describe_topics
from moldau.tools.group_admin import describe_groups, read_committed, read_offsets, still_live, write_committed
from moldau.tools.group_plan import Aim, Facts, Kind, Step, plan_step, read_csv, write_csv
from moldau.tools.places import Place, Scope, read_scope
from moldau.tools.positions import Bounds

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

GroupName = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group, show_default=False)]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:P,…]",
        autocompletion=complete_topic,
        help="A topic, or some of its partitions.",
    ),
]


def reset_offsets(
    session: Session,
    name: GroupName,
    topics: Topics = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Every partition with a committed offset.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", help="To this offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="To the first record from then on: ISO 8601 or ms."),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="TIME", help="So long back from now: P1DT2H30M, or 90s, 15m, 2h, 1d."),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Where it is, or the end where nowhere.")] = False,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="N records on, or back with -N."),
    ] = None,
    from_file: Annotated[
        str | None, typer.Option("--from-file", metavar="FILE", help="To the offsets of a plan, as --export makes it.")
    ] = None,
    export: Annotated[bool, typer.Option("--export", help="Print the plan as CSV: topic,partition,offset.")] = False,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Reset. Without it the plan is only shown.")
    ] = False,
) -> None:
    """Move a group's committed offsets. Shows the plan; --execute carries it out.

    The group must have no members. Offsets outside a partition's log become its nearest end.
    """
    ways = {
        "--to-offset": (to_offset, Kind.OFFSET),
        "--to-datetime": (to_datetime, Kind.TIME),
        "--by-duration": (by_duration, Kind.TIME),
        "--to-earliest": (to_earliest or None, Kind.EARLIEST),
        "--to-latest": (to_latest or None, Kind.LATEST),
        "--to-current": (to_current or None, Kind.CURRENT),
        "--shift-by": (shift_by, Kind.SHIFT),
        "--from-file": (from_file, Kind.FILE),
    }
    aim = read_aim(ways, name)
    scopes = [read_scope(text, "--topic") for text in topics or ()]
    check_scope(aim, scopes, all_topics)
    if export and session.json:
        raise misused("--export prints CSV, and -o json prints JSON", remedy="Leave one of them out")
    admin = build_admin(session.target)
    steps = plan_reset(admin, session.target, name, aim, scopes)
    refused = {}
    if execute:
        refused = write_committed(admin, session.target, name, {step.place: step.new for step in steps})
    _print_reset(session, name, steps, refused, execute, export)
    if refused:
        raise next(iter(refused.values()))


def read_aim(ways: dict[str, tuple[Any, Kind]], group: str) -> Aim:
    """The one way that was chosen; `ways` are those there are, with what was typed for each."""
    chosen = [(option, value, kind) for option, (value, kind) in ways.items() if value is not None]
    if len(chosen) != 1:
        problem = "no way to reset was given" if not chosen else f"{chosen[0][0]} and {chosen[1][0]} exclude each other"
        raise misused(problem, remedy=f"Give one of {', '.join(ways)}")
    ((option, value, kind),) = chosen
    if kind is Kind.FILE:
        return Aim(kind, offsets=read_csv(_read_plan(value), group, value))
    try:
        if option == "--to-datetime":
            return Aim(kind, read_time(value))
        if option == "--by-duration":
            return Aim(kind, max(0, int(time.time() * 1000) - read_span(value)))
    except ValueError as error:
        raise misused(f"{option} {error}") from None
    return Aim(kind, value)


def _read_plan(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise misused(f"cannot read --from-file {name}: {getattr(error, 'strerror', 'not UTF-8 text')}") from error


def check_scope(aim: Aim, scopes: Sequence[Scope], all_topics: bool) -> None:
    if aim.kind is Kind.FILE:
        if scopes or all_topics:
            raise misused("--from-file names its partitions itself", remedy="Leave out --topic and --all-topics")
    elif bool(scopes) == all_topics:
        problem = "--topic and --all-topics exclude each other" if all_topics else "no topic was given"
        raise misused(problem, remedy="Give --topic NAME, --topic NAME:0,1 for some partitions, or --all-topics")


def plan_reset(admin: "AdminClient", target: Target, name: str, aim: Aim, scopes: Sequence[Scope]) -> list[Step]:
    """What becomes of each partition. Refuses for a group that is in use."""
    (group,) = describe_groups(admin, target, [name])
    if group.is_live():
        raise still_live(name, len(group.members), group.state)
    committed = read_committed(admin, target, name)
    if not group.exists() and not committed:
        note(f"There is no group {name} yet; --execute makes one.")
    if aim.kind is Kind.TIME:
        note(f"To the first record from {show_time(aim.number) or f'{aim.number} ms'} on.")
    places = _places(admin, target, aim, scopes, committed)
    begins = read_offsets(admin, target, places, "earliest")
    ends = read_offsets(admin, target, places, "latest")
    at_time = read_offsets(admin, target, places, aim.number) if aim.kind is Kind.TIME else {}
    steps = []
    for place in places:
        begin, end = begins.get(place), ends.get(place)
        if begin is None or end is None:
            raise CommandError(f"there is no partition {place}", remedy="See what is there with: moldau topic describe")
        steps.append(plan_step(aim, place, Facts(Bounds(begin, end), committed.get(place), at_time.get(place))))
    for step in steps:
        if step.warning:
            note(f"Warning: {step.warning}")
    return steps


def _places(
    admin: "AdminClient", target: Target, aim: Aim, scopes: Sequence[Scope], committed: dict[Place, int]
) -> list[Place]:
    if aim.kind is Kind.FILE:
        return sorted(aim.offsets)
    if not scopes:
        if not committed:
            raise CommandError("the group has committed nothing, so --all-topics means nothing", remedy="Use --topic")
        return sorted(committed)
    return sorted({place for scope in scopes for place in topic_places(admin, target, scope)})


def topic_places(admin: "AdminClient", target: Target, scope: Scope) -> list[Place]:
    """The partitions that a scope means, all of which exist."""
    (topic,) = describe_topics(admin, target, [scope.topic])
    present = sorted(partition.id for partition in topic.partitions)
    for partition in scope.partitions or ():
        if partition not in present:
            raise CommandError(
                f"topic {scope.topic!r} has no partition {partition}: it has {len(present)}",
                remedy=f"See them with: moldau topic describe {scope.topic}",
            )
    return [Place(scope.topic, partition) for partition in scope.partitions or present]


def _print_reset(
    session: Session,
    name: str,
    steps: list[Step],
    refused: dict[Place, CommandError],
    execute: bool,
    export: bool,
) -> None:
    if session.json:
        rows = [
            {
                **step.place._asdict(),
                "committed": step.committed,
                "new": step.new,
                "outcome": str(refused[step.place]) if step.place in refused else "reset" if execute else "planned",
            }
            for step in steps
        ]
        print_json({"group": name, "executed": execute, "offsets": rows})
        return
    if export:
        print_text(write_csv(steps).rstrip("\n"))
    else:
        columns = ("TOPIC", "PARTITION", "COMMITTED", "NEW OFFSET")
        print_table(columns, [(*step.place, step.committed, step.new) for step in steps if step.place not in refused])
    if not execute:
        note(f"A dry run: group {name} was not changed. Add --execute to reset it.")
    elif len(refused) < len(steps):
        note(f"Reset {len(steps) - len(refused)} partitions of group {name}.")
