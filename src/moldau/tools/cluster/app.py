"""`moldau cluster`: run one on this machine, look at any, ask whether it is well, and take a broker out of it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from moldau.tools.cluster_health import Health, examine
from moldau.tools.common.failure import FAILED, CommandError, misused, note
from moldau.tools.common.options import Session, client_command
from moldau.tools.common.output import print_json, print_table, print_text
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
from moldau.tools.places import Place, show_places
from moldau.tools.replica_admin import Layout, cordon, read_layout, with_cordoned
from moldau.tools.replica_plan import Impossible, Replicas, plan_decommission
from moldau.tools.requests import Cluster, open_cluster

app = typer.Typer(
    name="cluster", help="Run, describe and check clusters; take brokers out of them.", add_completion=False
)

UP_PORT = 9092
UP_BROKERS = 3
ZOOKEEPER_PORT = 2181
SHOWN_PLACES = 20  # partitions of one kind that `health` names; the number is always told


@app.command("up")
def up(
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", metavar="N", min=1, help="How many.", show_default=f"{UP_BROKERS}, or as before"),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where everything is kept.", show_default="./cluster")
    ] = Path("cluster"),
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Of the first broker; the others follow.")
    ] = UP_PORT,
    zookeeper_nodes: Annotated[
        int, typer.Option("--zookeeper-nodes", metavar="N", min=1, max=7, help="ZooKeeper servers: 1, 3 or 5.")
    ] = 1,
    zookeeper_port: Annotated[
        int, typer.Option("--zookeeper-port", metavar="PORT", min=1, max=65535, help="Of the first one.")
    ] = ZOOKEEPER_PORT,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of every broker.")
    ] = None,
) -> None:
    """Run a cluster on this machine: ZooKeeper and brokers, in the foreground. Ctrl-C stops all in order."""
    from moldau.tools.cluster.up import Wish, run

    wish = Wish(directory, brokers, port, zookeeper_nodes, zookeeper_port, tuple(settings or ()))
    raise typer.Exit(run(wish))


@client_command(app, "describe")
def describe(session: Session) -> None:
    """Show the brokers, and how much each of them has and leads."""
    with open_cluster(session.target) as cluster:
        layout = with_cordoned(cluster, read_layout(cluster))
    rows = _broker_rows(layout)
    if session.json:
        print_json({"cluster_id": layout.cluster_id, "controller": layout.controller, "brokers": rows})
        return
    topics = {place.topic for place in layout.partitions}
    print_text(f"Cluster {layout.cluster_id}: {len(topics)} topics, {len(layout.partitions)} partitions")
    columns = ("id", "address", "rack", "controller", "cordoned", "leads", "replicas", "in_sync")
    cells = [
        ["yes" if row[each] is True else "" if row[each] is False else row[each] for each in columns] for row in rows
    ]
    print_table([column.replace("_", " ").upper() for column in columns], cells)
    if layout.ongoing:
        print_text(f"{len(layout.ongoing)} partitions are moving: moldau partition reassign --list")


def _broker_rows(layout: Layout) -> list[dict[str, Any]]:
    """All brokers that are there, and those that should be."""
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
def health(session: Session) -> None:
    """Say whether all is well: exit code 0 if so, 1 if not."""
    with open_cluster(session.target) as cluster:
        layout = read_layout(cluster)
        found = examine(cluster, layout)
    if session.json:
        print_json(found.document())
    else:
        _print_health(layout, found)
    if not found.well:
        raise typer.Exit(FAILED)


def _print_health(layout: Layout, found: Health) -> None:
    for what, places in found.problems():
        more = f" and {len(places) - SHOWN_PLACES} more" if len(places) > SHOWN_PLACES else ""
        print_text(f"{what} ({len(places)}): {show_places(places[:SHOWN_PLACES])}{more}")
    for broker in found.missing:
        print_text(f"broker {broker} is missing: it has replicas, and is not there")
    if found.well:
        print_text(f"All is well: {len(layout.brokers)} brokers, {len(layout.partitions)} partitions, all in sync.")
    if found.moving:
        print_text(f"moving ({len(found.moving)}): see moldau partition reassign --list")


@client_command(app, "decommission")
def decommission(
    session: Session,
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker that shall go.", show_default=False)],
    plan: PlanOnly = False,
    run: Run = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="It stays after all: let it have new replicas again.")
    ] = False,
    throttle: Throttle = None,
    no_wait: NoWait = False,
) -> None:
    """Move everything away from a broker, so that it can be stopped for good. Can be stopped and run again."""
    check_choice({"--plan": plan, "--run": run, "--cancel": cancel}, wanted=False)
    if not run and (throttle is not None or no_wait):
        raise misused("--throttle and --no-wait are for moving", remedy="Add --run")
    rate = read_throttle(throttle)
    with open_cluster(session.target) as cluster:
        if cancel:
            cordon(cluster, broker, cordoned=False)
            note(f"Broker {broker} takes new replicas. What moves, goes on: moldau partition reassign --cancel")
            return
        layout, planned = _plan_to_empty(cluster, broker)
        command = f"moldau cluster decommission {broker} --run"
        if not run:
            show_plan(session, layout, planned)
            note(f"Nothing was moved. Move with: {command}" if planned else _empty(broker))
            return
        if broker in layout.brokers:  # one that is not there gets nothing anyway
            if not cordon(cluster, broker, cordoned=True):
                note(f"These brokers know no cordon: until broker {broker} is stopped it may get new partitions.")
            layout, planned = _plan_to_empty(cluster, broker)  # what it got a moment ago is among it now
        show_plan(session, layout, planned)
        carry_out(cluster, layout, planned, rate, wait=not no_wait, again=command)
        if not no_wait:
            left = [place for place, each in read_layout(cluster).partitions.items() if broker in each.replica_nodes]
            if left:
                raise CommandError(f"broker {broker} still has {show_places(left)}", remedy=f"Run again: {command}")
            note(_empty(broker))


def _plan_to_empty(cluster: Cluster, broker: int) -> tuple[Layout, dict[Place, Replicas]]:
    layout = with_cordoned(cluster, read_layout(cluster))
    if broker not in set(layout.brokers) | layout.missing:
        known = ", ".join(map(str, sorted(layout.brokers)))
        raise CommandError(f"there is no broker {broker}", remedy=f"There are: {known}")
    try:
        return layout, plan_decommission(layout.racks, layout.targets(), broker)
    except Impossible as problem:
        remedy = "Add a broker first, or have fewer replicas: moldau partition replicate --help"
        raise CommandError(str(problem), remedy=remedy) from problem


def _empty(broker: int) -> str:
    return f"Broker {broker} has no replicas: it can be stopped for good."
