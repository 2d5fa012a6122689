"""Notices the queries that a pipeline's file starts: each must have a name, and a dry run starts none.

PySpark has no hook for that, so while `noticed` is entered `DataStreamWriter.start` and `toTable` are ours. They do
what PySpark's do, after a look.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moldau.spark.pipelines.places import NAME, NAME_RULE, PipelineFailed
from moldau.spark.plans import Reads, Writes, reads_of_frame, writes_of

# The ways in which a batch is written; a dry run leaves them out.
BATCH_WRITES = ("save", "saveAsTable", "insertInto", "json", "parquet", "text", "csv", "orc", "xml", "jdbc")
CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
ADVICE = 'Without one each start would begin anew. Add .queryName("…") to its writeStream'


@dataclass(frozen=True, slots=True)
class Planned:
    """A query as the file wants it."""

    reads: list[Reads]
    writes: Writes
    checkpoint: str

    @property
    def name(self) -> str:
        return self.writes.name or Path(self.checkpoint).name


@dataclass(slots=True)
class Noticed:
    """What the file asked for so far. `queries` stays empty in a dry run."""

    planned: list[Planned] = field(default_factory=list)
    queries: list[Any] = field(default_factory=list)
    batch_writes: int = 0


class NotStarted:
    """Stands for a query in a dry run: it has ended before it began."""

    isActive = False  # noqa: N815 - PySpark's name
    lastProgress = None  # noqa: N815
    recentProgress = ()  # noqa: N815

    def __init__(self, name: str) -> None:
        self.name = self.id = self.runId = name

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        return True

    def processAllAvailable(self) -> None:  # noqa: N802
        """There is none to process."""

    def stop(self) -> None:
        """There is none to stop."""

    def exception(self) -> None:
        return None


@contextmanager
def noticed(started: Callable[[Planned], None] | None = None) -> Iterator[Noticed]:
    """Calls `started` for each query that was; without it this is a dry run."""
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    found = Noticed()
    start, to_table = DataStreamWriter.start, DataStreamWriter.toTable

    def start_it(writer: Any, path: str | None = None, *rest: Any, **named: Any) -> Any:
        rest_of_it = _told_to(writer, rest, named)
        return _take(found, writer, path, lambda: start(writer, path, **rest_of_it), started)

    def to_a_table(writer: Any, tableName: str, *rest: Any, **named: Any) -> Any:  # noqa: N803 - PySpark's name
        rest_of_it = _told_to(writer, rest, named)
        return _take(found, writer, tableName, lambda: to_table(writer, tableName, **rest_of_it), started)

    def left_out(writer: Any, *arguments: Any, **named: Any) -> None:
        found.batch_writes += 1

    batch_writes: dict[str, Callable[..., Any]] = dict.fromkeys(BATCH_WRITES, left_out) if started is None else {}
    stream_writes: dict[str, Callable[..., Any]] = {"start": start_it, "toTable": to_a_table}
    with _in_place_of(DataStreamWriter, stream_writes), _in_place_of(DataFrameWriter, batch_writes):
        yield found


@contextmanager
def _in_place_of(kind: type, methods: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    before = {name: getattr(kind, name) for name in methods}
    for name, method in methods.items():
        setattr(kind, name, method)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(kind, name, method)


def _told_to(writer: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Tells the writer what may also be said when it is started, so that it can be asked for all of it."""
    order = ("format", "outputMode", "partitionBy", "queryName")
    said = {**dict(zip(order, rest, strict=False)), **named}
    for name in ("format", "outputMode", "queryName"):
        value = said.pop(name, None)
        if value is not None:
            getattr(writer, name)(value)
    by = said.pop("partitionBy", None)
    writer.options(**said)
    return {} if by is None else {"partitionBy": by}


def _take(
    found: Noticed,
    writer: Any,
    path: str | None,
    start: Callable[[], Any],
    started: Callable[[Planned], None] | None,
) -> Any:
    writes = writes_of(writer, path)
    checkpoints = writer._spark.conf.get(CHECKPOINTS, None)
    planned = Planned(reads_of_frame(writer._df), writes, _checkpoint(writes, checkpoints))
    found.planned.append(planned)
    if started is None:
        return NotStarted(planned.name)
    query = start()
    found.queries.append(query)
    started(planned)
    return query


def _checkpoint(writes: Writes, checkpoints: str | None) -> str:
    """Where Spark will keep it: where the query says, or in a folder of its name."""
    if writes.checkpoint is not None:
        return writes.checkpoint.removeprefix("file://")
    if writes.name is None:
        raise PipelineFailed(f"a query that writes to {writes.format} has no name. {ADVICE}")
    if not NAME.fullmatch(writes.name):
        raise PipelineFailed(f"{writes.name!r} is no name for a query, whose checkpoint it names: {NAME_RULE}")
    if checkpoints is None:
        raise PipelineFailed(f"{CHECKPOINTS} was unset, so the query {writes.name} would begin anew at each start")
    return f"{checkpoints.removeprefix('file://').rstrip('/')}/{writes.name}"
