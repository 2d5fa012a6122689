"""The command line: `python -m benchmarks [OPTIONS]` compares; `cpu`, `isolation` and others are commands."""

import contextlib
import enum
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Column, Table

from benchmarks import clients as python_clients
from benchmarks import cluster as clustered
from benchmarks import compaction as cleaning
from benchmarks import cpu as counter
from benchmarks import enforcement as enforcing
from benchmarks import group_commit, measures, report
from benchmarks import instructions as counting
from benchmarks import isolation as studies
from benchmarks import jars as kafka_jars
from benchmarks import loading as offsets
from benchmarks import quotas as limits
from benchmarks import saturate as saturation
from benchmarks import saturation_measures as saturations
from benchmarks import security as protected
from benchmarks import soak as soaking
from benchmarks.beside_cleaner import beside_cleaner
from benchmarks.compare import compare
from benchmarks.jars import Jars
from benchmarks.peers import ApacheKafka, FromSource, Kind, Moldau, running
from benchmarks.saturation_measures import CONNECTIONS
from benchmarks.spark import connector, sides
from benchmarks.spark import measures as spark_measures
from benchmarks.spark.compare import compare as compare_spark

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="Moldau beside Apache Kafka on this machine."
)
console = Console(highlight=False)
if not console.is_terminal:
    console = Console(highlight=False, width=150)


class Consumer(enum.Enum):
    """Both are librdkafka."""

    KCAT = "kcat"
    CONFLUENT = "confluent-kafka"


Workdir = Annotated[Path | None, typer.Option(help="Directory for the brokers' data.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Small counts, to check that everything runs; the figures mean nothing.")
]
Kafka = Annotated[bool, typer.Option("--kafka", help="Measure Apache Kafka instead of Moldau.")]


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Option(help="A measure or workload by name; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per broker; the median counts.")] = 3,
    quick: Quick = False,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Ours alone.")] = False,
    self_check: Annotated[
        bool, typer.Option("--self-check", help="Apache Kafka in both roles: ratios show the noise of the machine.")
    ] = False,
    soak: Annotated[
        bool, typer.Option("--soak", help="Instead, run a steady load on Moldau and watch for growth.")
    ] = False,
    minutes: Annotated[float, typer.Option(help="How long to soak.")] = 60,
    consumer: Annotated[Consumer | None, typer.Option(help="The consumer; kcat, if installed, uses less CPU.")] = None,
    workdir: Workdir = None,
) -> None:
    """Compare Moldau with Apache Kafka, in alternating rounds."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up as after Ctrl-C
    if context.invoked_subcommand is not None:
        return
    wanted = measures.chosen(only or [])
    if not wanted:
        console.print(f"No such measure; there are: {', '.join(measure.name for measure in measures.MEASURES)}")
        raise typer.Exit(2)
    jars, ours, theirs = _roles(no_kafka, self_check)
    with _scratch(workdir) as scratch:
        if soak:
            _soak(ours, jars, scratch, minutes=minutes, stretch_s=2 if quick else 30)
            return
        sizes = measures.QUICK if quick else measures.FULL
        setting = measures.Setting(jars, sizes, scratch, (consumer or _reader()).value)
        with console.status("") as status:
            results = compare(ours, theirs, wanted, setting, rounds=rounds, say=_saying(status))
            if not only:
                extent = studies.QUICK if quick else studies.NORMAL
                results["isolation"] = studies.study(ours, scratch, extent, [], _saying(status))
    _publish(results, quick=quick or self_check)


@app.command()
def spark(
    only: Annotated[list[str] | None, typer.Option(help="A measure or workload by name; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per side; the median counts.")] = 3,
    quick: Quick = False,
    scale: Annotated[float, typer.Option(help="Times as many records.")] = 1.0,
    side: Annotated[str | None, typer.Option(help="Only one side: ours or theirs.")] = None,
    workdir: Workdir = None,
) -> None:
    """Compare our Spark source and sink with Spark's own Kafka connector, on a Moldau broker."""
    wanted = spark_measures.chosen(only or [])
    if not wanted:
        console.print(f"No such measure; there are: {', '.join(measure.name for measure in spark_measures.MEASURES)}")
        raise typer.Exit(2)
    flavours = _flavours(side)
    sizes = spark_measures.scaled(spark_measures.QUICK if quick else spark_measures.FULL, scale)
    trial = quick or scale < 1
    path = report.TRIAL if trial or only or side else report.SPARK
    with _scratch(workdir) as scratch, console.status("") as status:
        results = compare_spark(
            flavours, wanted, sizes, scratch, rounds=rounds, say=_saying(status),
            keep=lambda found: report.save(found, path),
        )  # fmt: skip
    if trial:
        console.print("[yellow]A trial run: its figures are no measurement.")
    report.show_spark(results, console)
    console.print(f"Figures of all rounds: {path}")
    if results["failures"]:
        raise typer.Exit(1)


@app.command()
def cluster(
    only: Annotated[list[str] | None, typer.Option(help="Prefix of a measure's name; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per cluster; the median counts.")] = 3,
    quick: Quick = False,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Ours alone.")] = False,
    workdir: Workdir = None,
) -> None:
    """Compare clusters of three brokers: replicated produce and consume, failover, memory."""
    if not clustered.chosen(only or []):
        console.print(f"No such measure; there are: {', '.join(measure.name for measure in clustered.MEASURES)}")
        raise typer.Exit(2)
    found = kafka_jars.obtain()
    jars = None if isinstance(found, str) else found
    extent = clustered.QUICK if quick else clustered.FULL
    with _scratch(workdir) as scratch, console.status("") as status:
        results = clustered.compare(
            jars, extent, scratch, _reader().value, kafka=not no_kafka, rounds=rounds, say=_saying(status), only=only
        )
    _publish_cluster(results, quick=quick or bool(only))


@app.command()
def security(
    only: Annotated[list[str] | None, typer.Option(help="Prefix of a measure's name; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per broker; the median counts.")] = 3,
    quick: Quick = False,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Ours alone.")] = False,
    workdir: Workdir = None,
) -> None:
    """Compare brokers with TLS, SCRAM, ACLs and quotas: produce, consume, logins, memory of connections."""
    wanted = protected.chosen(only or [])
    if not wanted:
        console.print(f"No such measure; there are: {', '.join(measure.name for measure in protected.MEASURES)}")
        raise typer.Exit(2)
    found = kafka_jars.obtain()
    jars = None if isinstance(found, str) else found
    theirs = None if no_kafka or jars is None else ApacheKafka(jars)
    extent = protected.QUICK if quick else protected.FULL
    path = report.TRIAL if quick or only else report.SECURITY
    with _scratch(workdir) as scratch, console.status("") as status:
        setting = measures.Setting(jars, extent.sizes, scratch, _reader().value)
        results = protected.compare(Moldau(), theirs, wanted, setting, extent, rounds=rounds, say=_saying(status))
    if quick:
        console.print("[yellow]A trial run: its figures are no measurement.")
    report.show_security(results, console)
    report.save(results, path)
    console.print(f"Figures of all rounds: {path}")


@app.command()
def cpu(
    only: Annotated[str, typer.Option(help="Only replays with this in their name.")] = "",
    scale: Annotated[float, typer.Option(help="Times as many requests.")] = 1.0,
    kafka: Kafka = False,
    workdir: Workdir = None,
) -> None:
    """Measure broker CPU per request and record by replaying the same frames; the fast benchmark for development."""
    table = Table("replay", *(Column(name, justify="right") for name in ("requests", "µs/request", "µs/record", "1/s")))
    with _scratch(workdir) as scratch, running(_one(kafka), scratch, "cpu") as peer:
        for replay in counter.REPLAYS:
            if only in replay.name:
                row = counter.count(peer, replay, scale)
                figures = (
                    f"{row.cpu_us_per_request:.1f}",
                    f"{row.cpu_us_per_record:.3f}",
                    f"{row.requests_per_s:,.0f}",
                )
                table.add_row(row.name, f"{row.requests:,}", *figures)
        table.title = f"CPU of {peer.kind.name} {peer.kind.version}; {peer.rss_bytes() / measures.MIB:.0f} MB resident"
    console.print(table)


@app.command()
def instructions(
    only: Annotated[list[str] | None, typer.Option(help="A measure of saturate by name; may be repeated.")] = None,
    source: Annotated[
        list[Path] | None, typer.Option(help="Moldau of this source tree (a PYTHONPATH); may be repeated.")
    ] = None,
    requests: Annotated[int, typer.Option(min=CONNECTIONS, help="Requests per round.")] = 1_000,
    profiles: Annotated[Path | None, typer.Option(help="Directory for callgrind's files.")] = None,
    workdir: Workdir = None,
) -> None:
    """Count the instructions of a broker per request, which a busy machine does not change."""
    wanted = saturations.chosen(only or list(counting.USUAL))
    if missing := counting.missing_tools():
        console.print(f"Needs {' and '.join(missing)}; on Debian and Ubuntu: apt-get install valgrind")
        raise typer.Exit(2)
    kinds: list[Kind] = [_of_source(each) for each in source or []] or [Moldau()]
    table = Table("measure", "source", *(Column(name, justify="right") for name in ("one in flight", "pipelined", "±")))
    with _scratch(workdir) as scratch, console.status("") as status:
        for kind in kinds:
            for row in counting.count(kind, wanted, scratch, _saying(status), requests=requests, profiles=profiles):
                figures = (f"{row.alone:,.0f}", f"{row.pipelined:,.0f}", f"{row.spread:.1%}")
                table.add_row(row.name, kind.version, *figures)
    table.title = "Instructions per request, without the kernel's"
    console.print(table)


@app.command()
def saturate(
    only: Annotated[list[str] | None, typer.Option(help="A measure by name; may be repeated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per broker; the median counts.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of a round.")] = 5.0,
    quick: Quick = False,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Ours alone.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="Instead of Apache Kafka, Moldau of this source tree (a PYTHONPATH).")
    ] = None,
    workdir: Workdir = None,
) -> None:
    """Measure what one core of each broker can do, with load from another core."""
    wanted = saturations.chosen(only or [])
    if not wanted:
        console.print(f"No such measure; there are: {', '.join(measure.name for measure in saturations.MEASURES)}")
        raise typer.Exit(2)
    cores = saturation.two_cores()
    if cores is None:
        console.print("Needs two cores and Linux: one for the broker, one for the load.")
        raise typer.Exit(2)
    theirs = _opponent(no_kafka, against)
    extent = saturation.QUICK if quick else saturation.Extent(rounds, seconds)
    path = report.TRIAL if quick or only else report.SATURATION_AGAINST if against else report.SATURATION
    with _scratch(workdir) as scratch, console.status("") as status:
        results = saturation.compare(Moldau(), theirs, wanted, extent, cores, scratch, _saying(status))
    if quick:
        console.print("[yellow]A trial run: its figures are no measurement.")
    report.show_saturation(results, console)
    report.save(results, path)
    console.print(f"Figures of all rounds: {path}")


@app.command()
def isolation(
    only: Annotated[list[str] | None, typer.Option(help=f"One of: {', '.join(studies.STUDIES)}.")] = None,
    quick: Quick = False,
    full: Annotated[bool, typer.Option("--full", help="10 GB of log and 5 GB of cold reads.")] = False,
    kafka: Kafka = False,
    source: Annotated[Path | None, typer.Option(help="Moldau of this source tree (a PYTHONPATH).")] = None,
    workdir: Workdir = None,
) -> None:
    """Measure how large logs, many partitions, cold readers, fsyncs, other load and the cleaner affect a producer."""
    extent = studies.QUICK if quick else studies.FULL if full else studies.NORMAL
    kind = _of_source(source) if source is not None else _one(kafka)
    with _scratch(workdir) as scratch, console.status("") as status:
        rows = studies.study(kind, scratch, extent, only or [], _saying(status))
    report.show_isolation(rows, console)
    report.save({"isolation": rows}, report.TRIAL if quick or kafka or source or only else report.ISOLATION)


@app.command()
def fsync(quick: Quick = False, workdir: Workdir = None) -> None:
    """Measure the gain of group commit for producers that wait for fsync."""
    table = Table(*(Column(name, justify="right") for name in ("producers", "requests/s", "gain")))
    with _scratch(workdir) as scratch:
        for row in group_commit.study(scratch, quick=quick):
            table.add_row(str(row.producers), f"{row.requests_per_s:,.0f}", f"{row.gain:.1f} ×")
    table.title = f"flush.messages=1, an fsync takes {group_commit.FSYNC_MS} ms longer than the disk's own"
    console.print(table)


@app.command()
def loading(
    commits: Annotated[int, typer.Option(min=1000, help="Number of offset commits.")] = 10_000_000,
    keys: Annotated[int, typer.Option(min=1000, help="Number of different group and partition pairs.")] = 10_000,
    workdir: Workdir = None,
) -> None:
    """Measure how long a broker takes to load committed offsets, before and after compaction."""
    table = Table("log", "MiB", "seconds until every group is answered")
    with _scratch(workdir) as scratch, console.status("") as status:
        for row in offsets.study(scratch, commits, keys, _saying(status)):
            table.add_row(row.what, f"{row.mib:,.1f}", f"{row.seconds:.1f}")
    table.title = f"{commits:,} commits over {keys:,} keys"
    console.print(table)


@app.command()
def enforcement(
    requests: Annotated[int, typer.Option(min=100, help="Requests to each topic.")] = 3_000,
    workdir: Workdir = None,
) -> None:
    """Measure what a schema costs that a topic declares: records/s, latency, CPU of broker and workers."""
    table = Table("topic", "records/s", "median ms", "p99 ms", "broker µs/record", "workers µs/record")
    with _scratch(workdir) as scratch, console.status("") as status:
        for row in enforcing.study(scratch, requests, _saying(status)):
            times = (f"{each:.2f}" for each in row[2:])
            table.add_row(row.what, f"{row.records_per_s:,.0f}", *times)
    table.title = f"{requests:,} requests of {enforcing.RECORDS} records of {enforcing.RECORD_BYTES} bytes"
    console.print(table)


@app.command()
def compaction(
    rounds: Annotated[int, typer.Option(min=1, help="Measured cleanings; the median is reported.")] = 3,
    records: Annotated[int, typer.Option(min=1000, help="Records of the log.")] = 1_000_000,
    seconds: Annotated[
        float, typer.Option(help="How long to measure a producer during cleaning; 0 for not at all.")
    ] = 8,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Ours alone.")] = False,
    workdir: Workdir = None,
) -> None:
    """Compare the log cleaner with Apache Kafka's on the same log, and measure a producer's p99 meanwhile."""
    found = kafka_jars.obtain()
    jars = None if no_kafka or isinstance(found, str) or not found.compiles else found
    with console.status("") as status:
        with _scratch(workdir) as scratch:
            rows = cleaning.speeds(scratch, jars, records, rounds, _saying(status))
        report.show_compaction(rows, console)
        if seconds:
            with _scratch(workdir) as scratch:
                finding = beside_cleaner(Moldau(), scratch, seconds, rounds, _saying(status)).as_row()
            report.show_isolation([finding], console)
            rows.append(finding)
    report.save({"compaction": rows}, report.COMPACTION)


@app.command()
def quotas(
    rate: Annotated[int, typer.Option(min=1000, help="The quota, in bytes per second.")] = 2_000_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long each client runs.")] = 30,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Ours alone.")] = False,
    workdir: Workdir = None,
) -> None:
    """Compare how close clients come to their quotas, on both brokers at once."""
    found = kafka_jars.obtain()
    jars = None if isinstance(found, str) else found
    kinds: list[Kind] = [Moldau()] if no_kafka or jars is None else [Moldau(), ApacheKafka(jars)]
    table = Table("client", *(Column(kind.name, justify="right") for kind in kinds))
    with _scratch(workdir) as scratch, console.status("") as status:
        rows = list(limits.study(kinds, jars, scratch, rate, seconds, _saying(status)))
    for client in dict.fromkeys(row.client for row in rows):
        table.add_row(client, *(f"{row.ratio:.1%}" for row in rows if row.client == client))
    table.title = f"Bytes of values, of a quota of {rate:,} bytes/s, over {seconds:.0f} s"
    console.print(table)


@app.command()
def clients(
    only: Annotated[list[str] | None, typer.Option(help=f"One of: {', '.join(python_clients.LOADS)}.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per client; the median counts.")] = 3,
    quick: Quick = False,
    kafka: Kafka = False,
    workdir: Workdir = None,
) -> None:
    """Compare Moldau's Python client with confluent-kafka, aiokafka and kafka-python."""
    extent = python_clients.QUICK if quick else replace(python_clients.FULL, rounds=rounds)
    with _scratch(workdir) as scratch, console.status("") as status:
        rows = python_clients.study(_one(kafka), extent, only or [], scratch, _saying(status))
    report.show_clients(rows, console)
    saved = [{"load": row.load, "client": row.client, "rounds": row.rounds} for row in rows]
    report.save({"clients": saved}, report.TRIAL if quick or only or kafka else report.CLIENTS)


@app.command()
def chart(results: Annotated[Path, typer.Argument(help="A results file.")] = report.RESULTS) -> None:
    """Draw the README's chart again from a results file."""
    report.save_chart(report.load(results))
    console.print(f"Chart: {report.CHART}")


def _soak(kind: Kind, jars: Jars | None, scratch: Path, *, minutes: float, stretch_s: float) -> None:
    first: soaking.Sample | None = None
    for sample in soaking.soak(kind, scratch, jars, minutes=minutes, stretch_s=stretch_s):
        first = first or sample
        console.print(
            f"{sample.minutes:6.1f} min  {sample.records:>12,} records  {sample.rss_mb:7.1f} MB"
            f" ({sample.rss_mb / first.rss_mb:.2f} × first)  {sample.open_files} files"
            f"  {sample.cpu_us_per_record:.2f} µs/record  p99 {sample.p99_ms:.1f} ms"
        )


def _reader() -> Consumer:
    return Consumer.KCAT if shutil.which("kcat") else Consumer.CONFLUENT


@contextlib.contextmanager
def _scratch(workdir: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="moldau-bench-", dir=workdir, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _saying(status: Status) -> Callable[[str], None]:
    return status.update if console.is_terminal else console.print


def _one(kafka: bool) -> Kind:
    """Moldau, or Apache Kafka if requested."""
    if not kafka:
        return Moldau()
    found = kafka_jars.obtain()
    if isinstance(found, str):
        console.print(f"No Apache Kafka: {found}.")
        raise typer.Exit(1)
    return ApacheKafka(found)


def _roles(no_kafka: bool, self_check: bool) -> tuple[Jars | None, Kind, Kind | None]:
    found = kafka_jars.obtain()
    if isinstance(found, str):
        console.print(f"[yellow]Ours alone, driven by librdkafka: {found}.")
        return None, Moldau(), None
    kafka = ApacheKafka(found)
    return found, kafka if self_check else Moldau(), None if no_kafka else kafka


def _opponent(no_kafka: bool, against: Path | None) -> Kind | None:
    """Another Moldau, or Apache Kafka, or nobody."""
    if against is not None:
        return _of_source(against)
    if no_kafka:
        return None
    found = kafka_jars.obtain()
    if isinstance(found, str):
        console.print(f"[yellow]Ours alone: {found}.")
        return None
    return ApacheKafka(found)


def _of_source(source: Path) -> Kind:
    if not (source / "moldau" / "__init__.py").exists():
        console.print(f"No Moldau in {source}: name the directory that contains the package, such as ../before/src.")
        raise typer.Exit(2)
    return FromSource(Moldau(), source.resolve())


def _flavours(side: str | None) -> list[sides.Flavour]:
    """Both sides, or the requested one; only ours if the connector is not available."""
    if side == "ours":
        return [sides.ours()]
    found = connector.obtain()
    if isinstance(found, str):
        console.print(f"[yellow]Ours alone: {found}.")
        return [sides.ours()]
    if side == "theirs":
        return [replace(sides.theirs(found), label="ours")]  # the only column of the report
    return [sides.ours(), sides.theirs(found)]


def _publish_cluster(results: dict[str, Any], *, quick: bool) -> None:
    path = report.TRIAL if quick else report.CLUSTER
    report.show_measures(results, console)
    report.save(results, path)
    console.print(f"Medians (least–most) of {results['rounds']} rounds. Figures of all rounds: {path}")


def _publish(results: dict[str, Any], *, quick: bool) -> None:
    if quick:
        console.print("[yellow]A trial run: its figures are no measurement.")
    report.show(results, console)
    report.show_isolation(results.get("isolation", []), console)
    path = report.TRIAL if quick else report.RESULTS
    report.save(results, path)
    console.print(f"Figures of all rounds: {path}")
    if results["theirs"] and not quick:
        report.save_chart(results)
        console.print(f"Chart: {report.CHART}")


if __name__ == "__main__":
    app()
