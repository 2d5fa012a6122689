"""Operators whose state Spark keeps itself: SQL aggregates without windows or in aligned ones, joins of two streams."""

from typing import Any

import pyarrow as pa

from moldau.streams.compiler.columns import RowReader, Rows, RowWriter, frame_schema
from moldau.streams.compiler.stateless import Frame, mapped, select
from moldau.streams.operators.calls import joiner_of
from moldau.streams.operators.records import Record
from moldau.streams.sql.spark_text import spark_aggregate, spark_text, text_literal
from moldau.streams.topology.nodes import Aggregate, JoinKind, Node, PythonFunction, SqlAggregates, StreamJoin, reshaped
from moldau.streams.topology.windows import Emit, Hopping, Tumbling

KINDS = {JoinKind.INNER: "inner", JoinKind.LEFT: "leftOuter", JoinKind.OUTER: "fullOuter"}
ORIGIN = ("CAST(NULL AS int) AS partition", "CAST(NULL AS bigint) AS offset")


def is_native(node: Node) -> bool:
    """Whether Spark keeps the state itself."""
    if isinstance(node, Aggregate):
        return isinstance(node.aggregates, SqlAggregates) and isinstance(node.window, Tumbling | Hopping | None)
    return isinstance(node, StreamJoin)


def output_mode(node: Node) -> str:
    if isinstance(node, StreamJoin):
        return "append"
    if isinstance(node, Aggregate) and is_native(node):
        return "append" if node.emit is Emit.FINAL else "update"
    return "update"


def aggregated(node: Aggregate, frame: Frame) -> Frame:
    """A SQL aggregate of a stream."""
    from pyspark.sql import functions as f

    assert isinstance(node.aggregates, SqlAggregates)
    frame = frame.where("key IS NOT NULL AND value IS NOT NULL")
    by: list[Any] = ["key"]
    window = node.window
    if window is not None:
        frame = frame.withWatermark("timestamp", f"{window.grace_ms} milliseconds")
        advance = f"{window.advance_ms} milliseconds" if isinstance(window, Hopping) else None
        by.append(f.window("timestamp", f"{window.size_ms} milliseconds", advance).alias("window"))
    elif node.shape.windowed:
        by.append("window")
    calls = [call for each in node.aggregates.aggregations for call in each.calls]
    columns = [f.expr(spark_aggregate(call)).alias(f"aggregate {number}") for number, call in enumerate(calls)]
    grouped = frame.groupBy(*by).agg(*columns, f.max("timestamp").alias("newest"))
    return _results(node, node.aggregates, grouped)


def _results(node: Aggregate, aggregates: SqlAggregates, grouped: Frame) -> Frame:
    """The expressions over the aggregates: `sum(amount) / count(*)`."""
    window = ["window"] if node.shape.windowed else []
    values, first = [], 0
    for each in aggregates.aggregations:
        inner = ", ".join(f"'{n}', `aggregate {first + n}`" for n in range(len(each.calls)))
        values.append((f"named_struct({inner})", spark_text(each.result)))
        first += len(each.calls)
    # An expression over the key alone has no aggregates, and Spark no struct without fields.
    values = [(struct if struct != "named_struct()" else "NULL", text) for struct, text in values]
    frame = grouped.selectExpr(
        "key",
        *window,
        "newest AS timestamp",
        *(f"{struct} AS `of {n}`" for n, (struct, _) in enumerate(values)),
        *ORIGIN,
    )
    texts = [text.replace("`aggregates`.", f"`of {n}`.") for n, (_, text) in enumerate(values)]
    if not aggregates.names:
        return select(frame, node, value=texts[0])
    fields = ", ".join(f"{text_literal(name)}, {text}" for name, text in zip(aggregates.names, texts, strict=True))
    return select(frame, node, value=f"named_struct({fields})")


def streams_joined(node: StreamJoin, left: Frame, right: Frame) -> Frame:
    from pyspark.sql import functions as f

    within = node.within
    alone = {JoinKind.INNER: "", JoinKind.LEFT: "left", JoinKind.OUTER: "left right"}[node.how]
    sides = []
    for side, frame in (("left", left), ("right", right)):
        kept = frame.where("value IS NOT NULL" if side in alone else "key IS NOT NULL AND value IS NOT NULL")
        window = ["window"] if node.shape.windowed else []
        renamed = kept.selectExpr(
            f"key AS {side}_key",
            f"value AS {side}",
            f"timestamp AS {side}_time",
            *(f"{w} AS {side}_window" for w in window),
        )
        sides.append(renamed.withWatermark(f"{side}_time", f"{within.grace_ms} milliseconds"))
    condition = (
        "left_key = right_key"
        f" AND right_time >= left_time - INTERVAL {within.before_ms} MILLISECONDS"
        f" AND right_time <= left_time + INTERVAL {within.after_ms} MILLISECONDS"
    )
    if node.shape.windowed:
        condition += " AND left_window = right_window"
    pairs = sides[0].join(sides[1], f.expr(condition), KINDS[node.how])
    window = ["coalesce(left_window, right_window) AS window"] if node.shape.windowed else []
    frame = pairs.selectExpr(
        "coalesce(left_key, right_key) AS key",
        "left",
        "right",
        "greatest(left_time, right_time) AS timestamp",
        *window,
        *ORIGIN,
    )
    return pairs_joined(node, frame)


def pairs_joined(node: Any, frame: Frame) -> Frame:
    """The joiner over columns left and right."""
    if not isinstance(node.joiner, PythonFunction):
        return select(frame, node, value=mapped(node.joiner))
    left, right = (parent.shape for parent in node.parents)
    shape = node.shape

    def run(batches: Rows) -> Rows:
        join = joiner_of(node)
        one_side, other_side = (RowReader(reshaped(each, windowed=shape.windowed)) for each in (left, right))
        for batch in batches:
            pairs = zip(one_side.read([_side(batch, "left")]), other_side.read([_side(batch, "right")]), strict=True)
            made = (
                Record(one.key, join(one.key, one.value, other.value, one.time), one.time, one.window)
                for (one, *_), (other, *_) in pairs
            )
            yield from RowWriter(shape).write((record, 0, 0) for record in made)

    return frame.mapInArrow(run, frame_schema(shape))


def _side(batch: pa.RecordBatch, side: str) -> pa.RecordBatch:
    """The records of one side: its column is the value."""
    names = [name for name in batch.schema.names if name in (side, "key", "timestamp", "window", "partition", "offset")]
    return batch.select(names).rename_columns(["value" if name == side else name for name in names])
