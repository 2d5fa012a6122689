"""`moldau consume`: prints records of a topic. Partitions are assigned, so no consumer group is joined or changed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.tools.complete import complete_topic
from moldau.tools.connect import REQUEST_TIMEOUT_S, Target, build_consumer, failure, read_topic, unreachable
from moldau.tools.failure import INTERRUPTED, CommandError, note
from moldau.tools.formats import Format, Header, write_bytes, write_json_bytes, write_json_headers
from moldau.tools.interrupts import Interrupts
from moldau.tools.options import Session, client_command
from moldau.tools.output import print_json_line, show_time
from moldau.tools.positions import Bounds, Kind, Position, read_position, start_offset, stop_offset

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

app = typer.Typer(add_completion=False)

BATCH = 500
WAIT_S = 0.1
TIMESTAMP_TYPES = {0: "none", 1: "CreateTime", 2: "LogAppendTime"}


@client_command(app, "consume")
def consume(
    session: Session,
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
) -> None:
    """Print a topic's records, from the beginning to the end unless told otherwise.

    TIME is ISO 8601 or milliseconds. With -o json, or --format json, each record is one line of JSON.
    """
    start = read_position(begin, "--from")
    stop = None if until is None else read_position(until, "--until")
    if start.kind is Kind.END and not follow:
        note("Nothing comes after the end without --follow.")
    as_json = session.json or form is Format.JSON
    printer = JsonPrinter(form) if as_json else TextPrinter(form, keys, headers, sys.stdout.isatty())
    lost = ConnectionWatch(session.target, follow)
    consumer = build_consumer(
        session.target,
        **{
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "error_cb": lost.on_error,
        },
    )
    try:
        spans = plan(consumer, session.target, topic, sorted(set(partitions or ())), start, stop, follow)
        with Interrupts() as interrupts:
            read(consumer, session.target, Reading(topic, spans, stop, follow, maximum), printer, lost, interrupts)
    finally:
        consumer.close()
    if interrupts.asked:
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a partition to read: from an offset up to, not including, another."""

    begin: int
    stop: int | None


@dataclass(slots=True)
class Reading:
    """How far reading has come, and when it ends."""

    topic: str
    spans: dict[int, Span]
    stop: Position | None = None
    follow: bool = False
    maximum: int | None = None
    count: int = 0
    finished: set[int] = field(default_factory=set)

    def takes(self, partition: int, offset: int, timestamp_ms: int) -> bool:
        """Whether the record belongs to what was asked for; one beyond it finishes its partition."""
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
        """The broker has no more. Needed beside `takes`: the last offsets may hold transaction markers, not records."""
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
    start: Position,
    stop: Position | None,
    follow: bool,
) -> dict[int, Span]:
    """Turns positions into offsets, partition by partition."""
    from confluent_kafka import KafkaException, TopicPartition

    present = sorted(read_topic(consumer, target, topic).partitions)
    for partition in wanted:
        if partition not in present:
            raise CommandError(
                f"topic {topic!r} has no partition {partition}: it has {len(present)}",
                remedy=f"See them with: moldau topic describe {topic}",
            )
    chosen = wanted or present
    try:
        bounds = {}
        for partition in chosen:
            place = TopicPartition(topic, partition)
            bounds[partition] = Bounds(*consumer.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S))
        by_time = {}
        if start.kind is Kind.TIME:
            asked = [TopicPartition(topic, partition, start.number) for partition in chosen]
            for found in consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S):
                by_time[found.partition] = found.offset if found.offset >= 0 else bounds[found.partition].end
    except KafkaException as error:
        raise failure(error, target, topic=topic) from error
    return {
        partition: Span(by_time.get(partition, start_offset(start, partition, held)), stop_offset(stop, held, follow))
        for partition, held in bounds.items()
    }


class ConnectionWatch:
    """Notices that no broker can be reached any more: the end of a bounded read, a word on stderr when following."""

    def __init__(self, target: Target, follow: bool) -> None:
        self.target = target
        self.follow = follow
        self.problem: CommandError | None = None
        self.told = False

    def on_error(self, error: "KafkaError") -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            if not self.follow:
                self.problem = unreachable(self.target, "the connection was lost")
            elif not self.told:
                note(f"Lost the connection to {self.target.bootstrap}; trying again.")
            self.told = True
        elif error.fatal() or error.name() in ("_AUTHENTICATION", "_SSL"):
            self.problem = failure(error, self.target)


Printer = Callable[["Message"], None]


def read(
    consumer: "Consumer",
    target: Target,
    reading: Reading,
    printer: Printer,
    watch: ConnectionWatch,
    interrupts: Interrupts,
) -> None:
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
    while not reading.is_done() and not interrupts.asked:
        done_before = len(reading.finished)
        for message in consumer.consume(BATCH, WAIT_S):
            _take(message, target, reading, printer)
        sys.stdout.flush()
        if watch.problem is not None:
            raise watch.problem
        if len(reading.finished) > done_before and not reading.is_done():
            consumer.pause([TopicPartition(reading.topic, partition) for partition in reading.finished])


def _take(message: "Message", target: Target, reading: Reading, printer: Printer) -> None:
    error = message.error()
    partition = message.partition()
    offset = message.offset()
    if error is None and partition is not None and offset is not None:
        if reading.takes(partition, offset, message.timestamp()[1]):
            printer(message)
    elif error is not None and error.name() == "_PARTITION_EOF" and partition is not None and offset is not None:
        reading.reached_end(partition, offset)
    elif error is not None and not error.retriable():
        raise failure(error, target, topic=reading.topic)


class TextPrinter:
    """Records as lines: headers and key if wanted, then the value, with tabs between."""

    def __init__(self, form: Format, keys: bool, headers: bool, to_terminal: bool) -> None:
        self.form = form
        self.keys = keys
        self.headers = headers
        self.to_terminal = to_terminal

    def __call__(self, message: "Message") -> None:
        parts = [write_bytes(message.value(), self.form)]
        if self.keys:
            parts.insert(0, write_bytes(message.key(), self.form))
        if self.headers:
            parts.insert(0, self._headers(read_headers(message)))
        line = b"\t".join(parts)
        sys.stdout.buffer.write((defuse(line) if self.to_terminal else line) + b"\n")

    def _headers(self, headers: list[Header]) -> bytes:
        return b",".join(key.encode() + b"=" + write_bytes(value, self.form) for key, value in headers) or b"-"


# A record must not be able to move the cursor or retitle the window of whoever looks at it.
CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "�")


def defuse(line: bytes) -> bytes:
    """The line without control characters, tabs and line feeds apart."""
    return line.decode(errors="replace").translate(CONTROLS).encode()


class JsonPrinter:
    """Records as lines of JSON, in the form that `moldau produce --format json` reads."""

    def __init__(self, form: Format) -> None:
        self.form = form

    def __call__(self, message: "Message") -> None:
        print_json_line(record_document(message, self.form))


def record_document(message: "Message", form: Format) -> dict[str, Any]:
    kind, timestamp_ms = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms,
        "timestamp_type": TIMESTAMP_TYPES.get(kind, "none"),
        "time": show_time(timestamp_ms),
        **write_json_bytes("key", message.key(), form),
        **write_json_bytes("value", message.value(), form),
        "headers": write_json_headers(read_headers(message), form),
    }


def read_headers(message: "Message") -> list[Header]:
    headers: Any = message.headers() or []
    return [(key, value.encode() if isinstance(value, str) else value) for key, value in headers]
