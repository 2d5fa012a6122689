"""`moldau produce`: write lines as records."""

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import IO, Annotated, Any

import typer

from moldau.base.times import read_time
from moldau.client.admin.clients import TOPIC_WAIT_S, of_client
from moldau.client.admin.errors import NoSuchPartition
from moldau.client.admin.target import Target
from moldau.client.errors import BufferFull, ClientError, KafkaFailure, TimedOut
from moldau.client.producer.delivery import Delivery
from moldau.client.producer.producer import Producer
from moldau.tools.common.app import App
from moldau.tools.common.complete import complete_topic
from moldau.tools.common.failure import INTERRUPTED, CommandError, misused, note, split_pair
from moldau.tools.common.formats import BadRecordError, Draft, Format, Header, read_line, write_json_bytes
from moldau.tools.common.interrupts import Interrupts
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import counted, print_json_line, print_text
from moldau.tools.records import refused
from moldau.tools.records.clients import failure_of, open_producer
from moldau.tools.records.watch import tell_stalls, why_stalled

app = App()

DELIVERY_TIMEOUT_MS = 30_000
FULL_S = 0.2  # a wait for room in the buffer, between two looks for Ctrl-C
FLUSH_S = 0.5  # the same at the end


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


@dataclass(slots=True)
class Tally:
    """Records so far: delivered, failed, and why."""

    topic: str
    reports: bool
    sent: int = 0
    delivered: int = 0
    failed: int = 0
    first_failure: str = ""
    timed_out: bool = False
    lines: int = field(default=0)
    known: deque[tuple[int, Draft, Delivery]] = field(default_factory=deque)  # outcomes that `count` has not seen
    invalid: list[tuple[int, Draft]] = field(default_factory=list)  # the first records that the broker calls so

    @property
    def left(self) -> int:
        """Records without an outcome."""
        return max(self.sent - self.delivered - self.failed - len(self.known), 0)

    def keep(self, number: int, draft: Draft, delivery: Delivery) -> None:
        """Called in the producer's thread. `number`: of the record, from 1."""
        self.known.append((number, draft, delivery))

    def count(self) -> None:
        """Count and report the outcomes that are known by now."""
        while self.known:
            number, draft, delivery = self.known.popleft()
            error = delivery.exception(0)
            if error is None:
                self.delivered += 1
            else:
                self.timed_out = self.timed_out or error.name == "MSG_TIMED_OUT"
                if error.name in refused.NAMES and len(self.invalid) < refused.ASKED_AT_MOST:
                    self.invalid.append((number, draft))
                self._fail(str(of_client(error, self.topic)))
            if self.reports:
                print_json_line(delivery_report(draft, delivery))

    def refuse(self, reason: str) -> None:
        """A record that was not sent."""
        self.sent += 1
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or reason


def delivery_report(draft: Draft, delivery: Delivery) -> dict[str, Any]:
    error = delivery.exception(0)
    if error is not None:
        name = error.name or type(error).__name__
        return {"topic": delivery.topic, "partition": draft.partition, "error": name, "message": str(error)}
    report: dict[str, Any] = delivery.result(0)._asdict()
    return {**report, **write_json_bytes("key", draft.key, Format.TEXT)}


@client_command(app, "produce")
def produce(
    context: CommandContext,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)],
    file: Annotated[str | None, typer.Option("--file", "-f", metavar="FILE", help="Read it instead of stdin.")] = None,
    form: Annotated[Format, typer.Option("--format", help="The format of a line.")] = Format.TEXT,
    separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", metavar="TEXT", help="Splits a line into key and value.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="A header for every record.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Write to this partition.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="TIME", help="Of every record: ISO 8601 or milliseconds.")
    ] = None,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Replicas that must have a record.")] = Acks.ALL,
    idempotent: Annotated[
        bool | None,
        typer.Option(
            "--idempotent/--no-idempotent",
            help="Never write a record twice when retrying.",
            show_default="with --acks all",
        ),
    ] = None,
) -> None:
    """Write lines from stdin or a file as records.

    With --format json a line is an object: {"key": …, "value": …, "headers": …, "partition": …, "timestamp": …}.
    """
    if idempotent and acks is not Acks.ALL:
        raise misused(f"--idempotent needs --acks all, not {acks.value}")
    if separator is not None and (form is Format.JSON or not separator):
        raise misused("--key-separator needs at least one character, and a --format other than json")
    common = Draft(None, None, read_headers(header or []), partition, _read_timestamp(timestamp))
    settings = {
        "acks": acks.value,
        "compression.type": compression.value,
        "enable.idempotence": acks is Acks.ALL if idempotent is None else idempotent,
        "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    }
    target = context.target
    with _open_lines(file) as lines, open_producer(target, settings, FULL_S) as producer:
        _check_partition(_await_topic(producer, target, topic), topic, partition)
        tally = Tally(topic, context.json)
        if file is None and sys.stdin.isatty():
            note("Type records, one on a line; Ctrl-D ends.")
        with Interrupts() as interrupts, _watched(target, tally):
            drafts = read_drafts(interrupts.read_lines(lines), form, separator, common, tally)
            _send_all(producer, drafts, tally, interrupts)
    _conclude(tally, context)
    if interrupts.asked:
        raise typer.Exit(INTERRUPTED)


def _watched(target: Target, tally: Tally) -> AbstractContextManager[None]:
    until = f", up to {DELIVERY_TIMEOUT_MS // 1000} s for each record"
    return tell_stalls(target, lambda: (tally.sent, tally.left), lambda: tally.left > 0, until)


def read_headers(texts: list[str]) -> tuple[Header, ...]:
    return tuple((key, value.encode()) for key, value in (split_pair(text, "--header") for text in texts))


def _read_timestamp(text: str | None) -> int | None:
    try:
        return None if text is None else read_time(text)
    except ValueError as error:
        raise misused(f"--timestamp {error}") from None


@contextmanager
def _open_lines(file: str | None) -> Iterator[IO[bytes]]:
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        opened = open(file, "rb")  # noqa: SIM115 - only the opening may fail with this message
    except OSError as error:
        raise misused(f"cannot read --file {file}: {error.strerror}") from error
    with opened:
        yield opened


def read_drafts(
    lines: Iterable[bytes], form: Format, separator: str | None, common: Draft, tally: Tally
) -> Iterator[Draft]:
    """Records from lines. Ends at the first line that is not a record."""
    for line in lines:
        tally.lines += 1
        try:
            draft = read_line(line.rstrip(b"\n").removesuffix(b"\r"), form, separator)
        except BadRecordError as bad:
            tally.refuse(f"line {tally.lines} is not a record; reading stopped there: {bad}")
            return
        yield replace(
            draft,
            headers=common.headers + draft.headers,
            partition=common.partition if draft.partition is None else draft.partition,
            timestamp_ms=common.timestamp_ms if draft.timestamp_ms is None else draft.timestamp_ms,
        )


def _await_topic(producer: Producer[Any, Any], target: Target, topic: str) -> int:
    """The number of its partitions. A broker with auto.create.topics.enable creates it now, which takes a moment."""
    deadline = time.monotonic() + TOPIC_WAIT_S
    while True:
        try:
            return producer.partitions(topic)
        except KafkaFailure as failure:
            if not failure.retriable or time.monotonic() > deadline:
                raise failure_of(failure, target, topic) from failure


def _check_partition(count: int, topic: str, partition: int | None) -> None:
    if partition is not None and partition >= count:
        raise NoSuchPartition(topic, partition, count)


def _send_all(producer: Producer[Any, Any], drafts: Iterable[Draft], tally: Tally, interrupts: Interrupts) -> None:
    try:
        for draft in drafts:
            _send(producer, draft, tally, interrupts)
            tally.count()
        told = False
        while not _flushed(producer):  # in steps, so that a second Ctrl-C gets through
            tally.count()
            if interrupts.asked and not told:
                note(f"Waiting for {counted(tally.left, 'record')} to be written; Ctrl-C again stops waiting.")
                told = True
        tally.count()
    except KeyboardInterrupt:
        note(f"Stopped waiting for {counted(tally.left, 'record')}, which may be written or not.")
        raise


def _flushed(producer: Producer[Any, Any]) -> bool:
    try:
        producer.flush(FLUSH_S)
    except TimedOut:
        return False
    return True


def _send(producer: Producer[Any, Any], draft: Draft, tally: Tally, interrupts: Interrupts) -> None:
    while True:
        try:
            producer.send(
                tally.topic,
                draft.value,
                key=draft.key,
                headers=draft.headers or None,
                partition=draft.partition,
                timestamp=draft.timestamp_ms,
                on_delivery=partial(tally.keep, tally.sent + 1, draft),
            )
        except BufferFull:
            if interrupts.asked:
                return  # not sent, as all that follow it
            tally.count()
        except ClientError as error:  # too large, or no such partition
            tally.refuse(str(of_client(error, tally.topic)))
            return
        else:
            tally.sent += 1
            return


def _ask_why(tally: Tally, target: Target) -> None:
    """Why the broker refused records."""
    explained = refused.explain(target, tally.topic, tally.invalid)
    if explained is not None:
        tally.failed -= explained.written
        tally.delivered += explained.written
        tally.first_failure = explained.text or tally.first_failure


def _conclude(tally: Tally, context: CommandContext) -> None:
    if tally.invalid:
        _ask_why(tally, context.target)
    if tally.failed:
        problem = f"{tally.failed} of {tally.delivered + tally.failed} records failed: {tally.first_failure}"
        cause = why_stalled(context.target) if tally.timed_out else ""
        raise CommandError(f"{problem}: {cause}" if cause else problem)
    if not context.json:
        print_text(f"Produced {counted(tally.delivered, 'record')} to {tally.topic}.")
