"""KTable: the newest value of each key, and GlobalKTable: a table that each task has whole."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from moldau.streams.topology.building import Building
from moldau.streams.topology.joins import Wanted, join_tables
from moldau.streams.topology.mappers import (
    Place,
    Predicate,
    Returns,
    Text,
    key_mapper,
    mapped_type,
    model_of,
    predicate,
    value_mapper,
)
from moldau.streams.topology.nodes import Aggregate, Cogroup, Filter, JoinKind, Kind, Map, Node, Regroup, View, reshaped
from moldau.streams.topology.stream import Fields, KStream, Mapping
from moldau.streams.topology.windows import Emit

if TYPE_CHECKING:
    from moldau.streams.topology.grouped import GroupedTable


class KTable:
    """A table of the newest value per key. Each method returns a new table; this one stays as it is."""

    def __init__(self, building: Building, node: Node) -> None:
        self._building = building
        self._node = node

    def __repr__(self) -> str:
        shape = self._node.shape
        return f"KTable({self._node.name}: {shape.written_key()} → {shape.value})"

    def filter(self, condition: Predicate, *, as_: str | None = None) -> "KTable":
        """Rows for which a condition holds; the others are deleted downstream."""
        return self._filter("filter", condition, as_, negated=False)

    def filter_not(self, condition: Predicate, *, as_: str | None = None) -> "KTable":
        """Rows for which a condition does not hold; the others are deleted downstream."""
        return self._filter("filter_not", condition, as_, negated=True)

    def map_values(
        self,
        mapper: Mapping | Fields | None = None,
        /,
        *,
        returns: Returns = None,
        as_: str | None = None,
        **fields: Text,
    ) -> "KTable":
        """A new value: one SQL expression or function, or named SQL expressions for its fields."""
        value = value_mapper(mapper, fields, returns, self._node.shape, self._place("map_values"))
        shape = reshaped(self._node.shape, value=mapped_type(value), model=model_of(value))
        return KTable(self._building, self._building.add(Map, "map_values", (self._node,), shape, as_, value=value))

    def group_by(self, *keys: Mapping, returns: Returns = None, **named: Text) -> "GroupedTable":
        """Group rows by an SQL expression or a function, or by several expressions."""
        from moldau.streams.topology.grouped import GroupedTable

        place = self._place("group_by")
        if self._node.shape.windowed:
            raise place.refused("its rows are windows. Group its stream instead: to_stream().group_by(…)")
        key = key_mapper(keys, named, returns, self._node.shape, place)
        shape = reshaped(self._node.shape, key=mapped_type(key))
        return GroupedTable(self._building, self._building.add(Regroup, "group_by", (self._node,), shape, key=key))

    def join(
        self,
        other: "KTable",
        joiner: Callable[..., Any] | None = None,
        /,
        *,
        on: Mapping | None = None,
        returns: Returns = None,
        as_: str | None = None,
        **fields: Text,
    ) -> "KTable":
        """Rows that are in both tables: by key, or by a foreign key, `on`, which is the key of the other table."""
        return self._join(JoinKind.INNER, other, joiner, on, returns, as_, fields)

    def left_join(
        self,
        other: "KTable",
        joiner: Callable[..., Any] | None = None,
        /,
        *,
        on: Mapping | None = None,
        returns: Returns = None,
        as_: str | None = None,
        **fields: Text,
    ) -> "KTable":
        """All rows of this table, with those of the other where they are."""
        return self._join(JoinKind.LEFT, other, joiner, on, returns, as_, fields)

    def outer_join(
        self,
        other: "KTable",
        joiner: Callable[..., Any] | None = None,
        /,
        *,
        returns: Returns = None,
        as_: str | None = None,
        **fields: Text,
    ) -> "KTable":
        """All rows of both tables."""
        return self._join(JoinKind.OUTER, other, joiner, None, returns, as_, fields)

    def to_stream(self, *, as_: str | None = None) -> KStream:
        """Each change as a record; a deletion is one without a value."""
        shape = reshaped(self._node.shape, kind=Kind.STREAM)
        return KStream(self._building, self._building.add(View, "to_stream", (self._node,), shape, as_))

    def suppress(self) -> "KTable":
        """Results of windows when they close, as `windowed(…, emit=final)`."""
        node = self._node
        if not isinstance(node, Aggregate | Cogroup) or node.window is None:
            raise self._place("suppress").refused(
                "only windows close: call it right after the aggregate of windows, or use windowed(…, emit=final)"
            )
        operator = node.name.rpartition("-")[0] or node.name
        changed = replace(node, emit=Emit.FINAL)
        more: dict[str, Any] = {"aggregates": changed.aggregates, "window": changed.window, "emit": changed.emit}
        return KTable(self._building, self._building.add(type(node), operator, node.parents, node.shape, **more))

    def to(self, topic: str, *, key: object = None, value: object = None, as_: str | None = None) -> None:
        """Write each change to a topic, which should be compacted: its records are the table."""
        KStream(self._building, self._node).to(topic, key=key, value=value, as_=as_)

    def _join(
        self,
        how: JoinKind,
        other: Any,
        joiner: Callable[..., Any] | None,
        on: Mapping | None,
        returns: Returns,
        as_: str | None,
        fields: dict[str, Text],
    ) -> "KTable":
        place = self._place(how.value)
        if not isinstance(other, KTable):
            raise place.refused(f"{other!r} is not a table: a stream joins a table, or becomes one with to_table()")
        wanted = Wanted(self._building, how, self._node, other._node, joiner, fields, returns, as_, place)
        return KTable(self._building, join_tables(wanted, on))

    def _place(self, operator: str) -> Place:
        return Place(operator, self._node.name)

    def _filter(self, operator: str, condition: Predicate, as_: str | None, *, negated: bool) -> "KTable":
        test = predicate(condition, self._node.shape, self._place(operator))
        shape = self._node.shape
        return KTable(
            self._building,
            self._building.add(Filter, operator, (self._node,), shape, as_, predicate=test, negated=negated),
        )


class GlobalKTable:
    """A table that is small enough for each task to have it whole. Streams join it by any key."""

    def __init__(self, building: Building, node: Node) -> None:
        self._building = building
        self._node = node

    def __repr__(self) -> str:
        return f"GlobalKTable({self._node.name}: {self._node.shape.key} → {self._node.shape.value})"
