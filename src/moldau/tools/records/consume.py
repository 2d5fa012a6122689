"""`moldau consume`: print records of a topic. Without --group no consumer group is joined or changed.

Reading as a member of a group is in `consume_group`, printing in `record_print`.
"""

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.base.times import read_moment
from moldau.client.admin.clients import admin_error, build_consumer, of_unused_group, read_topic
from moldau.client.admin.errors import NoSuchPartition
from moldau.client.admin.positions import LARGEST, Bounds, Kind, LogPosition, start_offset, stop_offset
from moldau.client.admin.reachability import diagnose
from moldau.client.admin.target import REQUEST_TIMEOUT_S, Target
from moldau.tools.common.app import App
from moldau.tools.common.complete import complete_group, complete_topic
from moldau.tools.common.failure import INTERRUPTED, misused, note
from moldau.tools.common.formats import Format
from moldau.tools.common.interrupts import Interrupts
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.records.consume_group import Membership, Protocol, read_as_member
from moldau.tools.records.printing import JsonPrinter, Printer, TextPrinter
from moldau.tools.records.watch import ConnectionWatch, tell_stalls

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

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
    own = {"isolation.level": "read_committed" if committed else "read_uncommitted", "error_cb": watch.on_error}
    if group is not None:
        check_membership(group, start, stop, partitions)
        membership = Membership(group, topic, protocol or Protocol.CLASSIC, start.kind, follow, maximum)
        interrupted = read_as_member(context.target, own, membership, printer, watch)
    elif protocol is not None:
        raise misused("--protocol is for joining a group, and --group is missing", remedy="Give --group NAME")
    else:
        consumer = build_consumer(context.target, **own)
        try:
            with tell_stalls(context.target, lambda: None, lambda: True, f", up to {REQUEST_TIMEOUT_S:.0f} s"):
                spans = plan(consumer, context.target, topic, sorted(set(partitions or ())), start, stop, follow)
            reading = Reading(topic, spans, stop, follow, maximum)
            interrupted = read(consumer, context.target, reading, printer, watch)
        finally:
            consumer.close()
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
    consumer: "Consumer",
    target: Target,
    topic: str,
    wanted: list[int],
    start: LogPosition,
    stop: LogPosition | None,
    follow: bool,
) -> dict[int, Span]:
    """The offsets of the positions, for each partition."""
    from confluent_kafka import KafkaException, TopicPartition

    present = sorted(read_topic(consumer, target, topic).partitions)
    for partition in wanted:
        if partition not in present:
            raise NoSuchPartition(topic, partition, len(present))
    chosen = wanted or present
    try:
        bounds = {}
        for partition in chosen:
            wanted_partition = TopicPartition(topic, partition)
            bounds[partition] = Bounds(*consumer.get_watermark_offsets(wanted_partition, timeout=REQUEST_TIMEOUT_S))
        by_time = {}
        if start.kind is Kind.TIME:
            asked = [TopicPartition(topic, partition, start.number) for partition in chosen]
            for found in consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S):
                by_time[found.partition] = found.offset if found.offset >= 0 else bounds[found.partition].end
    except KafkaException as error:  # the partitions exist, so a leader that cannot be reached is the likely cause
        raise diagnose(target) or admin_error(error, target, topic=topic) from error
    return {
        partition: Span(by_time.get(partition, start_offset(start, partition, held)), stop_offset(stop, held, follow))
        for partition, held in bounds.items()
    }


def read(consumer: "Consumer", target: Target, reading: Reading, printer: Printer, watch: ConnectionWatch) -> bool:
    """Print the spans. Returns whether Ctrl-C ended it."""
    from confluent_kafka import TopicPartition

    for partition, span in reading.spans.items():
        if span.stop is not None and span.begin >= span.stop:
            reading.finished.add(partition)
    consumer.assign(
        [
            TopicPartition(reading.topic, partition, span.begin)
            for partition, span in reading.spans.items()
            if partition not in reading.finished
        ]
    )
    with Interrupts() as interrupts:
        while not reading.is_done() and not interrupts.asked:
            done_before = len(reading.finished)
            for message in consumer.consume(BATCH, WAIT_S):
                _take(message, target, reading, printer)
            sys.stdout.flush()
            if watch.problem is not None:
                raise watch.problem
            if len(reading.finished) > done_before and not reading.is_done():
                consumer.pause([TopicPartition(reading.topic, partition) for partition in reading.finished])
    return bool(interrupts.asked)


def _take(message: "Message", target: Target, reading: Reading, printer: Printer) -> None:
    error = message.error()
    partition = message.partition()
    offset = message.offset()
    if error is None and partition is not None and offset is not None:
        if reading.takes(partition, offset, message.timestamp()[1]):
            printer(message)
    elif error is not None and error.name() == "_PARTITION_EOF" and partition is not None and offset is not None:
        reading.reached_end(partition, offset)
    elif error is not None and not error.retriable() and not of_unused_group(error):
        raise admin_error(error, target, topic=reading.topic)
