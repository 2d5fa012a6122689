"""`moldau group reset-offsets`: show the plan of a reset, and with --execute carry it out."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.base.ids import TopicPartition
from moldau.base.times import read_span, read_time
from moldau.client.admin.clients import Admin
from moldau.client.admin.errors import AdminError
from moldau.client.admin.scope import Scope
from moldau.tools.common.complete import complete_group, complete_topic
from moldau.tools.common.failure import misused, note
from moldau.tools.common.options import CommandContext
from moldau.tools.common.output import print_json, print_table, print_text, show_time
from moldau.tools.common.partitions import read_scope
from moldau.tools.common.remedies import command_error

if TYPE_CHECKING:  # at run time where they are used: they load all messages of the protocol
    from moldau.client.admin.reset import Kind, ResetPlan, ResetTo

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
    context: CommandContext,
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
        typer.Option("--by-duration", metavar="TIME", help="Back from now: P1DT2H30M, or 90s, 15m, 2h, 1d."),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="The committed offset, or the end without one.")
    ] = False,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="N records on, or back with -N."),
    ] = None,
    from_file: Annotated[
        str | None, typer.Option("--from-file", metavar="FILE", help="To the offsets of a plan by --export.")
    ] = None,
    export: Annotated[bool, typer.Option("--export", help="Print the plan as CSV: topic,partition,offset.")] = False,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Reset. Without it the plan is only shown.")
    ] = False,
) -> None:
    """Move a group's committed offsets. Shows the plan; --execute carries it out.

    The group must have no members. Offsets outside a partition's log become its nearest end.
    """
    from moldau.client.admin.reset import Kind

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
    to = read_target(ways, name)
    scopes = [read_scope(text, "--topic") for text in topics or ()]
    check_scope(to, scopes, all_topics)
    if export and context.json:
        raise misused("--export prints CSV, and -o json prints JSON", remedy="Leave one of them out")
    _plan_and_reset(context, name, to, scopes, execute=execute, export=export)


def _plan_and_reset(
    context: CommandContext, name: str, to: "ResetTo", scopes: list[Scope], *, execute: bool, export: bool
) -> None:
    from moldau.client.admin.group_offsets import write_committed
    from moldau.client.admin.reset import plan_reset

    admin = Admin(context.target)
    plan = plan_reset(admin, name, to, scopes)
    _tell_plan(plan, to)
    refused = {}
    if execute:
        refused = write_committed(admin, name, {step.partition: step.new for step in plan.steps})
    _print_reset(context, plan, refused, execute, export)
    if refused:
        raise next(iter(refused.values()))


def read_target(ways: "dict[str, tuple[Any, Kind]]", group: str) -> "ResetTo":
    """The one target that was given; `ways` are all options with their values."""
    from moldau.client.admin.reset import Kind, ResetTo, read_csv

    chosen = [(option, value, kind) for option, (value, kind) in ways.items() if value is not None]
    if len(chosen) != 1:
        problem = "no target was given" if not chosen else f"{chosen[0][0]} and {chosen[1][0]} exclude each other"
        raise misused(problem, remedy=f"Give one of {', '.join(ways)}")
    ((option, value, kind),) = chosen
    if kind is Kind.FILE:
        return ResetTo(kind, offsets=read_csv(_read_plan(value), group, value))
    try:
        if option == "--to-datetime":
            return ResetTo(kind, read_time(value))
        if option == "--by-duration":
            return ResetTo(kind, max(0, int(time.time() * 1000) - read_span(value)))
    except ValueError as error:
        raise misused(f"{option} {error}") from None
    return ResetTo(kind, value)


def _read_plan(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise misused(f"cannot read --from-file {name}: {getattr(error, 'strerror', 'not UTF-8 text')}") from error


def check_scope(to: "ResetTo", scopes: Sequence[Scope], all_topics: bool) -> None:
    if to.offsets:
        if scopes or all_topics:
            raise misused("--from-file names its partitions itself", remedy="Leave out --topic and --all-topics")
    elif bool(scopes) == all_topics:
        problem = "--topic and --all-topics exclude each other" if all_topics else "no topic was given"
        raise misused(problem, remedy="Give --topic NAME, --topic NAME:0,1 for some partitions, or --all-topics")


def _tell_plan(plan: "ResetPlan", to: "ResetTo") -> None:
    from moldau.client.admin.reset import Kind

    if not plan.exists:
        note(f"There is no group {plan.group} yet; --execute creates it.")
    if to.kind is Kind.TIME:
        note(f"To the first record from {show_time(to.number) or f'{to.number} ms'} on.")
    for step in plan.steps:
        if step.warning:
            note(f"Warning: {step.warning}")


def _print_reset(
    context: CommandContext,
    plan: "ResetPlan",
    refused: Mapping[TopicPartition, AdminError],
    execute: bool,
    export: bool,
) -> None:
    if context.json:
        rows = [
            {
                **step.partition._asdict(),
                "committed": step.committed,
                "new": step.new,
                "outcome": _outcome(refused.get(step.partition), execute),
            }
            for step in plan.steps
        ]
        print_json({"group": plan.group, "executed": execute, "offsets": rows})
        return
    if export:
        from moldau.client.admin.reset import write_csv

        print_text(write_csv(plan.steps).rstrip("\n"))
    else:
        columns = ("TOPIC", "PARTITION", "COMMITTED", "NEW OFFSET")
        done = [step for step in plan.steps if step.partition not in refused]
        print_table(columns, [(*step.partition, step.committed, step.new) for step in done])
    if not execute:
        note(f"Dry run: group {plan.group} was not changed. Add --execute to reset it.")
    elif len(refused) < len(plan.steps):
        count = len(plan.steps) - len(refused)
        note(f"Reset {count} partition{'' if count == 1 else 's'} of group {plan.group}.")


def _outcome(refused: AdminError | None, execute: bool) -> str:
    if refused is not None:
        return str(command_error(refused))
    return "reset" if execute else "planned"
