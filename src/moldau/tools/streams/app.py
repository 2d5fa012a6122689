"""`moldau streams`: describe, run, watch, reset and test programs of Streams. The library is moldau.streams."""

import json as js
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.tools.broker.launch import UP_DIRECTORY
from moldau.tools.common.app import App
from moldau.tools.common.failure import CommandError, note, split_pair
from moldau.tools.common.options import Bootstrap, OutputOption, Shared
from moldau.tools.common.output import print_text
from moldau.tools.pipeline.app import Directory, pipeline_errors, run_with_notes, status_command

if TYPE_CHECKING:
    from moldau.streams import Streams

app = App(name="streams", help="Describe, run, watch, reset and test programs of Streams.")

File = Annotated[str, typer.Argument(metavar="FILE.py", help="A file with one Streams.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the Streams.", show_default=False)]


@app.command("describe")
def describe_command(
    file: File,
    svg: Annotated[str | None, typer.Option("--svg", metavar="FILE", help="Write a picture to this file.")] = None,
) -> None:
    """Print the queries, operators and types of a program."""
    program = _load(file)
    with _errors():
        if svg is None:
            print_text(program.describe())
            return
        Path(svg).write_text(program.svg(), encoding="utf-8")
    note(f"The picture of {program.name} is in {svg}")


@app.command("run")
def run_command(
    ctx: typer.Context,
    file: File,
    master: Annotated[
        str, typer.Option("--master", metavar="MASTER", help="local[N], spark://HOST:PORT, yarn or k8s://…")
    ] = "local[*]",
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="Where queries without a checkpoint begin: earliest, latest.")
    ] = "earliest",
    directory: Directory = UP_DIRECTORY,
    settings: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's.")
    ] = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Run a program on Spark until it is stopped. Its queries resume from their checkpoints."""
    if start not in ("earliest", "latest"):
        raise CommandError(f"--from is earliest or latest, not {start}")
    program = _load(file)
    with _errors():
        from moldau.spark.pipelines.run import PipelineSpec
        from moldau.streams.compiler.program import bootstrap_of, starter

        named = bootstrap or (ctx.obj or Shared()).bootstrap or ""
        main = starter(program, directory, named, start)
    spec = PipelineSpec(
        file=file,
        name=program.name,
        data_directory=directory,
        master=master,
        bootstrap=bootstrap_of(program, named),
        settings=dict(split_pair(text, "--conf") for text in settings or ()),
    )
    run_with_notes(spec, load=lambda *_: main)


@app.command("status")
def status_of_program(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", show_default="all that run")] = None,
    directory: Directory = UP_DIRECTORY,
    once: Annotated[bool, typer.Option("--once", help="Print once, also on a terminal.")] = False,
    output: OutputOption = None,
) -> None:
    """Show rates, lag, batch durations and state rows of each query; live on a terminal, until Ctrl-C."""
    status_command(ctx, name, directory, once, output)


@app.command("reset")
def reset_command(
    ctx: typer.Context,
    name: Name,
    directory: Directory = UP_DIRECTORY,
    execute: Annotated[bool, typer.Option("--execute", help="Delete it; without this the plan is printed.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Let a program begin anew: delete its checkpoints and internal topics, not the topics it reads and writes."""
    from moldau.client.settings import DEFAULT_BOOTSTRAP

    with pipeline_errors(directory):
        from moldau.spark.pipelines.directory import pipeline_directory
        from moldau.streams.compiler.running import execute_reset, plan_reset

        where = pipeline_directory(directory, name)
        plan = plan_reset(where)
        if not plan.checkpoints and not plan.topics:
            print_text(f"{name} has neither checkpoints nor internal topics in {where.path}.")
            return
        for path in plan.checkpoints:
            print_text(f"checkpoint {path}")
        for topic in plan.topics:
            print_text(f"internal topic {topic}")
        if execute:
            execute_reset(where, plan, bootstrap or (ctx.obj or Shared()).bootstrap or DEFAULT_BOOTSTRAP)
    print_text("Deleted." if execute else "Nothing was deleted. Add --execute to delete this.")


@app.command("test")
def test_command(file: File) -> None:
    """Pipe records from standard input through a program, without Spark and a broker, and print the results.

    A line is {"topic": "orders", "key": "1", "value": {…}, "timestamp": "2026-11-18T10:00:00Z"}; key and timestamp are
    optional.
    """
    program = _load(file)
    with _errors():
        driver = program.test()
        topics = driver.topics
        for number, line in enumerate(sys.stdin, start=1):
            record = _record(line, number)
            driver.send(record["topic"], record.get("key"), record.get("value"), timestamp=record.get("timestamp"))
            for topic in topics:
                for result in driver.read(topic):
                    shown = {"topic": topic, "key": result.key, "value": result.value}
                    print_text(js.dumps(shown, default=str, ensure_ascii=False))


def _record(line: str, number: int) -> dict[str, Any]:
    try:
        record = js.loads(line)
    except ValueError as wrong:
        raise CommandError(f"line {number} is not JSON: {wrong}") from wrong
    if not isinstance(record, dict) or not isinstance(record.get("topic"), str):
        raise CommandError(f'line {number} is not a record: {{"topic": "…", "key": "…", "value": …}}')
    return record


def _load(file: str) -> "Streams":
    with _errors():
        from moldau.streams.loading import load_app

        return load_app(file)


@contextmanager
def _errors() -> Iterator[None]:
    """Errors of the library as errors of the command."""
    from moldau.spark.pipelines.errors import PipelineError
    from moldau.streams.sql.errors import StreamsError

    try:
        yield
    except (PipelineError, StreamsError) as failed:
        raise CommandError(str(failed)) from failed
