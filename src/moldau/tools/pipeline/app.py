"""`moldau pipeline`: run, list, show, stop and adopt Spark pipelines. The library is moldau.spark.pipelines."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.client.admin.reachability import check_reachable
from moldau.client.admin.target import Target
from moldau.client.settings import DEFAULT_BOOTSTRAP
from moldau.tools.broker.launch import UP_DIRECTORY
from moldau.tools.common.app import App
from moldau.tools.common.failure import INTERRUPTED, OK, CommandError, misused, note, split_pair
from moldau.tools.common.options import Bootstrap, Output, OutputOption, Shared
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.pipeline.adopt import adopt_target, local_path, print_adopted
from moldau.tools.pipeline.restart import read_restart, restarts_of, take_attempt
from moldau.tools.pipeline.show import (
    DRY_RUN_COLUMNS,
    dry_run_document,
    dry_run_rows,
    print_list,
    print_status,
    read_start,
    watch,
)

if TYPE_CHECKING:
    from moldau.spark.pipelines.errors import PipelineError
    from moldau.spark.pipelines.restarts import Restarts
    from moldau.spark.pipelines.run import PipelineSpec
    from moldau.spark.pipelines.script import Load
    from moldau.spark.pipelines.status import PipelineStatus

app = App(name="pipeline", help="Run and watch Spark pipelines.")

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
        show_default="as in the file, or latest",
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
        str | None, typer.Option("--pack", metavar="FILE", help="For executors: an archive of moldau spark pack.")
    ] = None,
    restart: Annotated[
        str,
        typer.Option("--restart", metavar="no|on-failure[:N]", help="Start again after a failure, N times in a row."),
    ] = "no",
    restart_delay: Annotated[
        str, typer.Option("--restart-delay", metavar="SPAN", help="Before the first restart; doubles with each.")
    ] = "5s",
    settings: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's.")
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Check everything and tell the plan; start nothing.")] = False,
    bootstrap: Bootstrap = None,
    output: OutputOption = None,
) -> None:
    """Run a pipeline until its queries terminate or it is stopped. Queries resume from their checkpoints.

    Exit code 0 if it was stopped or has finished, 1 if something failed.
    """
    if name == "":
        raise misused("--name is empty", remedy="Leave it out to take the file's name")
    outer = ctx.obj or Shared()
    named = bootstrap or outer.bootstrap
    policy = read_restart(restart, restart_delay)
    attempt = take_attempt()
    if named and attempt is None:
        check_reachable(Target(named))
    from moldau.spark.pipelines.run import PipelineSpec

    spec = PipelineSpec(
        file=file,
        name=Path(file).stem if name is None else name,
        data_directory=_checked(directory),
        master=master,
        bootstrap=named or DEFAULT_BOOTSTRAP,
        start=attempt.start if attempt else "" if start is None else read_start(start, time.time_ns() // 1_000_000),
        pack=pack or "",
        settings=dict(split_pair(text, "--conf") for text in settings or ()),
        arguments=tuple(arguments or ()),
    )
    if dry:
        _dry_run(spec, _wants_json(ctx, output))
    else:
        run_with_notes(spec, None if policy is None else restarts_of(policy, spec, attempt))


def _checked(directory: str) -> str:
    if not directory:
        raise misused("--dir is empty", remedy="Name the data directory")
    return directory


def run_with_notes(spec: "PipelineSpec", restarts: "Restarts | None" = None, load: "Load | None" = None) -> None:
    """Run a pipeline, and print what happens to standard error."""
    from moldau.spark.pipelines.directory import PipelineDirectory
    from moldau.spark.pipelines.interception import PlannedQuery
    from moldau.spark.pipelines.run import RunListener, run_pipeline
    from moldau.spark.pipelines.script import load_main

    where = _where(spec.data_directory)

    class Printer(RunListener):
        """Prints the events of a run to standard error."""

        def spark_started(self, directory: PipelineDirectory) -> None:
            name = directory.name
            note(f"The pipeline {name} is running; Spark logs to {directory.log}")
            note(f"Watch it with: moldau pipeline status {name}{where}")
            note(f"Stop it with Ctrl-C or: moldau pipeline stop {name}{where}")

        def query_started(self, query: PlannedQuery) -> None:
            note(f"Started query {query.name}; its checkpoint is {query.checkpoint}")

        def no_query_started(self, directory: PipelineDirectory) -> None:
            note(f"main of {directory.name} started no streaming query.")

        def stopping(self, directory: PipelineDirectory) -> None:
            note(f"Stopping {directory.name}: its queries end after their current batch.")

        def retrying(self, directory: PipelineDirectory, reason: str, failures: int, delay_s: float) -> None:
            times = "once" if failures == 1 else f"{failures} times in a row"
            note(f"The pipeline {directory.name} failed {times}, and starts again in {delay_s:g} s: {reason}")

    with pipeline_errors(spec.data_directory):
        status = run_pipeline(spec, Printer(), restarts, load or load_main)
    note(f"The pipeline {spec.name} is {status.state}.")


def _dry_run(spec: "PipelineSpec", json: bool) -> None:
    from moldau.spark.pipelines.dry_run import dry_run
    from moldau.spark.pipelines.signals import StopRequested

    try:
        with pipeline_errors(spec.data_directory):
            result = dry_run(spec)
    except StopRequested:
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print_json(dry_run_document(result))
    else:
        print_table(DRY_RUN_COLUMNS, dry_run_rows(result))
        if result.batch_writes:
            print_text(f"main also writes {result.batch_writes} batch(es); the dry run skipped them.")
        print_text("This was a dry run: nothing was started or written.")
    problems = [f"query {each.name}: {problem}" for each in result.queries for problem in each.problems]
    if problems:
        raise CommandError("; ".join(problems))
    if not result.queries:
        note("main started no streaming query.")


@app.command("list")
def list_command(
    ctx: typer.Context, directory: Directory = UP_DIRECTORY, output: OutputOption = None, json: Json = False
) -> None:
    """List the pipelines that run, and those that ran."""
    print_list(_pipelines(directory), Path(directory), json=_wants_json(ctx, output, json))


@app.command("status")
def status_command(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", show_default="all that run")] = None,
    directory: Directory = UP_DIRECTORY,
    once: Annotated[bool, typer.Option("--once", help="Print once, also on a terminal.")] = False,
    output: OutputOption = None,
    json: Json = False,
) -> None:
    """Show rates, lag, batch durations and state rows; live on a terminal, until Ctrl-C."""
    as_json = _wants_json(ctx, output, json)

    def read() -> "list[PipelineStatus]":
        if name is None:
            return [status for status in _pipelines(directory) if status.is_alive]
        from moldau.spark.pipelines.control import pipeline_status

        with pipeline_errors(directory):
            return [pipeline_status(directory, name)]

    if as_json or once or not sys.stdout.isatty():
        print_status(read(), Path(directory), json=as_json)
    else:
        watch(read, Path(directory))


@app.command("stop")
def stop_command(
    name: Name,
    directory: Directory = UP_DIRECTORY,
    timeout: Annotated[float, typer.Option("--timeout", metavar="S", min=0, help="How long to wait for it.")] = 60.0,
) -> None:
    """Stop a pipeline between two batches. Its queries resume from there when it runs again."""
    from moldau.spark.pipelines.control import stop_pipeline

    with pipeline_errors(_checked(directory)):
        status = stop_pipeline(directory, name, timeout)
    if status.reason:
        raise CommandError(f"{name} is {status.state}: {status.reason}")
    print_text(f"{name} is {status.state}.")
    raise typer.Exit(OK)


@app.command("adopt")
def adopt_command(
    ctx: typer.Context,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Of a stopped query.", show_default=False)],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Pipeline that takes it over.")] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="QUERY", help="Its queryName.", show_default="the directory's"),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PATH", help="For a query outside of pipelines.")] = None,
    directory: Directory = UP_DIRECTORY,
    dry: Annotated[bool, typer.Option("--dry-run", help="Show where the query would go on; write nothing.")] = False,
    output: OutputOption = None,
) -> None:
    """Take over the checkpoint of a format("kafka") query, so that it goes on with format("moldau") without a gap.

    The checkpoint is copied, and the original stays as it is. Stop the old query first.
    """
    from moldau.spark.pipelines.adopt import adopt_checkpoint

    original = local_path(checkpoint)
    target = adopt_target(original, name, query, to, _checked(directory))
    with pipeline_errors(directory):
        found = adopt_checkpoint(original, target, dry_run=dry)
    print_adopted(found, name, dry=dry, json=_wants_json(ctx, output))


def _pipelines(directory: str) -> "list[PipelineStatus]":
    from moldau.spark.pipelines.control import list_pipelines

    with pipeline_errors(_checked(directory)):
        return list_pipelines(directory)


@contextmanager
def pipeline_errors(directory: str) -> Iterator[None]:
    """Turn errors of the library into errors of the command, with a remedy."""
    from moldau.spark.pipelines.errors import PipelineError

    try:
        yield
    except PipelineError as failed:
        raise CommandError(str(failed), remedy=_remedy(failed, directory)) from failed


def _remedy(failed: "PipelineError", directory: str) -> str:
    from moldau.spark.pipelines import errors

    match failed:
        case errors.PipelineAlreadyRunning():
            stop = f"moldau pipeline stop {failed.name}{_where(directory)}"
            return f"Stop it with: {stop}; or give this one another --name"
        case errors.PipelineDirectoryError():
            return "Name another directory with --dir"
        case errors.PipelineNotFound():
            known = f"Pipelines there: {', '.join(failed.known)}" if failed.known else "No pipeline has run there"
            return f"{known}. --dir names another data directory"
        case errors.StopTimeout():
            look = f"moldau pipeline status {failed.name}{_where(directory)}"
            return f"It stops after its current batch. Watch it with: {look}"
        case _:
            return ""


def _where(directory: str) -> str:
    """The --dir that a command to copy needs."""
    return "" if directory == UP_DIRECTORY else f" --dir {shlex.quote(directory)}"
