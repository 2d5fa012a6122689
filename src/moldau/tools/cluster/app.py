"""`moldau cluster`: run a cluster on this machine; describe, check and shrink any cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.tools.common.app import App
from moldau.tools.common.failure import FAILED, CommandError, misused, note
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import counted, print_json, print_table, print_text
from moldau.tools.common.partitions import show_partitions
from moldau.tools.partition.moves import (
    NoWait,
    PlanOnly,
    Run,
    Throttle,
    carry_out,
    check_choice,
    read_throttle,
    show_plan,
)

if TYPE_CHECKING:
    from moldau.base.ids import TopicPartition
    from moldau.client.admin.health import Health
    from moldau.client.admin.layout import Layout

app = App(name="cluster", help="Run, describe and check clusters; remove brokers.")

Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The cluster's directory.", show_default="./cluster")
]
RESTART_S = 150.0  # a broker may take a minute to stop, and another one to start
UP_PORT = 9092
UP_BROKERS = 3
ZOOKEEPER_PORT = 2181
SHOWN_PARTITIONS = 20  # partitions of one kind that `health` names; their number is always printed


@app.command("up")
def up(
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", metavar="N", min=1, help="How many.", show_default=f"{UP_BROKERS}, or as before"),
    ] = None,
    directory: Directory = Path("cluster"),
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Of the first broker; the others follow.")
    ] = UP_PORT,
    zookeeper_nodes: Annotated[
        int, typer.Option("--zookeeper-nodes", metavar="N", min=1, max=7, help="ZooKeeper servers: 1, 3, 5 or 7.")
    ] = 1,
    zookeeper_port: Annotated[
        int, typer.Option("--zookeeper-port", metavar="PORT", min=1, max=65535, help="Of the first one.")
    ] = ZOOKEEPER_PORT,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of every broker.")
    ] = None,
) -> None:
    """Run a cluster on this machine: ZooKeeper and brokers, in the foreground. Ctrl-C stops all in order."""
    from moldau.tools.cluster.up import UpOptions, run

    options = UpOptions(directory, brokers, port, zookeeper_nodes, zookeeper_port, tuple(settings or ()))
    raise typer.Exit(run(options))


@app.command("restart")
def restart(
    broker: Annotated[int, typer.Argument(metavar="ID", min=1, help="The broker to restart.", show_default=False)],
    directory: Directory = Path("cluster"),
) -> None:
    """Start a broker of `moldau cluster up` again: one that has ended, or one that runs, which is stopped first."""
    from moldau.tools.cluster import control

    found = control.restart(directory, broker, RESTART_S)
    print_text(f"Broker {broker} is running (process {found.pid}).")


@client_command(app, "describe")
def describe(context: CommandContext) -> None:
    """Show the brokers, and how many replicas and leaders each has."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.layout import read_layout, with_cordoned

    with open_cluster(context.target) as cluster:
        layout = with_cordoned(cluster, read_layout(cluster))
    rows = _broker_rows(layout)
    if context.json:
        print_json({"cluster_id": layout.cluster_id, "controller": layout.controller, "brokers": rows})
        return
    counts = f"{counted(len(layout.topics), 'topic')}, {counted(len(layout.partitions), 'partition')}"
    print_text(f"Cluster {layout.cluster_id}: {counts}")
    columns = ("id", "address", "rack", "controller", "cordoned", "leads", "replicas", "in_sync")
    cells = [
        ["yes" if row[each] is True else "" if row[each] is False else row[each] for each in columns] for row in rows
    ]
    print_table([column.replace("_", " ").upper() for column in columns], cells)
    if layout.ongoing:
        count = counted(len(layout.ongoing), "ongoing reassignment")
        print_text(f"{count}; list with: {suggest('partition reassign --list')}")


def _broker_rows(layout: "Layout") -> list[dict[str, Any]]:
    """All brokers that are alive, and those that have replicas and are not."""
    partitions = layout.partitions.values()
    rows = []
    for broker in sorted(set(layout.brokers) | layout.missing):
        there = layout.brokers.get(broker)
        rows.append(
            {
                "id": broker,
                "address": f"{there.host}:{there.port}" if there else "missing",
                "rack": there.rack if there else None,
                "controller": broker == layout.controller,
                "cordoned": broker in layout.cordoned,
                "leads": sum(each.leader_id == broker for each in partitions),
                "replicas": sum(broker in each.replica_nodes for each in partitions),
                "in_sync": sum(broker in each.isr_nodes for each in partitions),
            }
        )
    return rows


@client_command(app, "health")
def health(context: CommandContext) -> None:
    """Check the cluster: exit code 0 if it is healthy, 1 if not."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.health import examine
    from moldau.client.admin.layout import read_layout

    with open_cluster(context.target) as cluster:
        layout = read_layout(cluster)
        found = examine(cluster, layout)
    if context.json:
        print_json(found.document())
    else:
        _print_health(layout, found)
    if not found.well:
        raise typer.Exit(FAILED)


def _print_health(layout: "Layout", found: "Health") -> None:
    for problem, partitions in found.problems():
        more = f" and {len(partitions) - SHOWN_PARTITIONS} more" if len(partitions) > SHOWN_PARTITIONS else ""
        print_text(f"{problem} ({len(partitions)}): {show_partitions(partitions[:SHOWN_PARTITIONS])}{more}")
    for broker in found.missing:
        print_text(f"broker {broker} is missing: it has replicas and is not running, or not in the cluster")
    if found.well:
        counts = f"{counted(len(layout.brokers), 'broker')}, {counted(len(layout.partitions), 'partition')}"
        print_text(f"All is well: {counts}, all in sync.")
    if found.moving:
        print_text(f"being reassigned ({len(found.moving)}): see {suggest('partition reassign --list')}")


@client_command(app, "decommission")
def decommission(
    context: CommandContext,
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker to remove.", show_default=False)],
    plan: PlanOnly = False,
    run: Run = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Keep the broker: let it have new replicas again.")] = False,
    throttle: Throttle = None,
    no_wait: NoWait = False,
) -> None:
    """Move all replicas away from a broker, so that it can be removed. Can be interrupted and run again."""
    check_choice({"--plan": plan, "--run": run, "--cancel": cancel}, wanted=False)
    if not run and (throttle is not None or no_wait):
        raise misused("--throttle and --no-wait need --run", remedy="Add --run")
    rate = read_throttle(throttle)
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.layout import cordon, plan_to_empty, read_layout

    with open_cluster(context.target) as cluster:
        if cancel:
            cordon(cluster, broker, cordoned=False)
            note(
                f"Broker {broker} takes new replicas. Ongoing reassignments continue; "
                f"cancel them with: {suggest('partition reassign --cancel')}"
            )
            return
        layout, planned = plan_to_empty(cluster, broker)
        words = f"cluster decommission {broker} --run"
        if not run:
            show_plan(context, layout, planned)
            note(f"Nothing was moved. Move with: {suggest(words)}" if planned else tell_unplanned(layout, broker))
            return
        if broker in layout.brokers:  # one that is not alive gets no replicas anyway
            if not cordon(cluster, broker, cordoned=True):
                reason = "these brokers do not support cordoned.log.dirs"
                note(f"Until broker {broker} is stopped it may get new partitions: {reason}.")
            layout, planned = plan_to_empty(cluster, broker)  # with replicas that it got before the cordon
        show_plan(context, layout, planned)
        carry_out(cluster, layout, planned, rate, wait=not no_wait, again=words)
        if not no_wait:
            left = partitions_on(read_layout(cluster), broker)
            if left:
                remedy = f"Run again: {suggest(words)}"
                raise CommandError(f"broker {broker} still has {show_partitions(left)}", remedy=remedy)
            note(_empty(broker))


def partitions_on(layout: "Layout", broker: int) -> "list[TopicPartition]":
    """The partitions with a replica on this broker, including those that are being moved away."""
    return [tp for tp, each in layout.partitions.items() if broker in each.replica_nodes]


def tell_unplanned(layout: "Layout", broker: int) -> str:
    """What to do with a broker from which nothing else has to move."""
    left = partitions_on(layout, broker)
    if not left:
        return _empty(broker)
    wait = suggest(f"cluster decommission {broker} --run")
    return f"Broker {broker} still has {show_partitions(left)}, which are being moved. Wait for them with: {wait}"


def _empty(broker: int) -> str:
    return f"Broker {broker} has no replicas: it can be removed."
