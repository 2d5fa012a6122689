"""The command line: `python -m chaos` runs the matrix, `run` one run by its seed, `check` looks at a history again,
`simulate` runs replication on a virtual clock in one process.
"""

import os
import sys
import tempfile
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chaos import matrix
from chaos.checker import check
from chaos.faults import ANYWHERE, FAULTS
from chaos.history import load
from chaos.run import Outcome, Plan, run
from chaos.simulation import simulations
from chaos.workloads.table import WORKLOADS, available, missing

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run clients on a cluster under faults, and check that nothing is lost.",
)
console = Console(highlight=False)
if not console.is_terminal:
    console = Console(highlight=False, width=150)

Seed = Annotated[int, typer.Option(help="Decides the faults and what the clients do.")]
Rounds = Annotated[int, typer.Option(min=0, help="Faults of a run.")]
SYSTEMS = ("moldau", "apache")
Where = Annotated[Path | None, typer.Option(help="Directory for histories and logs; a new one by default.")]
Security = Annotated[bool, typer.Option("--security", help="SASL_SSL with SCRAM, and ACLs; between brokers too.")]
System = Annotated[str, typer.Option(help="moldau or apache: three nodes of Apache Kafka, to check the checker.")]


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    seed: Seed = 1,
    repeat: Annotated[int, typer.Option(min=1, help="How often each fault occurs in the run of its kind.")] = 3,
    mixes: Annotated[int, typer.Option(min=0, help="Runs with all faults.")] = 4,
    system: System = "moldau",
    security: Security = False,
    directory: Where = None,
) -> None:
    """Run faults of each kind, then mixes of all; write the tables of docs/reliability.md."""
    if context.invoked_subcommand is not None:
        return
    _check_system(system, security=security)
    home = _home(directory)
    for name, reason in missing().items():
        console.print(f"Without {name}: {reason}", style="red", markup=False)
    outcomes = [
        _run(plan, home / f"seed-{plan.seed}") for plan in matrix.plans(seed, repeat, mixes, system, security=security)
    ]
    for title, (headings, make) in matrix.TABLES.items():
        table = Table(*headings, title=title or None)
        for row in make(outcomes):
            table.add_row(*row)
        console.print(table)
    console.print(matrix.verdict(outcomes))
    bad = [outcome for outcome in outcomes if not outcome.good]
    for outcome in bad:
        console.print(outcome.complaint, style="red", markup=False)
    if system == "moldau" and not security:  # the page has the runs without
        matrix.publish(outcomes)
        console.print(f"Table: {matrix.PAGE}")
    if bad:
        raise typer.Exit(1)


@app.command(name="run")
def one(
    seed: Seed = 1,
    rounds: Rounds = 3,
    rate: Annotated[float, typer.Option(help="Records per second of each producer.")] = 100.0,
    fault: Annotated[list[str] | None, typer.Option(help=f"Any of: {', '.join(FAULTS)}.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help=f"Any of: {', '.join(WORKLOADS)}.")] = None,
    system: System = "moldau",
    security: Security = False,
    directory: Where = None,
) -> None:
    """Run one plan; a failed run prints the command that repeats it."""
    _check_system(system, security=security)
    known = ANYWHERE if system == "apache" else list(FAULTS)
    _known("--fault", known, fault or ())
    _known("--workload", WORKLOADS, workload or ())
    plan = Plan(seed, fault or known, workload or available(), rounds, rate, system, security)
    outcome = _run(plan, _home(directory) / f"seed-{seed}")
    if not outcome.good:
        raise typer.Exit(1)


@app.command(name="check")
def look(history: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A history file.")]) -> None:
    """Check a recorded history again."""
    try:
        events = list(load(history))
    except (KeyError, TypeError, ValueError) as problem:
        raise typer.BadParameter(f"{history} is not a history: {problem!r}") from problem
    found = check(events)
    for anomaly in found:
        console.print(str(anomaly), markup=False)
    console.print(f"{len(found)} anomalies")
    if found:
        raise typer.Exit(1)


@app.command()
def simulate(
    seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs.")] = 100,
    minutes: Annotated[float, typer.Option(help="Simulated minutes of each run.")] = 10.0,
    workers: Annotated[int, typer.Option(min=1, help="Processes to run them in.")] = os.cpu_count() or 1,
    every: Annotated[float, typer.Option(min=0, help="Seconds between two lines of progress, at least.")] = 10.0,
) -> None:
    """Simulate replication on a virtual clock, with faults by seed. The same seed gives the same run."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # otherwise the order of sets differs from process to process
        os.execve(sys.executable, [sys.executable, "-m", "chaos", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"})
    bad, told = 0, time.monotonic()
    total = simulations.Total()
    for report in simulations.simulate_all(range(seed, seed + seeds), minutes * 60, workers):
        total.add(report)
        if report.problem:
            bad += 1
            console.print(
                f"seed {report.seed}, {report.hours * 60:.1f} min: {report.problem}", style="red", markup=False
            )
            again = f"python -m chaos simulate --seeds 1 --seed {report.seed} --minutes {minutes:g}"
            console.print(f"again: {again}", markup=False)
        if time.monotonic() - told >= every and total.simulations < seeds:
            told = time.monotonic()
            console.print(total.progress(seeds), markup=False)
    console.print(total.summary, markup=False)
    if bad:
        raise typer.Exit(1)


def _run(plan: Plan, directory: Path) -> Outcome:
    outcome = run(plan, directory, console.print)
    console.print(outcome.summary, markup=False)
    if not outcome.good:  # now, in case the matrix is interrupted later
        console.print(outcome.complaint, style="red", markup=False)
    return outcome


def _check_system(system: str, *, security: bool) -> None:
    _known("--system", SYSTEMS, [system])
    if security and system != "moldau":
        raise typer.BadParameter("Apache Kafka runs without security here", param_hint="--security")


def _known(option: str, names: Collection[str], wanted: Iterable[str]) -> None:
    """Reject an unknown name before anything is started."""
    for name in wanted:
        if name not in names:
            raise typer.BadParameter(f"{name!r} is not known. Any of: {', '.join(names)}", param_hint=option)


def _home(directory: Path | None) -> Path:
    return directory or Path(tempfile.mkdtemp(prefix="moldau-chaos-"))


if __name__ == "__main__":
    app()
