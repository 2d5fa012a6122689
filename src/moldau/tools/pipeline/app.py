"""`moldau pipeline`: runs Spark pipelines, and tells of those that run. What happens is in moldau.spark.pipelines."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.tools.broker.launch import UP_DIRECTORY
from moldau.tools.common.failure import OK, CommandError, misused, note, split_pair
from moldau.tools.common.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption, Shared
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.connect import Target, check_reachable
from moldau.tools.pipeline.show import print_list, print_status, read_start, watch

if TYPE_CHECKING:
    from moldau.spark.pipelines.places import Place, Record
    from moldau.spark.pipelines.run import Request
    from moldau.spark.pipelines.writers import Planned

app = typer.Typer(name="pipeline", help="Run Spark pipelines, and see how they fare.", add_completion=False)

LOOK_AGAIN_S = 0.1
Directory = Annotated[
    str, typer.Option("--dir", metavar="DIR", help="The data directory.", show_default=f"./{UP_DIRECTORY}")
]
File = Annotated[str, typer.Argument(metavar="FILE.py", help="Plain PySpark with a main(spark).", show_default=False)]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARG...]", help="For the file: its sys.argv.", show_default=False)
]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help='Where queries without a checkpoint begin: earliest, latest, an ISO 8601 time or "10m ago".',
        show_default="what the file says, or latest",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, as -o json does.")]


def _wants_json(ctx: typer.Context, output: Output | None, json: bool = False) -> bool:
    return json or (output or (ctx.obj or Shared()).output) is Output.JSON


@app.command("run")
def run_command(
    ctx: typer.Context,
    file: File,
    arguments: Arguments = None,
    master: Annotated[
        str, typer.Option("--master", metavar="MASTER", help="local[N], spark://HOST:PORT, yarn or k8s://…")
    ] = "local[*]",
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The pipeline's name.", show_default="the file's")
    ] = None,
    start: Start = None,
    directory: Directory = UP_DIRECTORY,
    pack: Annotated[
        str | None, typer.Option("--pack", metavar="FILE", help="For executors: what moldau spark pack made.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's.")
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Check everything and tell the plan; start nothing.")] = False,
    bootstrap: Bootstrap = None,
    output: OutputOption = None,
) -> None:
    """Run a pipeline until its queries end, or it is stopped. Queries go on where they were.

    Exit code 0 if it was stopped or has finished, 1 if something failed.
    """
    if name == "":
        raise misused("--name is empty", remedy="Leave it out to take the file's name")
    outer = ctx.obj or Shared()
    named = bootstrap or outer.bootstrap
    if named:
        check_reachable(Target(named))
    from moldau.spark.pipelines.run import Request

    request = Request(
        file=file,
        name=Path(file).stem if name is None else name,
        directory=_checked(directory),
        master=master,
        bootstrap=named or DEFAULT_BOOTSTRAP,
        start="" if start is None else read_start(start, time.time_ns() // 1_000_000),
        pack=pack or "",
        settings=dict(split_pair(text, "--conf") for text in settings or ()),
        arguments=tuple(arguments or ()),
    )
    if dry:
        _rehearse(request, _wants_json(ctx, output))
    else:
        _run(request)


def _checked(directory: str) -> str:
    if not directory:
        raise misused("--dir is empty", remedy="Name the data directory")
    return directory


def _run(request: "Request") -> None:
    from moldau.spark.pipelines.places import PipelineFailed
    from moldau.spark.pipelines.run import run

    try:
        state = run(request, Speaker())
    except PipelineFailed as failed:
        raise CommandError(str(failed)) from failed
    note(f"The pipeline {request.name} is {state}.")


class Speaker:
    """Tells the person who typed `run` what happens."""

    def ready(self, place: "Place") -> None:
        note(f"The pipeline {place.name} runs; Spark's log is {place.log}")
        note(
            f"Look with: moldau pipeline status {place.name}. Stop it with Ctrl-C or: moldau pipeline stop {place.name}"
        )

    def started(self, query: "Planned") -> None:
        note(f"Query {query.name} is started; its checkpoint is {query.checkpoint}")

    def idle(self, place: "Place") -> None:
        note(f"main of {place.name} started no streaming query: there is nothing to wait for.")

    def stopping(self, place: "Place") -> None:
        note(f"Stopping {place.name}: its queries end after the batch that runs.")


def _rehearse(request: "Request", json: bool) -> None:
    from dataclasses import asdict

    from moldau.spark.pipelines.places import PipelineFailed
    from moldau.spark.pipelines.rehearsal import rehearse

    try:
        found = rehearse(request)
    except PipelineFailed as failed:
        raise CommandError(str(failed)) from failed
    if json:
        print_json(asdict(found))
    else:
        rows = [
            (each.name, each.reads, each.writes, each.mode, "goes on" if each.resumes else "begins", each.checkpoint)
            for each in found.queries
        ]
        print_table(("QUERY", "READS", "WRITES", "MODE", "STATE", "CHECKPOINT"), rows)
        if found.batch_writes:
            print_text(f"Besides, main writes {found.batch_writes} batch(es) at once; the dry run left that out.")
        print_text("This was a dry run: nothing was started or written.")
    wrong = [f"query {each.name}: {problem}" for each in found.queries for problem in each.wrong]
    if wrong:
        raise CommandError("; ".join(wrong))
    if not found.queries:
        note("main started no streaming query.")


@app.command("list")
def list_command(
    ctx: typer.Context, directory: Directory = UP_DIRECTORY, output: OutputOption = None, json: Json = False
) -> None:
    """List the pipelines that run, and those that ran."""
    records = [record for _, record in _records(directory)]
    print_list(records, json=_wants_json(ctx, output, json))


@app.command("status")
def status_command(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", show_default="all that run")] = None,
    directory: Directory = UP_DIRECTORY,
    once: Annotated[bool, typer.Option("--once", help="Print once, also on a terminal.")] = False,
    output: OutputOption = None,
    json: Json = False,
) -> None:
    """Show rates, lag, batch times and rows of state; live on a terminal, until Ctrl-C."""
    as_json = _wants_json(ctx, output, json)

    def look() -> list[Any]:
        if name is not None:
            return [_record_of(directory, name)[1]]
        from moldau.spark.pipelines.places import ALIVE

        return [record for _, record in _records(directory) if record.state in ALIVE]

    if as_json or once or not sys.stdout.isatty():
        print_status(look(), json=as_json)
    else:
        watch(look)


@app.command("stop")
def stop_command(
    name: Name,
    directory: Directory = UP_DIRECTORY,
    timeout: Annotated[float, typer.Option("--timeout", metavar="S", min=0, help="How long to wait for it.")] = 60.0,
) -> None:
    """Stop a pipeline: its queries end between two batches, and go on from there when it runs again."""
    from moldau.spark.pipelines.places import ALIVE, is_held

    place, record = _record_of(directory, name)
    if record.state not in ALIVE:
        raise CommandError(f"the pipeline {name} is not running: it is {record.state}")
    try:
        os.kill(record.pid, signal.SIGTERM)
    except ProcessLookupError:
        raise CommandError(f"the pipeline {name} has just ended") from None
    except PermissionError:
        raise CommandError(f"the pipeline {name} belongs to another user (process {record.pid})") from None
    until = time.monotonic() + timeout
    while is_held(place):
        if time.monotonic() > until:
            raise CommandError(
                f"{name} has not ended within {timeout:g} s: a batch may take longer",
                remedy=f"Look at it with: moldau pipeline status {name}; process {record.pid}",
            )
        time.sleep(LOOK_AGAIN_S)
    _, record = _record_of(directory, name)
    if record.reason:
        raise CommandError(f"{name} is {record.state}: {record.reason}")
    print_text(f"{name} is {record.state}.")
    raise typer.Exit(OK)


def _records(directory: str) -> "list[tuple[Place, Record]]":
    from moldau.spark.pipelines.places import PipelineFailed, all_places, read_record

    try:
        places = all_places(_checked(directory))
    except PipelineFailed as failed:
        raise CommandError(str(failed)) from failed
    return [(place, record) for place in places if (record := read_record(place)) is not None]


def _record_of(directory: str, name: str) -> "tuple[Place, Record]":
    for place, record in _records(directory):
        if place.name == name:
            return place, record
    known = ", ".join(place.name for place, _ in _records(directory)) or "none"
    raise CommandError(f"there is no pipeline {name!r} in {directory}", remedy=f"There are: {known}")
