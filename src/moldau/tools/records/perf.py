"""`moldau perf`: throughput and latency of a broker, measured from this machine with librdkafka and Python.

Moldau's own Producer and Consumer are not used: their work for each record would be measured too.
Producing is timed from the first record handed over to the last acknowledgement; a record's latency is librdkafka's own
figure, from the hand-over to its acknowledgement, so it includes the time spent waiting for a batch to fill. Every
record is counted, none is sampled. Consuming is timed from the assignment of partitions to the last record.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.client.admin.clients import (
    admin_error,
    await_topic,
    build_consumer,
    build_producer,
    explain,
    of_unused_group,
    read_topic,
)
from moldau.tools.common.app import App
from moldau.tools.common.complete import complete_topic
from moldau.tools.common.failure import INTERRUPTED, CommandError, note
from moldau.tools.common.interrupts import Interrupts
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import counted, print_json, print_table
from moldau.tools.records.produce import Acks, Compression
from moldau.tools.records.watch import tell_stalls, why_stalled

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

app = App(name="perf", help="Measure the throughput and latency of a broker.")

CHUNK = 1000  # records handed over in one call
QUEUE_FULL_S = 0.01
PACED_S = 0.005  # with --rate, records are handed over in steps of this length
AFTER_CTRL_C_S = 3.0  # how long to wait for acknowledgements after Ctrl-C
IDLE_LIMIT_S = 10.0  # consuming fails when nothing arrives for so long
MEGABYTE = 1_000_000
CLIENT = "one Python process with librdkafka"
TICKS_PER_MS = 100  # latencies are kept to a hundredth of a millisecond

Advance = Callable[[int], None]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="The same as -o json.")]


@dataclass(slots=True)
class Latencies:
    """How often each latency occurred: exact to a hundredth of a millisecond, however many records there are."""

    ticks: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float) -> None:
        self.ticks[round(seconds * 1000 * TICKS_PER_MS)] += 1

    def percentile(self, share: float) -> float:
        """The smallest latency, in milliseconds, that at least this share of the records did not exceed."""
        wanted = share * self.ticks.total()
        seen = 0
        for tick in sorted(self.ticks):
            seen += self.ticks[tick]
            if seen >= wanted:
                return tick / TICKS_PER_MS
        return 0.0

    def average(self) -> float:
        total = self.ticks.total()
        return sum(tick * count for tick, count in self.ticks.items()) / total / TICKS_PER_MS if total else 0.0

    def summary(self) -> dict[str, float]:
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        return {"avg": round(self.average(), 2), **{name: self.percentile(share) for name, share in shares.items()}}


@dataclass(slots=True)
class Deliveries:
    """Acknowledgements so far."""

    latencies: Latencies = field(default_factory=Latencies)
    delivered: int = 0
    failed: int = 0
    reason: str = ""

    def on_delivery(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self.failed += 1
            self.reason = self.reason or explain(error)
            return
        self.delivered += 1
        self.latencies.add(message.latency() or 0.0)


@client_command(app, "produce")
def produce(
    context: CommandContext,
    topic: Topic,
    records: Annotated[int, typer.Option("--records", "-n", metavar="N", min=1, help="How many to write.")] = 1_000_000,
    size: Annotated[int, typer.Option("--size", "-s", metavar="BYTES", min=0, help="Bytes in each value.")] = 100,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="R", min=0.001, help="At most so many a second.")
    ] = None,
    acks: Annotated[Acks, typer.Option("--acks")] = Acks.ALL,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="BYTES", min=1, help="Bytes in a batch, at most.")
    ] = 1_000_000,
    linger: Annotated[
        float, typer.Option("--linger", metavar="MS", min=0, help="Milliseconds to wait for a batch to fill.")
    ] = 5.0,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    json: Json = False,
) -> None:
    """Write random records as fast as they go, or at a rate, and time their acknowledgements.

    The load generator is this one Python process with librdkafka, so it measures the client as well. It is not the
    generator of docs/performance.md: Kafka's own ProducerPerformance writes about three times as fast.
    """
    producer = build_producer(
        context.target,
        **{
            "acks": acks.value,
            "enable.idempotence": acks is Acks.ALL,
            "batch.size": batch_size,
            "linger.ms": linger,
            "compression.type": compression.value,
            "queue.buffering.max.messages": 100_000,
            # A large record should fail at the broker's limit, not at the client's.
            "message.max.bytes": max(1_000_000, size + 100_000),
        },
    )
    await_topic(producer, context.target, topic)
    deliveries = Deliveries()
    load = Load(topic, [os.urandom(size) for _ in range(CHUNK)], records, rate)
    started = time.perf_counter()
    with (
        _progress(records, "producing", quiet=context.json or json) as advance,
        Interrupts() as interrupts,
        tell_stalls(context.target, lambda: deliveries.delivered, lambda: len(producer) > 0, ""),
    ):
        _send(producer, load, deliveries, advance, interrupts)
    elapsed = time.perf_counter() - started
    if deliveries.failed:
        cause = why_stalled(context.target)
        problem = f"{deliveries.failed} of {records} records failed: {deliveries.reason}"
        raise CommandError(f"{problem}: {cause}" if cause else problem)
    count = deliveries.delivered
    report = {
        **throughput(count, count * size, elapsed),
        "latency_ms": deliveries.latencies.summary(),
        "client": f"{CLIENT}, acks={acks.value}, {'idempotent' if acks is Acks.ALL else 'not idempotent'}",
    }
    _conclude(report, context.json or json, interrupts)


@dataclass(frozen=True, slots=True)
class Load:
    """The records to write: these values, over and over."""

    topic: str
    values: list[bytes]
    records: int
    rate: float | None

    def due(self, elapsed_s: float) -> int:
        """How many records should have been handed over by now."""
        return self.records if self.rate is None else min(self.records, int(elapsed_s * self.rate) + 1)


def _send(producer: "Producer", load: Load, deliveries: Deliveries, advance: Advance, interrupts: Interrupts) -> None:
    batch: list[dict[str, Any]] = [{"value": value} for value in load.values]
    sent = 0
    started = time.perf_counter()
    while sent < load.records and not deliveries.failed and not interrupts.asked:
        wanted = min(len(batch), load.due(time.perf_counter() - started) - sent)
        if not wanted:
            producer.poll(PACED_S)
            continue
        queued = producer.produce_batch(load.topic, batch[:wanted], on_delivery=deliveries.on_delivery)
        if queued < wanted:
            for message in batch:  # librdkafka marks those for which its queue was full
                message.pop("_error", None)
            producer.poll(QUEUE_FULL_S)
        sent += queued
        producer.poll(0)
        advance(deliveries.delivered)
    patient_until = time.perf_counter() + AFTER_CTRL_C_S
    while left := producer.flush(0.2):
        advance(deliveries.delivered)
        if interrupts.asked and time.perf_counter() > patient_until:
            note(f"Without an acknowledgement: {counted(left, 'record')}.")
            break
    advance(deliveries.delivered)


@client_command(app, "consume")
def consume(
    context: CommandContext,
    topic: Topic,
    records: Annotated[int, typer.Option("--records", "-n", metavar="N", min=1, help="How many to read.")] = 1_000_000,
    json: Json = False,
) -> None:
    """Read records from the beginning of the topic and time it."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    consumer = build_consumer(
        context.target, **{"enable.partition.eof": False, "queued.min.messages": 1_000_000, "fetch.wait.max.ms": 100}
    )
    try:
        partitions = read_topic(consumer, context.target, topic).partitions
        started = time.perf_counter()
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        with _progress(records, "consuming", quiet=context.json or json) as advance, Interrupts() as interrupts:
            count, size, first_s = _receive(consumer, context, records, started, advance, interrupts)
        elapsed = time.perf_counter() - started
    finally:
        consumer.close()
    report = {**throughput(count, size, elapsed), "first_record_ms": round(first_s * 1000, 1), "client": CLIENT}
    _conclude(report, context.json or json, interrupts)


def _receive(
    consumer: "Consumer",
    context: CommandContext,
    records: int,
    started: float,
    advance: Advance,
    interrupts: Interrupts,
) -> tuple[int, int, float]:
    count = size = 0
    first_s = 0.0
    last = time.perf_counter()
    while count < records and not interrupts.asked:
        messages = consumer.consume(min(10 * CHUNK, records - count), 0.1)
        now = time.perf_counter()
        if not messages:
            if now - last > IDLE_LIMIT_S:
                raise CommandError(f"received {count} of {records} records, and none for {IDLE_LIMIT_S:.0f} s")
            continue
        last = now
        for message in messages:
            error = message.error()
            if error is None:
                count += 1
                size += len(message)
            elif not error.retriable() and not of_unused_group(error):
                raise admin_error(error, context.target)
        first_s = first_s or now - started
        advance(count)
    return count, size, first_s


def throughput(records: int, size: int, elapsed_s: float) -> dict[str, Any]:
    return {
        "records": records,
        "bytes": size,
        "seconds": round(elapsed_s, 3),
        "records_per_s": round(records / elapsed_s, 1),
        "mb_per_s": round(size / elapsed_s / MEGABYTE, 2),
    }


def _conclude(report: dict[str, Any], as_json: bool, interrupts: Interrupts) -> None:
    """The figures, also of a measurement that Ctrl-C cut short."""
    _print_report(report, as_json)
    if interrupts.asked:
        raise typer.Exit(INTERRUPTED)


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    rows = [
        ("records", f"{report['records']:,}"),
        ("time", f"{report['seconds']:.2f} s"),
        ("throughput", f"{report['records_per_s']:,.0f} records/s, {report['mb_per_s']:,.2f} MB/s"),
    ]
    if "first_record_ms" in report:
        rows.append(("first record", f"after {report['first_record_ms']:.1f} ms"))
    if "latency_ms" in report:
        figures = ", ".join(f"{name} {value:.2f}" for name, value in report["latency_ms"].items())
        rows.append(("latency (ms)", figures))
    rows.append(("client", report["client"]))
    print_table(("MEASURE", "VALUE"), rows)
    note("The client limits these figures. Those of docs/performance.md come from another load generator.")


@contextmanager
def _progress(total: int, verb: str, *, quiet: bool) -> Iterator[Advance]:
    """A progress bar on a terminal; yields the function to call with the count so far."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda done: progress.update(task, completed=done)
