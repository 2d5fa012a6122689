"""Tables and JSON of `moldau pipeline`, once or live, and the values of its --from."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from moldau.base.times import read_moment
from moldau.tools.common.failure import misused
from moldau.tools.common.output import print_json, print_table, print_text, show, show_time

if TYPE_CHECKING:
    from rich.console import Group

    from moldau.spark.pipelines.dry_run import DryRun
    from moldau.spark.pipelines.health import Health
    from moldau.spark.pipelines.status import PipelineStatus

LIST_COLUMNS = ("NAME", "STATE", "STARTED", "MASTER", "PID", "QUERIES", "REASON")
DRY_RUN_COLUMNS = ("QUERY", "READS", "WRITES", "MODE", "STATE", "CHECKPOINT")
# Short, so that a row fits into 80 columns: input and processed rows per second, duration of the latest batch.
STATUS_COLUMNS = ("PIPELINE", "STATE", "QUERY", "BATCH", "IN/S", "DONE/S", "LAG", "TOOK MS", "STATE ROWS", "AGE")
REFRESH_S = 1.0
AGES = ((86_400, "d"), (3600, "h"), (60, "m"))


def read_start(text: str, now_ms: int) -> str:
    """`earliest`, `latest`, or milliseconds since the Unix epoch: from an ISO 8601 time, `10m ago` or a number."""
    plain = text.strip()
    if plain.lower() in ("earliest", "latest"):
        return plain.lower()
    try:
        return str(read_moment(plain, now_ms))
    except ValueError:
        raise misused(
            f"--from {text!r} is not a position",
            remedy='Give earliest, latest, a time such as 2026-01-31T12:00:00Z, or an age such as "10m ago"',
        ) from None


def dry_run_rows(result: "DryRun") -> list[tuple[Any, ...]]:
    return [
        (each.name, each.reads, each.writes, each.mode, "resumes" if each.resumes else "new", each.checkpoint)
        for each in result.queries
    ]


def dry_run_document(result: "DryRun") -> dict[str, Any]:
    document = asdict(result)
    for query in document["queries"]:
        query["wrong"] = query.pop("problems")  # the key that scripts know
    return document


def print_list(pipelines: "Sequence[PipelineStatus]", directory: Path, *, json: bool) -> None:
    if json:
        print_json([_document(status) for status in pipelines])
        return
    if not pipelines:
        print_text(_none("No pipeline has run", directory))
        return
    rows = [
        (
            status.name,
            status.overall(_now_ms()),
            show_time(status.started_ms),
            status.master,
            status.pid,
            sorted(status.queries) or None,
            status.reason or None,
        )
        for status in pipelines
    ]
    print_table(LIST_COLUMNS, rows)


def print_status(pipelines: "Sequence[PipelineStatus]", directory: Path, *, json: bool) -> None:
    if json:
        print_json([_document(status) for status in pipelines])
        return
    if not pipelines:
        print_text(_none("No pipeline is running", directory))
        return
    now_ms = _now_ms()
    print_table(STATUS_COLUMNS, [row for status in pipelines for row in _status_rows(status, now_ms)])
    for line in status_lines(pipelines, now_ms):
        print_text(line)


def status_lines(pipelines: "Sequence[PipelineStatus]", now_ms: int) -> list[str]:
    """What is wrong, a sentence for each pipeline and query."""
    found = []
    for status in pipelines:
        if status.reason:
            found.append(f"{status.name}: {status.reason}")
        if status.is_alive and status.failures:
            found.append(f"{status.name}: {_failures(status, now_ms)}: {status.last_failure}")
        for name, health in sorted(status.health(now_ms).items()):
            if health.reason:
                found.append(f"{status.name}, query {name}: {health.reason}{_since(health, now_ms)}")
    return found


def _failures(status: "PipelineStatus", now_ms: int) -> str:
    failed = "failed once" if status.failures == 1 else f"failed {status.failures} times in a row"
    if status.next_try_ms is None:
        return f"{failed} and was started again; the last time"
    return f"{failed}, next try in {max(0, status.next_try_ms - now_ms) // 1000}s; the last time"


def _since(health: "Health", now_ms: int) -> str:
    if health.since_ms is None:
        return ""
    return f" (since {show_time(health.since_ms)}, {show_age(health.since_ms, now_ms)})"


def watch(read: "Callable[[], Sequence[PipelineStatus]]", directory: Path) -> NoReturn:
    """Show the status and renew it every second, until Ctrl-C raises KeyboardInterrupt."""
    from rich.live import Live

    with Live(_table(read(), directory), auto_refresh=False, screen=False) as live:
        while True:
            live.update(_table(read(), directory), refresh=True)
            time.sleep(REFRESH_S)


def _none(fact: str, directory: Path) -> str:
    where = directory.expanduser().absolute()
    return f"{fact} in {where} (--dir names another). Start one with: moldau pipeline run FILE.py"


def _table(pipelines: "Sequence[PipelineStatus]", directory: Path) -> "Group | str":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not pipelines:
        return _none("No pipeline is running", directory)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in STATUS_COLUMNS:
        table.add_column(column, justify="left" if column in ("PIPELINE", "STATE", "QUERY") else "right")
    now_ms = _now_ms()
    for status in pipelines:
        for row in _status_rows(status, now_ms):
            table.add_row(*(show(cell) for cell in row))
    return Group(table, *(Text(line) for line in status_lines(pipelines, now_ms)))


def _status_rows(status: "PipelineStatus", now_ms: int) -> list[tuple[Any, ...]]:
    if not status.queries:
        return [(status.name, status.state, *[None] * (len(STATUS_COLUMNS) - 2))]
    rows = []
    for name, query in sorted(status.queries.items()):
        health = status.health(now_ms).get(name)
        numbers = status.numbers(name, now_ms)
        state = status.state if health is None else health.state
        age = None if query.at_ms is None else show_age(query.at_ms, now_ms)
        rows.append((status.name, state, name, query.batch, *numbers, query.batch_ms, query.state_rows, age))
    return rows


def show_age(at_ms: int, now_ms: int) -> str:
    """Time since then, in the largest unit that fits."""
    seconds = max(0, now_ms - at_ms) // 1000
    for size, unit in AGES:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _document(status: "PipelineStatus") -> dict[str, Any]:
    now_ms = _now_ms()
    return {
        "name": status.name,
        "state": str(status.overall(now_ms)),
        "reason": status.reason or None,
        "file": status.file,
        "master": status.master,
        "pid": status.pid,
        "started": show_time(status.started_ms),
        "ended": None if status.ended_ms is None else show_time(status.ended_ms),
        "failures": status.failures,
        "restarts": status.restarts,
        "last_failure": status.last_failure or None,
        "next_try": None if status.next_try_ms is None else show_time(status.next_try_ms),
        "queries": {name: _query_document(status, name, now_ms) for name in status.queries},
    }


def _query_document(status: "PipelineStatus", name: str, now_ms: int) -> dict[str, Any]:
    query, seen, health = status.queries[name], status.observations.get(name), status.health(now_ms).get(name)
    rows_per_second, processed_per_second, lag = status.numbers(name, now_ms)
    known = None if health is None else seen
    return {
        **asdict(query),
        "state": str(status.state if health is None else health.state),
        "since": None if health is None or health.since_ms is None else show_time(health.since_ms),
        "reason": None if health is None else health.reason or None,
        "rows_per_second": rows_per_second,
        "processed_per_second": processed_per_second,
        "lag": lag,
        "metrics": {
            "minOffsetsBehindLatest": None if known is None else known.min_behind,
            "maxOffsetsBehindLatest": None if known is None else known.max_behind,
            "avgOffsetsBehindLatest": None if known is None else known.avg_behind,
        },
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
