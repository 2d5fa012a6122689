"""Topics of a broker as the inputs and outputs of queries, by Moldau's source and sink for Spark.

Results and dead letters are written exactly once per task (docs/spark.md, Exactly once); everything is read committed.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from moldau.streams.compiler.columns import ORIGIN, columns_of
from moldau.streams.compiler.plan import output_shape
from moldau.streams.compiler.stateless import Frame
from moldau.streams.sql.spark_text import spark_text, text_literal
from moldau.streams.sql.types import (
    BINARY,
    STRING,
    Array,
    Field,
    Map,
    Struct,
    Type,
    ddl,
    quoted,
    spelled,
    without_nulls_known,
)
from moldau.streams.topology.formats import Format
from moldau.streams.topology.nodes import Apply, Flow, Kind, Shape, Sink, Source
from moldau.streams.topology.queries import Internal, Outlet, Query

ZONE: Final = 3 * "X"  # of Spark's patterns: +02:00, or Z
TIMES: Final = f"'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS{ZONE}'"
WRITTEN: Final = f"map('ignoreNullFields', 'false', {TIMES})"
READ: Final = f"map('mode', 'FAILFAST', {TIMES})"
REFRESH_S: Final = 10.0  # how often a global table is read again
MAX_ROWS: Final = 1_000_000  # of a global table, which each executor holds whole


class GlobalTableTooLarge(Exception):
    """A global table has more rows than each executor should hold."""


class Topics:
    """What a topology reads and writes, with the options of all sources and sinks (`kafka.bootstrap.servers`, …)."""

    def __init__(self, spark: Any, options: Mapping[str, str], dead_letters: str = "", start: str = "earliest") -> None:
        self._spark = spark
        self._options = dict(options)
        self._dead_letters = dead_letters
        self._start = start
        self._tables: dict[Source, tuple[float, Frame]] = {}

    def source(self, source: Source) -> Frame:
        frame = self._stream(source.topic, self._decoding(source))
        return _typed(source, frame)

    def internal(self, internal: Internal, shape: Shape) -> Frame:
        frame = self._stream(internal.topic, {})
        columns = {name: kind for name, kind in columns_of(shape).items() if name not in ORIGIN}
        payload = Struct(tuple(Field(name, kind) for name, kind in columns.items()))
        read = frame.selectExpr(from_json("string(value)", payload) + " AS record", *ORIGIN)
        return read.selectExpr(*(f"record.{quoted(name)}" for name in columns), *ORIGIN)

    def table(self, source: Source) -> Frame:
        """The newest row of each key, read again when the last reading is a while ago."""
        known = self._tables.get(source)
        if known is not None and time.monotonic() - known[0] < REFRESH_S:
            return known[1]
        reader = self._spark.read.format("moldau").options(**self._options, **self._decoding(source))
        rows = _typed(source, reader.option("subscribe", source.topic).load())
        aged = rows.selectExpr("key", "value", "row_number() OVER (PARTITION BY key ORDER BY offset DESC) AS age")
        table = aged.where("age = 1 AND value IS NOT NULL").select("key", "value").persist()
        count = table.count()
        if count > MAX_ROWS:
            raise GlobalTableTooLarge(
                f"global table {source.topic} has {count} rows, and the limit is {MAX_ROWS}: declare it with app.table"
            )
        if known is not None:
            known[1].unpersist()
        self._tables[source] = (time.monotonic(), table)
        return table

    def write(self, query: Query, outlet: Outlet, frame: Frame, batch: int) -> None:
        from moldau.spark import sink

        node = outlet.node
        if isinstance(node, Apply) and node.flow is Flow.FOR_EACH:
            frame.write.format("noop").mode("append").save()
            return
        if outlet.internal is not None:
            topic = outlet.internal.topic
            rows = frame.selectExpr(*internal_columns(output_shape(node)))
        else:
            assert isinstance(node, Sink)
            topic = node.topic
            rows = frame.selectExpr(*written_columns(node))
        name = outlet.internal.topic if outlet.internal else node.name
        sink(self._options, topic=topic, delivery="exactly-once", sinkName=name)(rows, batch)

    def _stream(self, topic: str, more: Mapping[str, str]) -> Frame:
        reader = self._spark.readStream.format("moldau").options(**self._options, **more)
        return reader.option("subscribe", topic).option("startingOffsets", self._start).load()

    def _decoding(self, source: Source) -> dict[str, str]:
        own = {"kafka.isolation.level": "read_committed"}
        if source.value.name == "json" and isinstance(source.value.type, Struct):
            own |= {"decode": "json", "valueSchema": ddl(source.value.type)}
            if self._dead_letters:
                own |= {"deadLetters": self._dead_letters, "delivery": "exactly-once"}
        return own


def _typed(source: Source, frame: Frame) -> Frame:
    """Rows of the source of Spark as records."""
    decoded = isinstance(source.value.type, Struct) and source.value.name == "json"
    value = "value" if decoded else decoded_text("value", source.value)
    columns = (f"{decoded_text('key', source.key)} AS key", f"{value} AS value", "timestamp", "partition", "offset")
    rows = frame.selectExpr(*columns)
    if source.processing_time:
        moment = "current_timestamp()"
    elif source.time is None:
        moment = "timestamp"
    else:
        missing = text_literal(f"a record of {source.topic} has no time")
        moment = f"coalesce({spark_text(source.time)}, raise_error({missing}))"
    rows = rows.selectExpr("key", "value", f"timestamp_millis(unix_millis({moment})) AS timestamp", *ORIGIN)
    return rows if source.shape.kind is Kind.STREAM else rows.where("key IS NOT NULL")


def decoded_text(column: str, form: Format) -> str:
    """A column of bytes as a value, in SQL."""
    if form.type == BINARY and form.name == "raw":
        return column
    if form.name == "string":
        return f"string({column})"
    return from_json(f"string({column})", form.type)


def from_json(text: str, kind: Type) -> str:
    if isinstance(kind, Struct):
        return f"from_json({text}, {text_literal(ddl(without_nulls(kind)))}, {READ})"
    schema = text_literal(f"v {spelled(kind)}")
    return f"""from_json(concat('{{"v":', {text}, '}}'), {schema}, {READ}).v"""


def without_nulls(kind: Struct) -> Struct:
    read = without_nulls_known(kind)
    assert isinstance(read, Struct)
    return read


def written_columns(node: Sink) -> list[str]:
    key = "key"
    if node.shape.windowed:
        key = "named_struct('key', key, 'start', window.start, 'end', window.end)"
    return [
        f"{encoded_text(key, node.key, node.shape.written_key())} AS key",
        f"{encoded_text('value', node.value, node.shape.value)} AS value",
    ]


def encoded_text(column: str, form: Format, kind: Type) -> str:
    if form.name in ("raw", "string"):
        return column
    return to_json(column, kind)


def to_json(column: str, kind: Type) -> str:
    """JSON of any type: to_json takes structs, arrays and maps only."""
    if isinstance(kind, Struct | Array | Map):
        return f"to_json({column}, {WRITTEN})"
    inside = f"to_json(array({column}), {WRITTEN})"
    return f"CASE WHEN {column} IS NOT NULL THEN substring({inside}, 2, length({inside}) - 2) END"


def internal_columns(shape: Shape) -> list[str]:
    """The whole record as JSON, under a key by which equal keys come to one partition."""
    window = ", 'window', window" if shape.windowed else ""
    record = f"named_struct('key', key, 'value', value, 'timestamp', timestamp{window})"
    key = "string(key)" if shape.key == STRING else to_json("key", shape.key)
    return [f"{key} AS key", f"to_json({record}, {WRITTEN}) AS value"]
