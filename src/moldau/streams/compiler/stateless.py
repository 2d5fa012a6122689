"""Operators without state on frames, streaming or of a batch: SQL as columns, Python functions on Arrow batches."""

from typing import Any

from moldau.streams.compiler.columns import ORIGIN, RowReader, Rows, RowWriter, frame_schema
from moldau.streams.interpreter.engine import stateless_step
from moldau.streams.sql.expressions import Expression
from moldau.streams.sql.spark_text import spark_text, text_literal
from moldau.streams.sql.types import Type, spelled, without_nulls_known
from moldau.streams.topology.nodes import Apply, Arm, Filter, Flow, Kind, Map, Mapper, Node, Projection, PythonFunction

Frame = Any


def stateless(node: Node, frame: Frame) -> Frame:
    """The frame of a node with one parent, of the frame of that parent."""
    if _needs_python(node):
        return in_python(node, frame)
    match node:
        case Filter(predicate=predicate):
            text = spark_text(sql_of(predicate))
            kept = f"NOT ({text})" if node.negated else text
            if node.shape.kind is Kind.TABLE:
                return select(frame, node, value=f"CASE WHEN value IS NOT NULL AND {kept} THEN value END")
            return frame.where(kept)
        case Arm():
            frame = frame if node.predicate is None else frame.where(spark_text(sql_of(node.predicate)))
            for earlier in node.earlier:
                frame = frame.where(f"NOT coalesce({spark_text(sql_of(earlier))}, false)")
            return frame
        case Map():
            return _map(node, frame)
        case _:  # View, Sink
            return frame.where("key IS NOT NULL") if node.shape.kind is Kind.TABLE else frame


def _map(node: Map, frame: Frame) -> Frame:
    value = "value"
    if node.value is not None:
        value = mapped(node.value)
        if node.shape.kind is Kind.TABLE:
            value = f"CASE WHEN value IS NOT NULL THEN {value} END"
    return select(frame, node, key="key" if node.key is None else mapped(node.key), value=value)


def select(frame: Frame, node: Node, *, key: str = "key", value: str = "value") -> Frame:
    """The columns of a node's records, with the types that the program has."""
    shape = node.shape
    window = ["window"] if shape.windowed else []
    return frame.selectExpr(
        f"CAST({key} AS {_typed(shape.key)}) AS key",
        f"CAST({value} AS {_typed(shape.value)}) AS value",
        "timestamp",
        *window,
        *ORIGIN,
    )


def _typed(kind: Type) -> str:
    return spelled(without_nulls_known(kind))


def mapped(mapper: Mapper) -> str:
    if isinstance(mapper, Projection):
        fields = ", ".join(f"{text_literal(name)}, {spark_text(each)}" for name, each in mapper.fields)
        return f"named_struct({fields})"
    return spark_text(sql_of(mapper))


def sql_of(given: Expression | Projection | PythonFunction) -> Expression:
    if isinstance(given, Projection | PythonFunction):
        raise TypeError(f"{given} is not an SQL expression")
    return given


def _needs_python(node: Node) -> bool:
    match node:
        case Filter():
            return isinstance(node.predicate, PythonFunction)
        case Arm():
            return any(isinstance(each, PythonFunction) for each in (node.predicate, *node.earlier))
        case Map():
            return isinstance(node.key, PythonFunction) or isinstance(node.value, PythonFunction)
        case Apply():
            return True
        case _:
            return False


def in_python(node: Node, frame: Frame) -> Frame:
    """A user's function on each record, in Spark's Python workers."""
    parent, shape = node.parents[0].shape, node.shape

    def run(batches: Rows) -> Rows:
        step = stateless_step(node)
        rows = RowReader(parent).read(batches)
        made = ((result, partition, offset) for record, partition, offset in rows for result in step([[record]]))
        if isinstance(node, Apply) and node.flow is Flow.FOR_EACH:
            made = ((result, partition, offset) for result, partition, offset in made if False)
        return RowWriter(shape).write(made)

    return frame.mapInArrow(run, frame_schema(shape))
