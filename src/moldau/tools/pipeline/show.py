"""How pipelines are shown, once or live, and how a place to start from is written. Knows nothing of Spark."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from moldau.tools.common.failure import misused
from moldau.tools.common.formats import read_span, read_time
from moldau.tools.common.output import print_json, print_table, print_text, show, show_time

if TYPE_CHECKING:
    from rich.table import Table

    from moldau.spark.pipelines.places import Record

LIST_COLUMNS = ("NAME", "STATE", "STARTED", "MASTER", "PID", "QUERIES", "REASON")
# Short, so that a row fits into 80 columns: rows that came and that were done each second, how long a batch took.
STATUS_COLUMNS = ("PIPELINE", "STATE", "QUERY", "BATCH", "IN/S", "DONE/S", "LAG", "TOOK MS", "STATE ROWS", "AGE")
REFRESH_S = 1.0
AGO = " ago"
AGES = ((86_400, "d"), (3600, "h"), (60, "m"))


def read_start(text: str, now_ms: int) -> str:
    """`earliest`, `latest`, or milliseconds since 1970: from a number of them, an ISO 8601 time or `10m ago`."""
    plain = text.strip()
    if plain.lower() in ("earliest", "latest"):
        return plain.lower()
    try:
        if plain.lower().endswith(AGO):
            found = now_ms - read_span(plain[: -len(AGO)].strip().replace(" ", ""))
        else:
            found = read_time(plain)
    except ValueError:
        found = -1
    if found < 0:
        raise misused(
            f"--from {text!r} is not a place to begin",
            remedy='Give earliest, latest, a time such as 2026-01-31T12:00:00Z, or a while such as "10m ago"',
        )
    return str(found)


def print_list(records: "Sequence[Record]", *, json: bool) -> None:
    if json:
        print_json([_document(record) for record in records])
        return
    if not records:
        print_text("No pipeline has run here. Start one with: moldau pipeline run FILE.py")
        return
    rows = [
        (
            record.name,
            record.state,
            show_time(record.started_ms),
            record.master,
            record.pid,
            sorted(record.queries) or None,
            record.reason or None,
        )
        for record in records
    ]
    print_table(LIST_COLUMNS, rows)


def print_status(records: "Sequence[Record]", *, json: bool) -> None:
    if json:
        print_json([_document(record) for record in records])
        return
    if not records:
        print_text("No pipeline is running. Start one with: moldau pipeline run FILE.py")
        return
    print_table(STATUS_COLUMNS, [row for record in records for row in _status_rows(record)])
    for record in records:
        if record.reason:
            print_text(f"{record.name}: {record.reason}")


def watch(look: "Callable[[], Sequence[Record]]") -> None:
    """The same, anew every second, until Ctrl-C."""
    from rich.live import Live

    with Live(_table(look()), auto_refresh=False, screen=False) as live:
        try:
            while True:
                live.update(_table(look()), refresh=True)
                time.sleep(REFRESH_S)
        except KeyboardInterrupt:
            return


def _table(records: "Sequence[Record]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in STATUS_COLUMNS:
        table.add_column(column, justify="left" if column in ("PIPELINE", "STATE", "QUERY") else "right")
    for record in records:
        for row in _status_rows(record):
            table.add_row(*(show(cell) for cell in row))
    if not records:
        table.add_row("(none is running)")
    return table


def _status_rows(record: "Record") -> list[tuple[Any, ...]]:
    queries: dict[str, dict[str, Any]] = record.queries or {"": {}}
    return [
        (
            record.name,
            record.state,
            name or None,
            query.get("batch"),
            query.get("rows_per_second"),
            query.get("processed_per_second"),
            query.get("lag"),
            query.get("batch_ms"),
            query.get("state_rows"),
            None if query.get("at_ms") is None else show_age(query["at_ms"], time.time_ns() // 1_000_000),
        )
        for name, query in sorted(queries.items())
    ]


def show_age(at_ms: int, now_ms: int) -> str:
    """How long ago that was, in the largest unit of which there is one."""
    seconds = max(0, now_ms - at_ms) // 1000
    for size, unit in AGES:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _document(record: "Record") -> dict[str, Any]:
    return {
        "name": record.name,
        "state": str(record.state),
        "reason": record.reason or None,
        "file": record.file,
        "master": record.master,
        "pid": record.pid,
        "started": show_time(record.started_ms),
        "ended": None if record.ended_ms is None else show_time(record.ended_ms),
        "queries": record.queries,
    }
