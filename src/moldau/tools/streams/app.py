"""`moldau streams`: describe and test programs of Streams. The library is moldau.streams."""

import json as js
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.tools.common.app import App
from moldau.tools.common.failure import CommandError, note
from moldau.tools.common.output import print_text

if TYPE_CHECKING:
    from moldau.streams import Streams

app = App(name="streams", help="Describe and test programs of Streams.")

File = Annotated[str, typer.Argument(metavar="FILE.py", help="A file with one Streams.", show_default=False)]


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
