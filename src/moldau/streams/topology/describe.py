"""A topology as text: its queries, and of each the operators with their parents, what they do and the types."""

from typing import Final

from moldau.streams.sql.expressions import Expression
from moldau.streams.sql.shown import shown, shown_aggregation
from moldau.streams.sql.types import Struct, Type
from moldau.streams.topology.nodes import (
    Aggregate,
    Aggregates,
    Apply,
    Arm,
    Cogroup,
    Filter,
    ForeignKeyJoin,
    GlobalJoin,
    Kind,
    Map,
    Mapper,
    Node,
    Process,
    Projection,
    PythonFunction,
    Regroup,
    Sink,
    Source,
    SqlAggregates,
    StreamJoin,
    TableAggregate,
    Topology,
    ends,
    is_stateful,
)
from moldau.streams.topology.queries import members, queries_of

LONGEST: Final = 72  # characters of a detail


def describe(topology: Topology) -> str:
    queries = queries_of(topology)
    lines = [f"{topology.name}: {len(queries)} {'query' if len(queries) == 1 else 'queries'}"]
    for query in queries:
        lines += ["", f"query {query.name}"]
        for internal in query.inputs:
            lines.append(f"  reads {internal.topic}")
        nodes = members(query, topology)
        width = max(len(node.name) for node in nodes)
        for node in nodes:
            came = f"← {', '.join(parent.name for parent in node.parents)}" if node.parents else ""
            text = "  ".join(part for part in (came, detail(node)) if part)
            lines.append(f"  {node.name:<{width}}  {text}{'  [state]' if is_stateful(node) else ''}".rstrip())
            if not ends(node):
                lines.append(f"  {'':<{width}}    {shape_text(node)}")
        for outlet in query.outlets:
            if outlet.internal is not None:
                lines.append(f"  writes {outlet.internal.topic}  ← {outlet.node.name}")
    if topology.dead_letters:
        lines += ["", f"dead letters: {topology.dead_letters}"]
    return "\n".join(lines)


def shape_text(node: Node) -> str:
    return f"{type_text(node.shape.written_key())} → {type_text(node.shape.value)}"


def type_text(kind: Type) -> str:
    if isinstance(kind, Struct):
        return "{" + ", ".join(f"{field.name} {type_text(field.type)}" for field in kind.fields) + "}"
    return str(kind)


def describe_node(node: Node) -> str:
    """An operator whole, with the types of what it reads and makes: another text is another operator."""
    reads = "; ".join(shape_text(parent) for parent in node.parents)
    return f"{type(node).__name__} {_detail(node)} of {reads} to {shape_text(node)}"


def detail(node: Node) -> str:
    """What a node does, on one line."""
    text = _detail(node)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _detail(node: Node) -> str:
    match node:
        case Source():
            time = f", time {shown(node.time)}" if node.time else ", processing time" if node.processing_time else ""
            kind = "" if node.shape.kind is Kind.STREAM else f" as a {node.shape.kind.value}"
            return f"topic {node.topic}{kind}{time}"
        case Sink():
            return f"topic {node.topic} ({node.key.name}, {node.value.name})"
        case Filter():
            return f"not {_call(node.predicate)}" if node.negated else _call(node.predicate)
        case Arm():
            return "the rest" if node.predicate is None else _call(node.predicate)
        case Map():
            return ", ".join(_mapper(each) for each in (node.key, node.value) if each is not None)
        case Apply():
            return node.function.name
        case Aggregate():
            window = f" in {node.window.describe()}, {node.emit.value}" if node.window else ""
            return f"{_aggregates(node.aggregates)}{window}"
        case Cogroup():
            window = f" in {node.window.describe()}, {node.emit.value}" if node.window else ""
            return f"{', '.join(each.add.name for each in node.aggregates)}{window}"
        case TableAggregate():
            return _aggregates(node.aggregates)
        case Regroup():
            return _mapper(node.key)
        case StreamJoin():
            return node.within.describe()
        case Process():
            return node.processor.__name__
        case GlobalJoin() | ForeignKeyJoin():
            return f"on {_mapper(node.on)}"
        case _:
            return ""


def _call(given: Expression | PythonFunction) -> str:
    return given.name if isinstance(given, PythonFunction) else shown(given)


def _mapper(mapper: Mapper) -> str:
    if isinstance(mapper, Projection):
        return ", ".join(f"{name}={shown(each)}" for name, each in mapper.fields)
    return _call(mapper)


def _aggregates(given: Aggregates) -> str:
    if not isinstance(given, SqlAggregates):
        return given.add.name
    texts = [shown_aggregation(each) for each in given.aggregations]
    return (
        ", ".join(f"{name}={text}" for name, text in zip(given.names, texts, strict=True)) if given.names else texts[0]
    )
