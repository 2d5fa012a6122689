"""`moldau consume`: print records of a topic. Without --group no consumer group is joined or changed.

Reading as a member of a group is in `consume_group`, printing in `record_print`.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from moldau.base.ids import TopicPartition
from moldau.base.times import read_moment
from moldau.client.admin.clients import Admin
from moldau.client.admin.positions import LARGEST, Bounds, Kind, LogPosition, start_offset, stop_offset
from moldau.client.admin.scope import Scope
from moldau.client.admin.target import REQUEST_TIMEOUT_S, Target
from moldau.client.admin.topics import existing_partitions
from moldau.client.consumer.consumer import Consumer
from moldau.client.errors import ClientError
from moldau.tools.common.app import App
from moldau.tools.common.complete import complete_group, complete_topic
from moldau.tools.common.failure import INTERRUPTED, misused, note
from moldau.tools.common.formats import Format
from moldau.tools.common.interrupts import Interrupts
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.records.clients import failure_of, open_consumer
from moldau.tools.records.consume_group import Membership, Protocol, read_as_member
from moldau.tools.records.printing import JsonPrinter, Printer, TextPrinter
from moldau.tools.records.watch import ConnectionWatch, tell_stalls

app = App()

BATCH = 500
WAIT_S = 0.1
GROUP_PANEL = "As a member of a consumer group"

GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="NAME",
        autocompletion=complete_group,
        help="Join it: continue from its committed offsets, and commit printed records.",
        rich_help_panel=GROUP_PANEL,
    ),
]
ProtocolOption = Annotated[
    Protocol | None,
    typer.Option("--protocol", help="How to join.", show_default=Protocol.CLASSIC.value, rich_help_panel=GROUP_PANEL),
]


@client_command(app, "consume")
def consume(
    context: CommandContext,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)],
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Only these.", show_default="all")
    ] = None,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="POSITION", help="beginning, end, an offset, -N for the last N, or @TIME."),
    ] = "beginning",
    until: Annotated[
        str | None, typer.Option("--until", metavar="POSITION", help="Stop before it.", show_default="the end")
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("-n", "--max", metavar="N", min=1, help="Stop after so many records.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="Wait for new records.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Print keys before values.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print headers before keys and values.")] = False,
    form: Annotated[Format, typer.Option("--format", help="How keys and values are written.")] = Format.TEXT,
    committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out open and aborted transactions.")
    ] = False,
    group: GroupOption = None,
    protocol: ProtocolOption = None,
) -> None:
    """Print a topic's records, from the beginning to the end unless told otherwise.

    TIME is ISO 8601 or milliseconds. With -o json, or --format json, each record is one line of JSON. With --group the
    committed offsets come before --from, and other members may share the work.
    """
    start = read_position(begin, "--from")
    stop = None if until is None else read_position(until, "--until")
    as_json = context.json or form is Format.JSON
    printer = JsonPrinter(form) if as_json else TextPrinter(form, keys, headers, sys.stdout.isatty())
    watch = ConnectionWatch(context.target, follow)
    own = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
    if group is not None:
        check_membership(group, start, stop, partitions)
        membership = Membership(group, topic, protocol or Protocol.CLASSIC, start.kind, follow, maximum)
        interrupted = read_as_member(context.target, own, membership, printer, watch)
    elif protocol is not None:
        raise misused("--protocol is for joining a group, and --group is missing", remedy="Give --group NAME")
    else:
        with open_consumer(context.target, own) as consumer:
            with tell_stalls(context.target, lambda: None, lambda: True, f", up to {REQUEST_TIMEOUT_S:.0f} s"):
                spans = plan(context.target, topic, sorted(set(partitions or ())), start, stop, follow)
            reading = Reading(topic, spans, stop, follow, maximum)
            interrupted = read(consumer, context.target, reading, printer, watch)
        if not reading.count and not interrupted:
            whole = start.kind is Kind.BEGINNING and stop is None and not partitions
            note(f"No records in {topic if whole else f'this part of {topic}'}; wait for new ones with --follow.")
    if interrupted:
        raise typer.Exit(INTERRUPTED)


WORDS = {"beginning": LogPosition(Kind.BEGINNING), "end": LogPosition(Kind.END)}


def read_position(text: str, option: str) -> LogPosition:
    """`beginning`, `end`, `42`, `-10` for the last ten, `@2026-01-31T12:00` or `@10m ago`."""
    if text in WORDS:
        return WORDS[text]
    if text.startswith("@"):
        try:
            return LogPosition(Kind.TIME, read_moment(text[1:], time.time_ns() // 1_000_000))
        except ValueError as error:
            raise misused(f"{option} {text}: {error}") from None
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and int(digits) <= LARGEST:
        return LogPosition(Kind.BEFORE_END if text.startswith("-") else Kind.OFFSET, int(digits))
    raise misused(
        f"{option} {text!r} is not a position",
        remedy="Give beginning, end, an offset, -N for the last N records, or @TIME",
    )


def check_membership(group: str, start: LogPosition, stop: LogPosition | None, partitions: list[int] | None) -> None:
    """Refuse options that make no sense for a member: the group assigns partitions and has committed offsets."""
    if not group:
        raise misused("--group is empty", remedy="Give the name of a group")
    if partitions:
        raise misused("the group assigns the partitions", remedy="Leave out --partition or --group")
    if start.kind not in (Kind.BEGINNING, Kind.END):
        raise misused(
            "a group begins at its committed offsets; without one --from is beginning or end",
            remedy="Move it with: moldau group reset-offsets; or leave out --from or --group",
        )
    if stop is not None:
        raise misused("--until cannot be combined with --group", remedy="Stop after so many records with --max")


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a partition to read: from an offset up to, not including, another."""

    begin: int
    stop: int | None


@dataclass(slots=True)
class Reading:
    """Progress of reading, and when it ends."""

    topic: str
    spans: dict[int, Span]
    stop: LogPosition | None = None
    follow: bool = False
    maximum: int | None = None
    count: int = 0
    finished: set[int] = field(default_factory=set)

    def takes(self, partition: int, offset: int, timestamp_ms: int) -> bool:
        """Whether to print the record; one beyond the span finishes its partition."""
        if partition in self.finished or self.is_done():
            return False
        stop = self.spans[partition].stop
        late = self.stop is not None and self.stop.kind is Kind.TIME and timestamp_ms >= self.stop.number
        if late or (stop is not None and offset >= stop):
            self.finished.add(partition)
            return False
        if stop is not None and offset + 1 >= stop:
            self.finished.add(partition)
        self.count += 1
        return True

    def reached_end(self, partition: int, offset: int) -> None:
        """The partition has no more records. `takes` may not see that: the last offsets may be transaction markers."""
        stop = self.spans[partition].stop
        if not self.follow or (stop is not None and offset >= stop):
            self.finished.add(partition)

    def is_done(self) -> bool:
        return self.count == self.maximum or len(self.finished) == len(self.spans)


def plan(
    target: Target, topic: str, wanted: Sequence[int], start: LogPosition, stop: LogPosition | None, follow: bool
) -> dict[int, Span]:
    """The offsets of the positions, for each partition."""
    from moldau.client.admin.group_offsets import read_offsets  # here, because it loads messages of the protocol

    admin = Admin(target)
    chosen = existing_partitions(admin, Scope(topic, tuple(wanted) or None))
    begins, ends = read_offsets(admin, chosen, "earliest"), read_offsets(admin, chosen, "latest")
    bounds = {tp: Bounds(begins[tp] or 0, ends[tp] or 0) for tp in chosen}
    by_time = read_offsets(admin, chosen, start.number) if start.kind is Kind.TIME else {}
    return {
        tp.partition: Span(
            start_offset(start, tp.partition, held) if (found := by_time.get(tp)) is None else found,
            stop_offset(stop, held, follow),
        )
        for tp, held in bounds.items()
    }


def read(
    consumer: Consumer[Any, Any], target: Target, reading: Reading, printer: Printer, watch: ConnectionWatch
) -> bool:
    """Print the spans. Returns whether Ctrl-C ended it."""
    for partition, span in reading.spans.items():
        if span.stop is not None and span.begin >= span.stop:
            reading.finished.add(partition)
    begins = {
        TopicPartition(reading.topic, partition): span.begin
        for partition, span in reading.spans.items()
        if partition not in reading.finished
    }
    try:
        consumer.assign(begins)
        with Interrupts() as interrupts:
            while not reading.is_done() and not interrupts.asked:
                _read_batch(consumer, reading, printer, watch)
    except ClientError as error:
        raise failure_of(error, target, reading.topic) from error
    return bool(interrupts.asked)


def _read_batch(consumer: Consumer[Any, Any], reading: Reading, printer: Printer, watch: ConnectionWatch) -> None:
    done_before = set(reading.finished)
    batch = consumer.poll_batch(BATCH, WAIT_S)
    for message in batch:
        if reading.takes(message.partition, message.offset, message.timestamp):
            printer(message.record)
    sys.stdout.flush()
    if not batch:
        watch.look(consumer.engine.all_down)
        behind = {} if reading.follow else consumer.lag()
        for tp, offset in consumer.position().items():
            if not behind.get(tp):
                reading.reached_end(tp.partition, offset)
    if reading.finished - done_before and not reading.is_done():
        consumer.pause(*(TopicPartition(reading.topic, partition) for partition in reading.finished))
