"""`moldau partition`: move partitions to other brokers, have more or fewer replicas, elect leaders."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from moldau.tools.common.complete import complete_topic
from moldau.tools.common.confirm import require_yes
from moldau.tools.common.failure import CommandError, misused, note
from moldau.tools.common.options import Session, client_command
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.partition.moves import (
    NoWait,
    PlanOnly,
    Run,
    Throttle,
    carry_out,
    check_brokers,
    check_choice,
    read_plan,
    read_throttle,
    show_plan,
)
from moldau.tools.places import HIGHEST_PARTITION, Place, Scope, is_number, read_scope
from moldau.tools.replica_admin import Layout, elect_leaders, end_throttle, read_layout, with_cordoned
from moldau.tools.replica_admin import reassign as begin
from moldau.tools.replica_plan import Impossible, Replicas, plan_move, plan_rebalance, plan_replication
from moldau.tools.requests import Cluster, open_cluster

app = typer.Typer(
    name="partition", help="Move partitions, change their replication, elect their leaders.", add_completion=False
)

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
    session: Session,
    plan: PlanOnly = False,
    run: Run = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Go back to the replicas before.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show what moves now.")] = False,
    topics: Topics = None,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="ID,…", help="Where the partitions shall be.", show_default="all brokers"),
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
        raise misused("--throttle and --no-wait are for moving", remedy="Add --run")
    if (list_ and file is not None) or ((list_ or cancel) and brokers is not None):
        raise misused("--file and --brokers are for plans", remedy="Leave them out; --topic says which partitions")
    scopes = [read_scope(text, "--topic") for text in topics or ()]
    rate = read_throttle(throttle)
    allowed = None if brokers is None else _read_ids(brokers)
    if file is not None and (scopes or allowed):
        raise misused("--file names the partitions and brokers itself", remedy="Leave out --topic and --brokers")
    given = None if file is None else read_plan(file)
    with open_cluster(session.target) as cluster:
        layout = read_layout(cluster)
        if list_:
            _show_ongoing(session, layout, _find(layout, scopes))
        elif cancel:
            _cancel(session, cluster, layout, _find(layout, scopes) if given is None else set(given))
        else:
            layout = with_cordoned(cluster, layout)
            planned = _spread(layout, _find(layout, scopes), allowed) if given is None else _checked(layout, given)
            same = _same_command(topics or (), brokers, file)
            _show_or_run(session, cluster, layout, planned, rate, run=run, wait=not no_wait, command=same)


@client_command(app, "replicate")
def replicate(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]…", autocompletion=complete_topic, show_default=False)
    ] = None,
    factor: Annotated[
        int | None, typer.Option("--factor", "-r", metavar="N", min=1, help="Replicas of each partition.")
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="The brokers' own topics, on three brokers if there are as many.")
    ] = False,
    plan: PlanOnly = False,
    throttle: Throttle = None,
    no_wait: NoWait = False,
) -> None:
    """Have more or fewer replicas of topics."""
    if bool(names) == internal:
        raise misused("nothing to do" if not names else "TOPIC and --internal cannot be combined", remedy="Give one")
    if factor is None and not internal:
        raise misused("--factor is missing", remedy="Say how many replicas each partition shall have")
    rate = read_throttle(throttle)
    with open_cluster(session.target) as cluster:
        layout = with_cordoned(cluster, read_layout(cluster))
        scopes = [Scope(name) for name in (names or sorted(layout.internal))]
        places = _find(layout, scopes) if scopes else set()
        wanted = factor or min(INTERNAL_FACTOR, len(layout.racks))
        try:
            planned = plan_replication(layout.racks, layout.targets(), places, wanted)
        except Impossible as problem:
            raise CommandError(str(problem)) from problem
        again = f"replicate {'--internal' if internal else ' '.join(names or ())} --factor {wanted}"
        _show_or_run(session, cluster, layout, planned, rate, run=not plan, wait=not no_wait, command=again)


@client_command(app, "elect")
def elect(
    session: Session,
    topics: Topics = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Let any replica lead where no in-sync one is there: records may be lost."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Give partitions back to their preferred leaders; or give them any leader at all."""
    scopes = [read_scope(text, "--topic") for text in topics or ()]
    if unclean and not yes:
        require_yes("an unclean election", "Let replicas lead that may lack committed records?")
    with open_cluster(session.target) as cluster:
        layout = read_layout(cluster)
        places = sorted(_find(layout, scopes))
        wanted = [place for place in places if not unclean or layout.partitions[place].leader_id < 0]
        results = elect_leaders(cluster, wanted, unclean=unclean)
    _show_elections(session, results)


def _show_elections(session: Session, results: dict[Place, CommandError | None]) -> None:
    """None: elected now. Who leads already is not told."""
    rows = [
        (place.topic, place.partition, "elected" if error is None else str(error))
        for place, error in sorted(results.items())
    ]
    if session.json:
        print_json([dict(zip(("topic", "partition", "outcome"), row, strict=True)) for row in rows])
    elif rows:
        print_table(("TOPIC", "PARTITION", "OUTCOME"), rows)
    else:
        print_text("Every partition has the leader that it should have.")
    failed = sum(error is not None for error in results.values())
    if failed:
        raise CommandError(f"{failed} of {len(rows)} partitions did not get the leader that was asked for")


def _show_or_run(
    session: Session,
    cluster: Cluster,
    layout: Layout,
    planned: dict[Place, Replicas],
    rate: int | None,
    *,
    run: bool,
    wait: bool,
    command: str,
) -> None:
    show_plan(session, layout, planned)
    if run:
        carry_out(cluster, layout, planned, rate, wait=wait, again=f"moldau partition {command}")
        if wait and (planned or layout.ongoing):
            note("Done.")


def _cancel(session: Session, cluster: Cluster, layout: Layout, places: set[Place]) -> None:
    moving = sorted(places & set(layout.ongoing))
    begin(cluster, dict.fromkeys(moving))
    end_throttle(cluster, layout, {place.topic for place in moving})
    if session.json:
        print_json([{"topic": place.topic, "partition": place.partition} for place in moving])
    else:
        print_text(f"Cancelled {len(moving)} moves." if moving else "Nothing moves; there was nothing to cancel.")


def _show_ongoing(session: Session, layout: Layout, places: set[Place]) -> None:
    rows = [
        (place.topic, place.partition, layout.target(place), each.adding_replicas, each.removing_replicas)
        for place, each in sorted(layout.ongoing.items())
        if place in places
    ]
    columns = ("topic", "partition", "replicas", "adding", "removing")
    if session.json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table([column.upper() for column in columns], rows)
    else:
        print_text("Nothing moves.")


def _same_command(topics: Sequence[str], brokers: str | None, file: Path | None) -> str:
    """What to type to go on: another one might move more than was meant."""
    words = ["reassign", "--run", *(word for topic in topics for word in ("--topic", topic))]
    words += [] if brokers is None else ["--brokers", brokers]
    words += [] if file is None else ["--file", str(file)]
    return shlex.join(words)


def _find(layout: Layout, scopes: Sequence[Scope]) -> set[Place]:
    """The partitions that were named; all if none were."""
    found: set[Place] = set()
    for topic, partitions in scopes:
        there = {place for place in layout.partitions if place.topic == topic}
        if not there:
            raise CommandError(f"there is no topic {topic!r}", remedy="See what is there with: moldau topic list")
        wanted = there if partitions is None else {Place(topic, each) for each in partitions}
        if wanted - there:
            raise CommandError(f"there is no partition {min(wanted - there)}: {topic} has {len(there)}")
        found |= wanted
    return found if scopes else set(layout.partitions)


def _spread(layout: Layout, places: set[Place], allowed: list[int] | None) -> dict[Place, Replicas]:
    check_brokers(layout, allowed or ())
    wanted = allowed if allowed is not None else sorted(layout.racks)
    now = layout.targets()
    try:
        # What is on a broker that is down stays there, unless the brokers were named.
        moved = plan_move(layout.racks, now, places, wanted) if allowed is not None else {}
    except Impossible as problem:
        raise CommandError(str(problem)) from problem
    spread = plan_rebalance(layout.racks, {**now, **moved}, places, wanted)
    planned = {**moved, **spread}
    return {place: replicas for place, replicas in sorted(planned.items()) if replicas != now[place]}


def _checked(layout: Layout, given: dict[Place, Replicas]) -> dict[Place, Replicas]:
    """A plan of a file: what it names must be there. What is so already need not move."""
    for place, replicas in given.items():
        if place not in layout.partitions:
            raise CommandError(f"there is no partition {place}")
        check_brokers(layout, set(replicas) - set(layout.partitions[place].replica_nodes))
    return {place: replicas for place, replicas in sorted(given.items()) if replicas != layout.target(place)}


def _read_ids(text: str) -> list[int]:
    ids = [part.strip() for part in text.split(",")]
    if not all(is_number(each, HIGHEST_PARTITION) for each in ids):
        raise misused(f"--brokers {text!r} is not a list of broker ids", remedy="For example: --brokers 1,2,3")
    if len(set(map(int, ids))) < len(ids):
        raise misused(f"--brokers {text!r} names a broker twice")
    return sorted(map(int, ids))
