"""`moldau log dump`: show the content of the files of a log directory. `files` reads and checks them."""

import base64
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from moldau.tools.common.app import App
from moldau.tools.log.check import check
from moldau.tools.log.files import Batch, CorruptFile, Entry, UnknownKind, is_known, kind_of, read_file, read_records
from moldau.wire.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from moldau.wire.compression import Codec

PAGE = 500  # rows of a table that are held at once
SHOWN = 60  # characters of a key or value in a table
LONGEST_CHARACTER = 4  # bytes of UTF-8
WIDE = 1000  # columns where the output is not a terminal
GAP = 2  # columns of space between those of a table
NARROWEST = 20  # a column of text
PROGRESS_AFTER_S = 1.0  # before a progress bar appears

EXIT_CORRUPT = 1
EXIT_UNREADABLE = 2

FLAGS = {
    LOG_APPEND_TIME: "log-append-time",
    TRANSACTIONAL: "transactional",
    CONTROL: "control",
    DELETE_HORIZON: "delete-horizon",
}
TIMES = frozenset({"timestamp"})
MAYBE_EMPTY = ("producer", "flags", "headers", "control")  # columns that a table leaves out when no row has them
WRAPPED = frozenset({"key", "value", "headers", "control", "flags", "topic"})  # the others stay on one line

app = App(name="log", help="Look into the files of a log directory.", no_args_is_help=True)


app.command()(check)


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


class BatchRow(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int
    record_count: int
    codec: str
    flags: tuple[str, ...]
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    crc: int


class BatchLine(NamedTuple):
    """A batch as a table shows it: narrow enough for a terminal."""

    position: int
    size: int
    offsets: str
    records: int
    codec: str
    latest: str
    epoch: int
    producer: str
    flags: tuple[str, ...]

    @classmethod
    def of(cls, row: BatchRow) -> "BatchLine":
        return cls(
            position=row.position,
            size=row.size,
            offsets=f"{row.base_offset}–{row.last_offset}",
            records=row.record_count,
            codec=row.codec,
            latest=_time(row.max_timestamp),
            epoch=row.leader_epoch,
            producer=f"{row.producer_id}:{row.producer_epoch}:{row.base_sequence}" if row.producer_id >= 0 else "",
            flags=row.flags,
        )


class RecordRow(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control: str | None


Show: TypeAlias = Callable[[Path, Iterable[Any]], None]


@app.command()
def dump(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Segments, indexes, snapshots, checkpoints, or a directory of them."),
    ],
    records: Annotated[bool, typer.Option("--records/--no-records", help="Show the records of each batch.")] = False,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="Tables for people, one JSON object per line for programs.")
    ] = None,
) -> None:
    """Show and check segments, indexes, producer snapshots and checkpoints.

    Exit code 1: a file is corrupt. Exit code 2: a file is missing, unreadable or not of a log directory.
    """
    wanted = output or getattr(context.obj, "output", Output.TABLE)  # an -o before the command's name holds here too
    show = _show_json if wanted == Output.JSON else _show_tables
    raise typer.Exit(max((_dump(path, records, show) for path in files), default=0))


def _dump(path: Path, records: bool, show: Show) -> int:
    """A partition's directory stands for all files in it that have something to show."""
    try:
        named = path.is_dir() and sorted(each for each in path.iterdir() if each.is_file() and is_known(each))
    except OSError as error:
        return _complain(path, error.strerror or str(error), EXIT_UNREADABLE)
    return max(_dump_file(each, records, show) for each in named or [path])


def _dump_file(path: Path, records: bool, show: Show) -> int:
    try:
        with _progress(path) as moved_to:
            show(path, _rows(read_file(path), records, moved_to))
    except CorruptFile as error:
        return _complain(path, str(error), EXIT_CORRUPT)
    except UnknownKind as error:
        return _complain(path, str(error), EXIT_UNREADABLE)
    except BrokenPipeError:  # the reader of the output has left; the file is not at fault
        raise
    except OSError as error:
        return _complain(path, error.strerror or str(error), EXIT_UNREADABLE)
    return 0


def _complain(path: Path, reason: str, exit_code: int) -> int:
    sys.stdout.flush()
    print(f"moldau: {_plain(str(path))}: {_plain(reason)}", file=sys.stderr)
    return exit_code


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rows(entries: Iterable[Entry], records: bool, moved_to: Callable[[int], None]) -> Iterator[Any]:
    for entry in entries:
        if not isinstance(entry, Batch):
            yield entry
            continue
        moved_to(entry.position)
        yield _batch_row(entry)
        if records:
            for record, control in read_records(entry):
                yield RecordRow(*record, control)


def _batch_row(batch: Batch) -> BatchRow:
    header = batch.header
    return BatchRow(
        position=batch.position,
        size=header.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        codec=str(Codec(header.codec)) if header.codec in tuple(Codec) else f"unknown ({header.codec})",
        flags=tuple(name for bit, name in FLAGS.items() if header.attributes & bit),
        max_timestamp=header.max_timestamp,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        crc=header.crc,
    )


# The name of an entry in JSON, by its class.
NAMES = {
    "BatchRow": "batch",
    "RecordRow": "record",
    "ZeroTail": "zeros",
    "OffsetEntry": "offset-index",
    "TimeEntry": "time-index",
    "AbortedTransaction": "aborted-transaction",
    "ProducerState": "producer",
    "EpochStart": "leader-epoch",
    "PartitionOffset": "partition-offset",
}


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _show_json(path: Path, rows: Iterable[Any]) -> None:
    for row in rows:
        document: dict[str, Any] = {"file": str(path), "kind": NAMES[type(row).__name__]}
        for name, value in row._asdict().items():
            if name == "headers":
                document[name] = [{"key": key, **_json_bytes("value", content)} for key, content in value]
            elif isinstance(value, bytes):
                document.update(_json_bytes(name, value))
            else:
                document[name] = value
        sys.stdout.write(json.dumps(document) + "\n")


def _json_bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    """Text as text; bytes that are not UTF-8 under another name."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _show_tables(path: Path, rows: Iterable[Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)
    title: Text | None = None
    for page in _pages(rows):
        title = title or _print_title(console, path)
        _print_page(console, page)
    if title is None:
        _print_title(console, path)
        _print(console, Text("no entries", style="dim"))


def _print(console: Console, shown: RenderableType) -> None:
    """Write without rich, which ends the program when a reader has left."""
    with console.capture() as capture:
        console.print(shown)
    sys.stdout.write(capture.get())


def _pages(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Consecutive rows of one type; those before a damaged entry are shown before its error."""
    page: list[Any] = []
    try:
        for row in rows:
            if page and (type(row) is not type(page[0]) or len(page) == PAGE):
                yield page
                page = []
            page.append(row)
    except CorruptFile:
        if page:
            yield page
        raise
    if page:
        yield page


def _print_title(console: Console, path: Path) -> Text:
    title = Text(f"{_plain(str(path))}: {kind_of(path).name}", style="bold")
    _print(console, title)
    return title


def _print_page(console: Console, page: list[Any]) -> None:
    """One table. A column of numbers or times is never cut: the table grows beyond a narrow terminal instead."""
    rows = [BatchLine.of(row) if isinstance(row, BatchRow) else row for row in page]
    empty = {name for name in MAYBE_EMPTY if all(not getattr(row, name, None) for row in rows)}
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    columns, width = [], 0
    for name in rows[0]._fields:
        if name in empty:
            continue
        cells = [_cell(name, getattr(row, name)) for row in rows]
        words = name.split("_")
        fixed = name not in WRAPPED
        least = max(map(len, (*cells, *words))) if fixed else NARROWEST
        numeric = isinstance(getattr(rows[0], name), int) and name not in TIMES
        table.add_column("\n".join(words), justify="right" if numeric else "left", overflow="fold", no_wrap=fixed)
        columns.append(cells)
        width += least + GAP
    for line in zip(*columns, strict=True):
        table.add_row(*map(Text, line))
    console.width = max(console.width, width)
    _print(console, table)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in TIMES:
        return _time(value)
    if name == "headers":
        return ", ".join(f"{_plain(key)}={_cell('value', content)}" for key, content in value)
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bytes):
        return _plain(value[: (SHOWN + 1) * LONGEST_CHARACTER].decode("utf-8", "backslashreplace"), SHOWN)
    return _plain(str(value))


def _plain(text: str, most: int | None = None) -> str:
    """Without control characters and lone surrogates: a record must not steer the terminal that shows it."""
    shown = text if most is None else text[:most]
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)
    return safe + "…" if len(shown) < len(text) else safe


def _time(milliseconds: int) -> str:
    if milliseconds < 0:
        return str(milliseconds)
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # no year that a calendar has
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ── progress ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], None]]:
    """A bar on stderr once the work takes long, unless the rows themselves scroll over the same terminal."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda position: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # the rows go where the user sent them, not above the bar
    )
    task = bar.add_task(_plain(path.name), total=path.stat().st_size if path.is_file() else None)
    due = time.monotonic() + PROGRESS_AFTER_S

    def moved_to(position: int) -> None:
        if time.monotonic() >= due:
            bar.start()
            bar.update(task, completed=position)

    try:
        yield moved_to
    finally:
        bar.stop()
