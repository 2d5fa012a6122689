"""Showing a plan of moves and carrying it out: throttle, begin, watch, and an end that leaves no throttle behind.

What was begun is the brokers' work: whoever stops watching stops nothing, and can come back and watch again.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from moldau.tools.common.failure import CommandError, misused, note
from moldau.tools.common.formats import read_size
from moldau.tools.common.options import Session
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.places import HIGHEST_PARTITION, Place, is_number
from moldau.tools.replica_admin import Layout, await_done, end_throttle, read_ongoing, reassign, throttle
from moldau.tools.replica_plan import Replicas
from moldau.tools.requests import Cluster

Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle", metavar="BYTES", help="The most that a broker sends, and copies, per second: 10MB, 5000000."
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Begin, and leave the rest to the brokers.")]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Show what would move, and move nothing.")]
Run = Annotated[bool, typer.Option("--run", help="Move, and wait until it is done.")]


def read_throttle(text: str | None) -> int | None:
    try:
        return None if text is None else read_size(text)
    except ValueError as problem:
        raise misused(f"--throttle {problem}") from problem


def check_choice(given: Mapping[str, bool], *, wanted: bool = True) -> None:
    """One of these options, and only one."""
    chosen = [option for option, used in given.items() if used]
    if len(chosen) > 1:
        raise misused(f"{' and '.join(chosen)} cannot be combined")
    if wanted and not chosen:
        raise misused("nothing to do", remedy=f"Give one of {', '.join(given)}")


def check_brokers(layout: Layout, ids: Iterable[int]) -> None:
    for broker in ids:
        if broker not in layout.brokers:
            raise CommandError(f"there is no broker {broker}", remedy=f"There are: {_known(layout)}")
        if broker in layout.cordoned:
            remedy = f"If it shall stay after all: moldau cluster decommission {broker} --cancel"
            raise CommandError(f"broker {broker} takes no new replicas: it is cordoned", remedy=remedy)


def _known(layout: Layout) -> str:
    return ", ".join(map(str, sorted(layout.brokers)))


def show_plan(session: Session, layout: Layout, plan: Mapping[Place, Replicas]) -> None:
    """A table, or the JSON that Kafka's tools and `--file` read."""
    if session.json:
        print_json(plan_document(plan))
    elif plan:
        rows = [(place.topic, place.partition, layout.target(place), replicas) for place, replicas in plan.items()]
        print_table(("TOPIC", "PARTITION", "REPLICAS", "NEW REPLICAS"), rows)
    else:
        print_text("Nothing has to move.")


def carry_out(
    cluster: Cluster, layout: Layout, plan: Mapping[Place, Replicas], rate: int | None, *, wait: bool, again: str
) -> None:
    """`again` is the command that watches on if this one is stopped."""
    if not plan and not layout.ongoing:
        end_throttle(cluster, layout, {place.topic for place in layout.partitions})  # of moves that nobody watched
        return
    if rate is not None:
        throttle(cluster, layout, plan, rate)
    _begin(cluster, layout, plan)
    if not wait:
        note(f"Begun. Look at it with: moldau partition reassign --list{_throttle_hint(rate, again)}")
        return
    watched = set(plan) | set(layout.ongoing)
    try:
        await_done(cluster, watched)
    except KeyboardInterrupt:
        note(f"The brokers go on moving. Watch again with: {again}; go back with: moldau partition reassign --cancel")
        raise
    end_throttle(cluster, layout, {place.topic for place in watched})


def _begin(cluster: Cluster, layout: Layout, plan: Mapping[Place, Replicas]) -> None:
    try:
        reassign(cluster, plan)
    except CommandError:
        if not read_ongoing(cluster):  # nothing was begun
            end_throttle(cluster, layout, {place.topic for place in plan})
        raise


def _throttle_hint(rate: int | None, again: str) -> str:
    return f"; the throttle ends with: {again}" if rate is not None else ""


def plan_document(plan: Mapping[Place, Replicas]) -> dict[str, Any]:
    """The form of kafka-reassign-partitions."""
    partitions = [
        {"topic": place.topic, "partition": place.partition, "replicas": list(replicas)}
        for place, replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": partitions}


def read_plan(path: Path) -> dict[Place, Replicas]:
    """A file in the form of kafka-reassign-partitions."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise misused(f"cannot read --file {path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise misused(f"--file {path} is not JSON: {error}") from error
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise misused(f"--file {path} is no plan", remedy='It looks so: {"version": 1, "partitions": [{"topic": …}]}')
    plan: dict[Place, Replicas] = {}
    for row in rows:
        place, replicas = _read_row(path, row)
        if place in plan:
            raise misused(f"--file {path} has {place} twice")
        plan[place] = replicas
    return plan


def _read_row(path: Path, row: Any) -> tuple[Place, Replicas]:
    def whole(value: Any) -> bool:
        return type(value) is int and is_number(str(value), HIGHEST_PARTITION)

    match row:
        case {"topic": str(topic), "partition": partition, "replicas": [_, *_] as replicas, **rest} if whole(partition):
            if all(map(whole, replicas)):
                _check_directories(path, rest.get("log_dirs", ()))
                return Place(topic, partition), tuple(replicas)
    wanted = "Each has a topic, a partition and a list of broker ids as replicas"
    raise misused(f"--file {path} has {json.dumps(row)[:100]}, which is no partition of a plan", remedy=wanted)


def _check_directories(path: Path, directories: object) -> None:
    if not isinstance(directories, list | tuple) or any(each != "any" for each in directories):
        raise misused(f"--file {path} names log_dirs", remedy="Directories are chosen by each broker: write any")
