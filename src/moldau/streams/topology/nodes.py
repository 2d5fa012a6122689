"""The nodes of a topology: immutable values, each with its parents.

Made by the language (stream.py, table.py, grouped.py), run by the interpreter and by Spark.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from moldau.streams.sql.expressions import Aggregation, Expression
from moldau.streams.sql.types import STRING, TIMESTAMP, WINDOW, Field, Struct, Type
from moldau.streams.topology.formats import Format
from moldau.streams.topology.models import Model
from moldau.streams.topology.processors import Processor
from moldau.streams.topology.windows import Emit, Window, Within


class Kind(Enum):
    STREAM = "stream"
    TABLE = "table"
    GLOBAL = "global table"


@dataclass(frozen=True, slots=True)
class Shape:
    """What records look like at one place of a topology."""

    kind: Kind
    key: Type = STRING
    value: Type = STRING
    model: Model | None = None  # the class of values for Python functions
    windowed: bool = False

    def written_key(self) -> Type:
        """The key in a topic: that of a windowed table has the window in it."""
        if not self.windowed:
            return self.key
        return Struct((Field("key", self.key), *WINDOW.fields))

    def roots(self) -> dict[str, Type]:
        """Names in expressions."""
        window: dict[str, Type] = {"window": WINDOW} if self.windowed else {}
        return {"key": self.key, "value": self.value, "timestamp": TIMESTAMP, **window}


@dataclass(frozen=True, slots=True)
class Projection:
    """A struct, field by field."""

    fields: tuple[tuple[str, Expression], ...]

    @property
    def type(self) -> Struct:
        return Struct(tuple(Field(name, each.type) for name, each in self.fields))


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of the user. With `keyed` it gets the key before the values."""

    call: Callable[..., Any]
    keyed: bool
    type: Type | None = None  # of what it returns, where that becomes a key or a value
    model: Model | None = None

    @property
    def name(self) -> str:
        return getattr(self.call, "__name__", type(self.call).__name__)


Mapper: TypeAlias = Expression | Projection | PythonFunction


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Node:
    name: str
    parents: tuple["Node", ...]
    shape: Shape


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Source(Node):
    topic: str
    key: Format
    value: Format
    time: Expression | None = None  # of the value; None: the record's timestamp
    processing_time: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Filter(Node):
    predicate: Expression | PythonFunction
    negated: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Arm(Node):
    """One branch: records for which its predicate holds and none of the earlier ones does."""

    earlier: tuple[Expression | PythonFunction, ...]
    predicate: Expression | PythonFunction | None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Map(Node):
    """A new key, a new value, or both; None leaves it as it is."""

    key: Mapper | None = None
    value: Mapper | None = None


class Flow(Enum):
    """What a Python function on each record returns."""

    MAP = "map"  # (key, value)
    FLAT_MAP = "flat_map"  # many (key, value)
    FLAT_MAP_VALUES = "flat_map_values"  # many values
    PEEK = "peek"  # nothing
    FOR_EACH = "for_each"  # nothing, and the stream ends here


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Apply(Node):
    flow: Flow
    function: PythonFunction


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Merge(Node):
    pass


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class View(Node):
    """The same records, read as a stream or as a table."""


@dataclass(frozen=True, slots=True)
class SqlAggregates:
    """Named aggregates become fields of the value; a single one without a name is the value."""

    names: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]

    @property
    def type(self) -> Type:
        if not self.names:
            return self.aggregations[0].type
        return Struct(tuple(Field(name, each.type) for name, each in zip(self.names, self.aggregations, strict=True)))


@dataclass(frozen=True, slots=True)
class PythonAggregate:
    """`start` makes an aggregate; without it the first value is the aggregate (reduce)."""

    start: Callable[[], Any] | None
    add: PythonFunction
    subtract: PythonFunction | None
    merge: PythonFunction | None
    type: Type
    model: Model | None


Aggregates: TypeAlias = SqlAggregates | PythonAggregate


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Aggregate(Node):
    """Of a grouped stream."""

    aggregates: Aggregates
    window: Window | None
    emit: Emit


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Cogroup(Node):
    """One aggregate of several grouped streams: an adder for each parent."""

    aggregates: tuple[PythonAggregate, ...]
    window: Window | None
    emit: Emit


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Regroup(Node):
    """A grouped table: what each change takes from one group and adds to another."""

    key: Mapper


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TableAggregate(Node):
    """Of a grouped table; its parent is a Regroup."""

    aggregates: Aggregates


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Process(Node):
    """A processor of the user, for each key."""

    processor: type[Processor]
    grace_ms: int


class JoinKind(Enum):
    INNER = "join"
    LEFT = "left_join"
    OUTER = "outer_join"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Join(Node):
    """What all joins have: left and right are the parents."""

    how: JoinKind
    joiner: Projection | PythonFunction


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class StreamJoin(Join):
    within: Within


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class LookupJoin(Join):
    """A stream with a table."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class GlobalJoin(Join):
    """A stream with a global table, by a key that `on` finds in the stream's record."""

    on: Mapper


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TableJoin(Join):
    pass


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ForeignKeyJoin(Join):
    """A table with another, by the key of the other that `on` finds in the value."""

    on: Mapper


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Sink(Node):
    topic: str
    key: Format
    value: Format


STATEFUL = (Aggregate, Cogroup, Regroup, TableAggregate, Process, StreamJoin, LookupJoin, TableJoin, ForeignKeyJoin)


def is_stateful(node: Node) -> bool:
    return isinstance(node, STATEFUL)


def ends(node: Node) -> bool:
    """Whether a stream ends here."""
    return isinstance(node, Sink) or (isinstance(node, Apply) and node.flow is Flow.FOR_EACH)


def ordered(sinks: Sequence[Node]) -> list[Node]:
    """All nodes that lead to these, each after its parents."""
    seen: dict[Node, None] = {}

    def visit(node: Node) -> Iterator[Node]:
        if node not in seen:
            for parent in node.parents:
                yield from visit(parent)
            if node not in seen:
                seen[node] = None
                yield node

    return [node for sink in sinks for node in visit(sink)]


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole program: its nodes, each after its parents, and where unreadable records go."""

    name: str
    nodes: tuple[Node, ...]
    dead_letters: str = ""

    @property
    def sources(self) -> list[Source]:
        return [node for node in self.nodes if isinstance(node, Source)]

    @property
    def sinks(self) -> list[Sink]:
        return [node for node in self.nodes if isinstance(node, Sink)]


def reshaped(shape: Shape, **changes: Any) -> Shape:
    return replace(shape, **changes)
