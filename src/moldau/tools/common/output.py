"""Output of commands: tables that fit a terminal, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

WIDE = 100_000  # a pipe has no width: never fold a table into one
NUMERIC = (int, float)
LAST_MOMENT_MS = 253_402_300_799_999  # the end of the year 9999


def print_json(value: Any) -> None:
    """One JSON document: indented for a person, on one line for a program."""
    indent = 2 if sys.stdout.isatty() else None
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=indent) + "\n")


def print_json_line(value: Any) -> None:
    """One line of a stream of JSON objects."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def print_text(text: str) -> None:
    sys.stdout.write(text + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
    """A plain table: numbers to the right, the rest to the left."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_edge=False)
    for index, column in enumerate(columns):
        held = [row[index] for row in cells if row[index] is not None]
        numeric = bool(held) and all(isinstance(cell, NUMERIC) for cell in held)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(show(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)
    with console.capture() as capture:  # written by us: rich ends the program when a reader has left
        if title:
            console.print(Text(title, style="bold"))
        console.print(table)
    for line in capture.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def show(cell: Any) -> str:
    """A cell's text: lists with commas, nothing as a dash."""
    if cell is None:
        return "-"
    if isinstance(cell, (list, tuple)):
        return ",".join(str(item) for item in cell)
    return str(cell)


def counted(number: int, noun: str) -> str:
    """`1 broker`, `2 brokers`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def show_time(milliseconds: int) -> str | None:
    """A record's timestamp as ISO 8601 in UTC; None for none, and for one beyond the calendar."""
    if not 0 <= milliseconds <= LAST_MOMENT_MS:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
