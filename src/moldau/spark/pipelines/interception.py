"""Intercept the queries that a pipeline's file starts: each needs a name, and a dry run starts none.

PySpark has no hook for this. Inside `intercept_queries`, `DataStreamWriter.start` and `toTable` are replaced by
functions that record the query, check its name and checkpoint, and then call PySpark's.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moldau.spark.pipelines.directory import NAME, NAME_RULE
from moldau.spark.pipelines.errors import PipelineRunError
from moldau.spark.plans import SinkPlan, SourcePlan, sink_of, sources_of_frame

# Methods that write a batch; a dry run skips them.
BATCH_WRITES = ("save", "saveAsTable", "insertInto", "json", "parquet", "text", "csv", "orc", "xml", "jdbc")
CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
NAME_REMEDY = 'Without a name it has no checkpoint to resume from. Add .queryName("…") to its writeStream'


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A streaming query as the file defines it."""

    reads: list[SourcePlan]
    writes: SinkPlan
    checkpoint: str

    @property
    def name(self) -> str:
        return self.writes.name or Path(self.checkpoint).name


OnStart = Callable[[PlannedQuery, Any], None]  # with PySpark's StreamingQuery


@dataclass(slots=True)
class InterceptedQueries:
    """Queries that the file has started so far. `queries` stays empty in a dry run."""

    planned: list[PlannedQuery] = field(default_factory=list)
    queries: list[Any] = field(default_factory=list)
    batch_writes: int = 0


class DryRunQuery:
    """Stand-in for a StreamingQuery in a dry run: terminated, without progress."""

    isActive = False  # noqa: N815 - PySpark's name
    lastProgress = None  # noqa: N815
    recentProgress = ()  # noqa: N815

    def __init__(self, name: str) -> None:
        self.name = self.id = self.runId = name

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        return True

    def processAllAvailable(self) -> None:  # noqa: N802
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def exception(self) -> None:
        return None


@contextmanager
def intercept_queries(on_start: OnStart | None = None) -> Iterator[InterceptedQueries]:
    """Call `on_start` after each query has started; without `on_start` this is a dry run."""
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    found = InterceptedQueries()
    pyspark_start, pyspark_to_table = DataStreamWriter.start, DataStreamWriter.toTable

    def start(writer: Any, path: str | None = None, *args: Any, **kwargs: Any) -> Any:
        rest = _apply_arguments(writer, args, kwargs)
        return _intercept(found, writer, path, lambda: pyspark_start(writer, path, **rest), on_start)

    def to_table(writer: Any, tableName: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
        rest = _apply_arguments(writer, args, kwargs)
        return _intercept(found, writer, tableName, lambda: pyspark_to_table(writer, tableName, **rest), on_start)

    def skip_batch(writer: Any, *args: Any, **kwargs: Any) -> None:
        found.batch_writes += 1

    batch_writes: dict[str, Callable[..., Any]] = dict.fromkeys(BATCH_WRITES, skip_batch) if on_start is None else {}
    stream_writes: dict[str, Callable[..., Any]] = {"start": start, "toTable": to_table}
    with _patched(DataStreamWriter, stream_writes), _patched(DataFrameWriter, batch_writes):
        yield found


@contextmanager
def _patched(kind: type, methods: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    originals = {name: getattr(kind, name) for name in methods}
    for name, method in methods.items():
        setattr(kind, name, method)
    try:
        yield
    finally:
        for name, method in originals.items():
            setattr(kind, name, method)


def _apply_arguments(writer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Set the arguments of `start` on the writer, so that it knows the whole query; return those without a setter."""
    order = ("format", "outputMode", "partitionBy", "queryName")
    given = {**dict(zip(order, args, strict=False)), **kwargs}
    for name in ("format", "outputMode", "queryName"):
        value = given.pop(name, None)
        if value is not None:
            getattr(writer, name)(value)
    partition_by = given.pop("partitionBy", None)
    writer.options(**given)
    return {} if partition_by is None else {"partitionBy": partition_by}


def _intercept(
    found: InterceptedQueries,
    writer: Any,
    path: str | None,
    start: Callable[[], Any],
    on_start: OnStart | None,
) -> Any:
    writes = sink_of(writer, path)
    checkpoints = writer._spark.conf.get(CHECKPOINTS, None)
    planned = PlannedQuery(sources_of_frame(writer._df), writes, _checkpoint(writes, checkpoints))
    found.planned.append(planned)
    if on_start is None:
        return DryRunQuery(planned.name)
    query = start()
    found.queries.append(query)
    on_start(planned, query)
    return query


def _checkpoint(writes: SinkPlan, checkpoints: str | None) -> str:
    """Checkpoint of the query: its own, or the session's directory with the query's name."""
    if writes.checkpoint is not None:
        return writes.checkpoint.removeprefix("file://")
    if writes.name is None:
        raise PipelineRunError(f"a query that writes to {writes.format} has no name. {NAME_REMEDY}")
    if not NAME.fullmatch(writes.name):
        raise PipelineRunError(f"{writes.name!r} is not a valid query name, which names its checkpoint: {NAME_RULE}")
    if checkpoints is None:
        raise PipelineRunError(f"{CHECKPOINTS} was unset, so the query {writes.name} has no checkpoint to resume from")
    return f"{checkpoints.removeprefix('file://').rstrip('/')}/{writes.name}"
