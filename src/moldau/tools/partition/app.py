"""`moldau partition`: reassign partitions, change their replication factor, elect leaders."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.base.ids import TopicPartition
from moldau.client.admin.scope import HIGHEST_PARTITION, Scope, is_number
from moldau.tools.common.app import App
from moldau.tools.common.complete import complete_topic
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import CommandError, misused, note
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.common.partitions import read_scope
from moldau.tools.partition.moves import (
    NoWait,
    PlanOnly,
    Run,
    Throttle,
    carry_out,
    check_choice,
    read_plan_file,
    read_throttle,
    show_plan,
)

if TYPE_CHECKING:
    from moldau.client.admin.assignment import Replicas
    from moldau.client.admin.cluster import Cluster
    from moldau.client.admin.errors import AdminError
    from moldau.client.admin.layout import Layout

app = App(name="partition", help="Reassign partitions, change their replication, elect leaders.", add_completion=False)

INTERNAL_FACTOR = 3  # of the brokers' own topics, where there are as many brokers

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        autocompletion=complete_topic,
        help="Only this topic, or orders:0,1 of it; several times for several.",
        show_default="all",
    ),
]


@client_command(app, "reassign")
def reassign(
    context: CommandContext,
    plan: PlanOnly = False,
    run: Run = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel: return to the previous replicas.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List ongoing reassignments.")] = False,
    topics: Topics = None,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="ID,…", help="Brokers for the replicas.", show_default="all brokers"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A plan in the form of kafka-reassign-partitions.")
    ] = None,
    throttle: Throttle = None,
    no_wait: NoWait = False,
) -> None:
    """Spread partitions evenly over brokers, with as few moves as possible; or follow a plan from a file."""
    check_choice({"--plan": plan, "--run": run, "--cancel": cancel, "--list": list_})
    if not run and (throttle is not None or no_wait):
        raise misused("--throttle and --no-wait need --run", remedy="Add --run")
    if (list_ and file is not None) or ((list_ or cancel) and brokers is not None):
        raise misused("--file and --brokers are for plans", remedy="Leave them out; --topic says which partitions")
    scopes = [read_scope(text, "--topic") for text in topics or ()]
    rate = read_throttle(throttle)
    allowed = None if brokers is None else _read_ids(brokers)
    if file is not None and (scopes or allowed):
        raise misused("--file names the partitions and brokers itself", remedy="Leave out --topic and --brokers")
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.layout import check_plan, plan_spread, read_layout, with_cordoned

    given = None if file is None else read_plan_file(file)
    with open_cluster(context.target) as cluster:
        layout = read_layout(cluster)
        if list_:
            _show_ongoing(context, layout, layout.find(scopes))
        elif cancel:
            _cancel(context, cluster, layout, layout.find(scopes) if given is None else set(given))
        else:
            layout = with_cordoned(cluster, layout)
            found = layout.find(scopes)
            planned = plan_spread(layout, found, allowed) if given is None else check_plan(layout, given)
            same = _same_command(topics or (), brokers, file)
            _show_or_run(context, cluster, layout, planned, rate, run=run, wait=not no_wait, command=same)


@client_command(app, "replicate")
def replicate(
    context: CommandContext,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)
    ] = None,
    factor: Annotated[
        int | None, typer.Option("--factor", "-r", metavar="N", min=1, help="Replicas of each partition.")
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Internal topics, to three replicas if there are as many brokers.")
    ] = False,
    plan: PlanOnly = False,
    throttle: Throttle = None,
    no_wait: NoWait = False,
) -> None:
    """Change the replication factor of topics."""
    if not names and not internal:
        raise misused("no topic was given", remedy="Name topics, or give --internal for the internal ones")
    if names and internal:
        raise misused("topics and --internal cannot be combined", remedy="Leave out one of them")
    if factor is None and not internal:
        raise misused("--factor is missing", remedy="Give the number of replicas, such as --factor 3")
    rate = read_throttle(throttle)
    from moldau.client.admin.assignment import plan_replication
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.layout import read_layout, with_cordoned

    with open_cluster(context.target) as cluster:
        layout = with_cordoned(cluster, read_layout(cluster))
        scopes = [Scope(name) for name in (names or sorted(layout.internal))]
        found = layout.find(scopes) if scopes else set()
        wanted = factor or min(INTERNAL_FACTOR, len(layout.racks))
        planned = plan_replication(layout.racks, layout.targets(), found, wanted)
        again = f"replicate {'--internal' if internal else ' '.join(names or ())} --factor {wanted}"
        _show_or_run(context, cluster, layout, planned, rate, run=not plan, wait=not no_wait, command=again)


@client_command(app, "elect")
def elect(
    context: CommandContext,
    topics: Topics = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Elect any replica where no in-sync one is left: records may be lost."),
    ] = False,
    yes: Yes = False,
) -> None:
    """Elect preferred leaders; or with --unclean any replica where no in-sync one is left."""
    scopes = [read_scope(text, "--topic") for text in topics or ()]
    if unclean and not yes:
        require_yes("an unclean election", "Let replicas lead that may lack committed records?")
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.layout import read_layout
    from moldau.client.admin.reassignments import elect_leaders

    with open_cluster(context.target) as cluster:
        layout = read_layout(cluster)
        found = sorted(layout.find(scopes))
        wanted = [tp for tp in found if not unclean or layout.partitions[tp].leader_id < 0]
        results = elect_leaders(cluster, wanted, unclean=unclean)
    _show_elections(context, results)


def _show_elections(context: CommandContext, results: "dict[TopicPartition, AdminError | None]") -> None:
    """None: elected now."""
    rows = [
        (tp.topic, tp.partition, "elected" if error is None else str(error)) for tp, error in sorted(results.items())
    ]
    if context.json:
        print_json([dict(zip(("topic", "partition", "outcome"), row, strict=True)) for row in rows])
    elif rows:
        print_table(("TOPIC", "PARTITION", "OUTCOME"), rows)
    else:
        print_text("No partition needs an election.")
    failed = sum(error is not None for error in results.values())
    if failed:
        raise CommandError(f"no leader could be elected for {failed} of {len(rows)} partitions")


def _show_or_run(
    context: CommandContext,
    cluster: "Cluster",
    layout: "Layout",
    planned: "dict[TopicPartition, Replicas]",
    rate: int | None,
    *,
    run: bool,
    wait: bool,
    command: str,
) -> None:
    show_plan(context, layout, planned)
    if run:
        carry_out(cluster, layout, planned, rate, wait=wait, again=f"partition {command}")
        if wait and (planned or layout.ongoing):
            note("Done.")


def _cancel(context: CommandContext, cluster: "Cluster", layout: "Layout", partitions: set[TopicPartition]) -> None:
    from moldau.client.admin import reassignments

    cancelled = reassignments.cancel(cluster, layout, partitions)
    if context.json:
        print_json([{"topic": tp.topic, "partition": tp.partition} for tp in cancelled])
    elif cancelled:
        print_text(f"Cancelled {len(cancelled)} reassignment{'' if len(cancelled) == 1 else 's'}.")
    else:
        print_text("No partition is being reassigned; there was nothing to cancel.")


def _show_ongoing(context: CommandContext, layout: "Layout", partitions: set[TopicPartition]) -> None:
    rows = [
        (tp.topic, tp.partition, layout.target(tp), each.adding_replicas, each.removing_replicas)
        for tp, each in sorted(layout.ongoing.items())
        if tp in partitions
    ]
    columns = ("topic", "partition", "replicas", "adding", "removing")
    if context.json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table([column.upper() for column in columns], rows)
    else:
        print_text("No partition is being reassigned.")


def _same_command(topics: Sequence[str], brokers: str | None, file: Path | None) -> str:
    """The same command without --throttle: another one might move other partitions."""
    words = ["reassign", "--run", *(word for topic in topics for word in ("--topic", topic))]
    words += [] if brokers is None else ["--brokers", brokers]
    words += [] if file is None else ["--file", str(file)]
    return shlex.join(words)


def _read_ids(text: str) -> list[int]:
    ids = [part.strip() for part in text.split(",")]
    if not all(is_number(each, HIGHEST_PARTITION) for each in ids):
        raise misused(f"--brokers {text!r} is not a list of broker ids", remedy="For example: --brokers 1,2,3")
    if len(set(map(int, ids))) < len(ids):
        raise misused(f"--brokers {text!r} names a broker twice")
    return sorted(map(int, ids))
