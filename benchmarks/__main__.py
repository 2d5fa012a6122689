"""The command line: `python -m benchmarks [OPTIONS]` compares; `cpu`, `isolation`, `chart` are commands."""

import signal
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks import jars as kafka_jars
from benchmarks import measures, report
from benchmarks.compare import compare
from benchmarks.jars import Jars
from benchmarks.peers import ApacheKafka, Kind, Moldau

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="Moldau beside Apache Kafka on this machine."
)
console = Console(highlight=False)
if not console.is_terminal:
    console = Console(highlight=False, width=150)

Workdir = Annotated[Path | None, typer.Option(help="Where brokers keep their data meanwhile.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small counts: shows that everything runs; not for figures.")]


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
    consumer: Annotated[str, typer.Option(help="What reads: confluent-kafka or kcat.")] = "confluent-kafka",
    workdir: Workdir = None,
) -> None:
    """Compare Moldau with Apache Kafka, in alternating rounds."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it cleans up as Ctrl-C does
    if context.invoked_subcommand is not None:
        return
    wanted = measures.chosen(only or [])
    if not wanted:
        console.print(f"No such measure; there are: {', '.join(measure.name for measure in measures.MEASURES)}")
        raise typer.Exit(2)
    jars, ours, theirs = _roles(no_kafka, self_check)
    with tempfile.TemporaryDirectory(prefix="moldau-bench-", dir=workdir) as scratch:
        sizes = measures.QUICK if quick else measures.FULL
        setting = measures.Setting(jars, sizes, Path(scratch), consumer)
        with console.status("") as status:
            results = compare(ours, theirs, wanted, setting, rounds=rounds, say=_saying(status))
    _publish(results, quick=quick or self_check)


def _saying(status: Any) -> Any:
    def say(text: str) -> None:
        status.update(text) if console.is_terminal else console.print(text)

    return say


def _roles(no_kafka: bool, self_check: bool) -> tuple[Jars | None, Kind, Kind | None]:
    found = kafka_jars.obtain()
    if isinstance(found, str):
        console.print(f"[yellow]Ours alone, driven by librdkafka: {found}.")
        return None, Moldau(), None
    kafka = ApacheKafka(found)
    return found, kafka if self_check else Moldau(), None if no_kafka else kafka


def _publish(results: dict[str, Any], *, quick: bool) -> None:
    report.show(results, console)
    path = report.TRIAL if quick else report.RESULTS
    report.save(results, path)
    console.print(f"Figures of all rounds: {path}")
    if results["theirs"] and not quick:
        report.save_chart(results)
        console.print(f"Chart: {report.CHART}")


if __name__ == "__main__":
    try:
        app()
    except KeyboardInterrupt:
        console.print("Stopped; the brokers are gone and their directories too.")
        raise SystemExit(130) from None
