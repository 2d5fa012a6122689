"""Options and output that commands with reassignments share: show a plan, begin it, follow its progress."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.base.ids import TopicPartition
from moldau.tools.common.failure import misused, note
from moldau.tools.common.formats import read_size
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext
from moldau.tools.common.output import counted, print_json, print_table, print_text

if TYPE_CHECKING:
    from moldau.client.admin.assignment import Replicas
    from moldau.client.admin.cluster import Cluster
    from moldau.client.admin.layout import Layout

Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle", metavar="BYTES", help="The most that a broker sends, and copies, per second: 10MB, 5000000."
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once; the brokers move the replicas meanwhile.")]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Show the plan, and move nothing.")]
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


def show_plan(context: CommandContext, layout: "Layout", plan: "Mapping[TopicPartition, Replicas]") -> None:
    """A table, or the JSON that Kafka's tools and `--file` read."""
    from moldau.client.admin.reassignments import plan_document

    if context.json:
        print_json(plan_document(plan))
    elif plan:
        rows = [(tp.topic, tp.partition, layout.target(tp), replicas) for tp, replicas in plan.items()]
        print_table(("TOPIC", "PARTITION", "REPLICAS", "NEW REPLICAS"), rows)
    elif layout.ongoing:
        print_text(f"Nothing else has to move. Under way: {counted(len(layout.ongoing), 'reassignment')}.")
    else:
        print_text("Nothing has to move.")


def carry_out(
    cluster: "Cluster",
    layout: "Layout",
    plan: "Mapping[TopicPartition, Replicas]",
    rate: int | None,
    *,
    wait: bool,
    again: str,
) -> None:
    """Reassign, and follow the progress. `again` is the command that follows it again if this one is interrupted."""
    from moldau.client.admin.reassignments import begin, watch

    if not plan and not layout.ongoing:
        end_throttle(cluster, layout, layout.topics)  # of reassignments that finished unwatched
        return
    begin(cluster, layout, plan, rate)
    if not wait:
        throttled = f"; remove the throttle with: {suggest(again)}" if rate is not None else ""
        note(f"Begun. See the progress with: {suggest('partition reassign --list')}{throttled}")
        return
    watched = set(plan) | set(layout.ongoing)
    try:
        for left in watch(cluster, watched):
            note(f"{len(watched) - left} of {len(watched)} partitions are reassigned.")
    except KeyboardInterrupt:
        cancel = suggest("partition reassign --cancel")
        note(f"The brokers continue without this command. Watch them with: {suggest(again)}; cancel with: {cancel}")
        raise
    end_throttle(cluster, layout, {tp.topic for tp in watched})


def end_throttle(cluster: "Cluster", layout: "Layout", topics: Iterable[str]) -> None:
    from moldau.client.admin import reassignments

    for broker in reassignments.end_throttle(cluster, layout, topics).unreachable:
        rates = ", ".join(reassignments.RATES)
        note(f"Broker {broker} does not answer and keeps the throttled rates in its settings: {rates}")


def read_plan_file(path: Path) -> "dict[TopicPartition, Replicas]":
    """A file in the form of kafka-reassign-partitions."""
    from moldau.client.admin.reassignments import read_plan

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise misused(f"cannot read --file {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise misused(f"--file {path} is not UTF-8 text") from error
    return read_plan(text, f"--file {path}")
