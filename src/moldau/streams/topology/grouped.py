"""Grouped streams and tables: counting, reducing and aggregating them, with windows or without."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from moldau.streams.sql.aggregates import cannot_subtract
from moldau.streams.sql.parser import Scope, parse_aggregation
from moldau.streams.sql.types import STRING, same_type
from moldau.streams.topology.building import Building
from moldau.streams.topology.mappers import Place, Returns, annotated, python_function, returned
from moldau.streams.topology.nodes import (
    Aggregate,
    Aggregates,
    Cogroup,
    Kind,
    Node,
    PythonAggregate,
    PythonFunction,
    Shape,
    SqlAggregates,
    TableAggregate,
    reshaped,
)
from moldau.streams.topology.table import KTable
from moldau.streams.topology.windows import Emit, Session, Window, updates

Start = Callable[[], Any]


class GroupedStream:
    """A stream by key. `windowed` divides it further, by time."""

    def __init__(self, building: Building, node: Node, window: Window | None = None, emit: Emit = updates) -> None:
        self._building = building
        self._node = node
        self._window = window
        self._emit = emit

    def windowed(self, window: Window, *, emit: Emit = updates) -> "GroupedStream":
        """Divide each group into windows. `emit=final` gives one result per window, when it closes."""
        place = self._place("windowed")
        if not isinstance(window, Window) or type(window) is Window:
            raise place.refused(f"a window is Tumbling, Hopping, Session or Sliding, not {window!r}")
        if not isinstance(emit, Emit):
            raise place.refused(f"emit is updates or final, not {emit!r}")
        if self._window is not None:
            raise place.refused("it has windows already")
        return GroupedStream(self._building, self._node, window, emit)

    def count(self, *, as_: str | None = None) -> KTable:
        """How many records each group has. Records without a value do not count."""
        return self._aggregate("count", sql_aggregates("count(*)", {}, self._shape(), self._place("count")), as_)

    def reduce(self, function: Callable[..., Any], *, as_: str | None = None) -> KTable:
        """Combine values: a function of the value so far and the next one. The first value is as it is."""
        place = self._place("reduce")
        shape = self._node.shape
        call = python_function(function, 2, place)
        merge = call if isinstance(self._window, Session) else None
        return self._aggregate("reduce", PythonAggregate(None, call, None, merge, shape.value, shape.model), as_)

    def aggregate(
        self,
        start: str | Start | None = None,
        add: Callable[..., Any] | None = None,
        /,
        *,
        merge: Callable[..., Any] | None = None,
        returns: Returns = None,
        as_: str | None = None,
        **aggregates: str,
    ) -> KTable:
        """Aggregates in SQL, one or several with names: `aggregate(total="sum(amount)", orders="count(*)")`.

        Or Python functions: `start()` makes an aggregate, `add(value, aggregate)` returns the next one, and
        `merge(a, b)` combines two when sessions grow together. Spark calculates SQL itself, which is much faster.
        """
        place = self._place("aggregate")
        if callable(start):
            made = python_aggregate(start, add, None, merge, returns, place)
            if isinstance(self._window, Session) and merge is None:
                raise place.refused("sessions grow together: give merge=, a function of two aggregates")
            return self._aggregate("aggregate", made, as_)
        if add is not None or merge is not None:
            raise place.refused("SQL aggregates need no functions; with functions the first argument is a function too")
        return self._aggregate("aggregate", sql_aggregates(start, aggregates, self._shape(), place), as_)

    def cogroup(self, add: Callable[..., Any]) -> "CogroupedStream":
        """Begin one aggregate of several grouped streams, each with its own function."""
        return CogroupedStream(self._building, ((self._node, add),))

    def _shape(self) -> Shape:
        return reshaped(self._node.shape, windowed=self._node.shape.windowed or self._window is not None)

    def _place(self, operator: str) -> Place:
        return Place(operator, self._node.name)

    def _aggregate(self, operator: str, aggregates: Aggregates, as_: str | None) -> KTable:
        if self._node.shape.windowed and self._window is not None:
            raise self._place(operator).refused(
                "its records are windowed already: select_key first, which drops the window"
            )
        model = aggregates.model if isinstance(aggregates, PythonAggregate) else None
        shape = Shape(Kind.TABLE, self._node.shape.key, aggregates.type, model, self._shape().windowed)
        node = self._building.add(
            Aggregate, operator, (self._node,), shape, as_, aggregates=aggregates, window=self._window, emit=self._emit
        )
        return KTable(self._building, node)


class CogroupedStream:
    """Several grouped streams for one aggregate."""

    def __init__(
        self,
        building: Building,
        groups: tuple[tuple[Node, Callable[..., Any]], ...],
        window: Window | None = None,
        emit: Emit = updates,
    ) -> None:
        self._building = building
        self._groups = groups
        self._window = window
        self._emit = emit

    def cogroup(self, other: GroupedStream, add: Callable[..., Any]) -> "CogroupedStream":
        place = Place("cogroup", self._groups[0][0].name)
        first = self._groups[0][0].shape
        if not same_type(first.written_key(), other._node.shape.written_key()):
            there = other._node.shape.written_key()
            raise place.refused(f"its key is a {first.written_key()}, and that of {other._node.name} a {there}")
        return CogroupedStream(self._building, (*self._groups, (other._node, add)), self._window, self._emit)

    def windowed(self, window: Window, *, emit: Emit = updates) -> "CogroupedStream":
        checked = GroupedStream(self._building, self._groups[0][0]).windowed(window, emit=emit)
        return CogroupedStream(self._building, self._groups, checked._window, emit)

    def aggregate(
        self, start: Start, *, merge: Callable[..., Any] | None = None, returns: Returns = None, as_: str | None = None
    ) -> KTable:
        """`start()` makes an aggregate; the function of each stream, of (value, aggregate), returns the next one."""
        place = Place("aggregate", self._groups[0][0].name)
        if isinstance(self._window, Session) and merge is None:
            raise place.refused("sessions grow together: give merge=, a function of two aggregates")
        made = tuple(python_aggregate(start, add, None, merge, returns, place) for _, add in self._groups)
        first = self._groups[0][0].shape
        shape = Shape(Kind.TABLE, first.key, made[0].type, made[0].model, first.windowed or self._window is not None)
        parents = tuple(node for node, _ in self._groups)
        node = self._building.add(
            Cogroup, "cogroup", parents, shape, as_, aggregates=made, window=self._window, emit=self._emit
        )
        return KTable(self._building, node)


class GroupedTable:
    """A table by another key: each row is in one group, and leaves it when it changes or is deleted."""

    def __init__(self, building: Building, node: Node) -> None:
        self._building = building
        self._node = node

    def count(self, *, as_: str | None = None) -> KTable:
        """How many rows each group has."""
        return self._aggregate("count", sql_aggregates("count(*)", {}, self._node.shape, self._place("count")), as_)

    def reduce(self, add: Callable[..., Any], subtract: Callable[..., Any], *, as_: str | None = None) -> KTable:
        """Combine rows: `add(aggregate, row)`, and `subtract(aggregate, row)` when a row leaves the group."""
        place = self._place("reduce")
        shape = self._node.shape
        functions = python_function(add, 2, place), python_function(subtract, 2, place)
        return self._aggregate("reduce", PythonAggregate(None, *functions, None, shape.value, shape.model), as_)

    def aggregate(
        self,
        start: str | Start | None = None,
        add: Callable[..., Any] | None = None,
        subtract: Callable[..., Any] | None = None,
        /,
        *,
        returns: Returns = None,
        as_: str | None = None,
        **aggregates: str,
    ) -> KTable:
        """Aggregates in SQL (count, sum, avg), or `start()`, `add(row, aggregate)` and `subtract(row, aggregate)`."""
        place = self._place("aggregate")
        if callable(start):
            if subtract is None:
                raise place.refused(
                    "rows leave their group when they change: give subtract, a function of (row, aggregate)"
                )
            return self._aggregate("aggregate", python_aggregate(start, add, subtract, None, returns, place), as_)
        if add is not None or subtract is not None:
            raise place.refused("SQL aggregates need no functions; with functions the first argument is a function too")
        made = sql_aggregates(start, aggregates, self._node.shape, place)
        for each in made.aggregations:
            function = cannot_subtract(each)
            if function is not None:
                raise place.refused(
                    f"rows leave their group when they change, and {function} cannot forget a row. "
                    f"count, sum and avg can; for {function} of all values there ever were: to_stream().group_by(…)"
                )
        return self._aggregate("aggregate", made, as_)

    def _place(self, operator: str) -> Place:
        return Place(operator, self._node.name)

    def _aggregate(self, operator: str, aggregates: Aggregates, as_: str | None) -> KTable:
        model = aggregates.model if isinstance(aggregates, PythonAggregate) else None
        shape = Shape(Kind.TABLE, self._node.shape.key, aggregates.type, model)
        node = self._building.add(TableAggregate, operator, (self._node,), shape, as_, aggregates=aggregates)
        return KTable(self._building, node)


def sql_aggregates(single: str | None, named: Mapping[str, str], shape: Shape, place: Place) -> SqlAggregates:
    if (single is None) == (not named):
        raise place.refused('give either one aggregate or aggregates with names, as in total="sum(amount)"')
    scope = Scope(shape.roots(), grouped=frozenset({"key", "window"}))
    texts = [single] if single is not None else list(named.values())
    for text in texts:
        if not isinstance(text, str):
            raise place.refused(f"{text!r} is not an aggregate in SQL; functions come first, and without names")
    read = tuple(place.check(lambda text=text: parse_aggregation(text, scope)) for text in texts)  # type: ignore[misc]
    return SqlAggregates(tuple(named), read)


def python_aggregate(
    start: Start,
    add: Callable[..., Any] | None,
    subtract: Callable[..., Any] | None,
    merge: Callable[..., Any] | None,
    returns: Returns,
    place: Place,
) -> PythonAggregate:
    if add is None:
        raise place.refused("give add, a function of (value, aggregate) that returns the next aggregate")
    given: Any = returns
    if given is None and isinstance(start, type):
        given = start
    if given is None and not annotated(add):
        given = _type_of_start(start)
    adder = python_function(add, 2, place, returns=given, needed=True)
    kind, model = (adder.type or STRING, adder.model) if given is None else returned(given, place)
    taker = None if subtract is None else python_function(subtract, 2, place)
    merger = None if merge is None else python_function(merge, 2, place)
    return PythonAggregate(start, _untyped(adder), taker, merger, kind, model)


def _type_of_start(start: Start) -> Any:
    """`lambda: 0` begins with an int: good enough to know the type of the aggregate, if that is a plain one."""
    made = start()
    return type(made) if isinstance(made, str | bool | int | float | bytes) else None


def _untyped(function: PythonFunction) -> PythonFunction:
    return replace(function, type=None, model=None)
