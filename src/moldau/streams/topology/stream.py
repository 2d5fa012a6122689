"""KStream: records one after the other, and what can be done with them."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from moldau.streams.sql.types import same_type
from moldau.streams.topology.building import Building, check_topic
from moldau.streams.topology.formats import Format, default_format, format_of
from moldau.streams.topology.joins import Wanted, join_global, join_streams, join_with_table
from moldau.streams.topology.mappers import (
    Place,
    Predicate,
    Returns,
    Text,
    key_mapper,
    mapped_type,
    model_of,
    predicate,
    python_function,
    returned,
    value_mapper,
)
from moldau.streams.topology.nodes import (
    Apply,
    Arm,
    Filter,
    Flow,
    JoinKind,
    Kind,
    Map,
    Merge,
    Node,
    Process,
    Shape,
    Sink,
    View,
    reshaped,
)
from moldau.streams.topology.processors import Processor, check_processor
from moldau.streams.topology.windows import millis

if TYPE_CHECKING:
    from moldau.streams.topology.grouped import GroupedStream
    from moldau.streams.topology.table import GlobalKTable, KTable

NO_GRACE: Final = timedelta(0)
Mapping: TypeAlias = Text | Callable[..., Any]
Fields: TypeAlias = dict[str, Text]  # of a value, for names that are also arguments: {"on": "…"}


class KStream:
    """A stream of records. Each method returns a new stream; this one stays as it is."""

    def __init__(self, building: Building, node: Node) -> None:
        self._building = building
        self._node = node

    def __repr__(self) -> str:
        shape = self._node.shape
        return f"KStream({self._node.name}: {shape.written_key()} → {shape.value})"

    def filter(self, condition: Predicate, *, as_: str | None = None) -> "KStream":
        """Records for which a condition holds: SQL, or a function of the value, or of key and value."""
        return self._filter("filter", condition, as_, negated=False)

    def filter_not(self, condition: Predicate, *, as_: str | None = None) -> "KStream":
        """Records for which a condition does not hold. In SQL one that is null is neither: such records are dropped."""
        return self._filter("filter_not", condition, as_, negated=True)

    def map_values(
        self,
        mapper: Mapping | Fields | None = None,
        /,
        *,
        returns: Returns = None,
        as_: str | None = None,
        **fields: Text,
    ) -> "KStream":
        """A new value: one SQL expression or function, or named SQL expressions for its fields."""
        place = self._place("map_values")
        value = value_mapper(mapper, fields, returns, self._node.shape, place)
        shape = reshaped(self._node.shape, value=mapped_type(value), model=model_of(value))
        return self._add(Map, "map_values", shape, as_, value=value)

    def select_key(self, *keys: Mapping, returns: Returns = None, as_: str | None = None, **named: Text) -> "KStream":
        """A new key: one SQL expression or function, or several, which become a struct."""
        key = key_mapper(keys, named, returns, self._node.shape, self._place("select_key"))
        shape = reshaped(self._node.shape, key=mapped_type(key), windowed=False)
        return self._add(Map, "select_key", shape, as_, key=key)

    def map(
        self, function: Callable[..., Any], *, returns: Returns = None, key: Returns = "string", as_: str | None = None
    ) -> "KStream":
        """A function of the value, or of key and value, that returns a new (key, value). `returns` is of the value."""
        return self._flow(Flow.MAP, function, returns, key, as_)

    def flat_map(
        self, function: Callable[..., Any], *, returns: Returns = None, key: Returns = "string", as_: str | None = None
    ) -> "KStream":
        """As map, with any number of (key, value) per record. `returns` is the type of one value."""
        return self._flow(Flow.FLAT_MAP, function, returns, key, as_)

    def flat_map_values(
        self, function: Callable[..., Any], *, returns: Returns = None, as_: str | None = None
    ) -> "KStream":
        """A function that returns any number of values for a record. `returns` is the type of one."""
        return self._flow(Flow.FLAT_MAP_VALUES, function, returns, None, as_)

    def peek(self, function: Callable[..., Any], *, as_: str | None = None) -> "KStream":
        """Call a function for each record, and go on with the records as they are. A repeated batch calls it again."""
        call = python_function(function, 1, self._place("peek"))
        return self._add(Apply, "peek", self._node.shape, as_, flow=Flow.PEEK, function=call)

    def for_each(self, function: Callable[..., Any], *, as_: str | None = None) -> None:
        """Call a function for each record; the stream ends here. A repeated batch calls it again."""
        call = python_function(function, 1, self._place("for_each"))
        end = self._building.add(
            Apply, "for_each", (self._node,), self._node.shape, as_, flow=Flow.FOR_EACH, function=call
        )
        self._building.end(end)

    def branch(self, **conditions: Predicate | None) -> "Branches":
        """Named branches: a record goes to the first whose condition holds. None, as the last one, takes the rest.

        `parts = orders.branch(large="amount > 1000", rest=None)`, then `parts.large` and `parts.rest`.
        """
        place = self._place("branch")
        if not conditions:
            raise place.refused("name at least one branch")
        earlier: list[Any] = []
        arms: dict[str, KStream] = {}
        for position, (name, given) in enumerate(conditions.items(), start=1):
            if given is None and position < len(conditions):
                raise place.refused(f"{name} takes the rest, so it must be the last branch")
            test = None if given is None else predicate(given, self._node.shape, place)
            arms[name] = self._add(
                Arm, f"branch-{name}", self._node.shape, None, earlier=tuple(earlier), predicate=test
            )
            earlier.append(test)
        return Branches(arms)

    def merge(self, *others: "KStream", as_: str | None = None) -> "KStream":
        """The records of several streams with the same types, in no particular order."""
        place = self._place("merge")
        for other in others:
            if not isinstance(other, KStream):
                raise place.refused(f"{other!r} is not a stream; a table becomes one with to_stream()")
            here, there = self._node.shape, other._node.shape
            if not same_type(here.value, there.value) or not same_type(here.written_key(), there.written_key()):
                raise place.refused(
                    f"its records are {here.written_key()} → {here.value}, and those of {other._node.name} "
                    f"{there.written_key()} → {there.value}. Make them alike with select_key and map_values"
                )
        if not others:
            raise place.refused("name the streams to merge with")
        parents = (self._node, *(other._node for other in others))
        return KStream(self._building, self._building.add(Merge, "merge", parents, self._node.shape, as_))

    def to(self, topic: str, *, key: object = None, value: object = None, as_: str | None = None) -> None:
        """Write the records to a topic. Texts and bytes are written as they are and all else as JSON, unless told."""
        check_topic(topic)
        shape = self._node.shape
        keys = self._written(key, shape.written_key(), None, "key")
        values = self._written(value, shape.value, shape.model, "value")
        sink = self._building.add(Sink, "to", (self._node,), shape, as_, topic=topic, key=keys, value=values)
        self._building.end(sink)

    def repartition(self, *, as_: str | None = None) -> "KStream":
        """Does nothing: Spark moves records to where their key is needed. It is here for programs of Kafka Streams."""
        return self._add(View, "repartition", self._node.shape, as_)

    def to_table(self, *, as_: str | None = None) -> "KTable":
        """Read each record as the new value of its key; without a value the key is deleted."""
        from moldau.streams.topology.table import KTable

        node = self._building.add(View, "to_table", (self._node,), reshaped(self._node.shape, kind=Kind.TABLE), as_)
        return KTable(self._building, node)

    def group_by_key(self) -> "GroupedStream":
        """Group by the record's key. Records without a key are in no group."""
        from moldau.streams.topology.grouped import GroupedStream

        return GroupedStream(self._building, self._node)

    def group_by(self, *keys: Mapping, returns: Returns = None, **named: Text) -> "GroupedStream":
        """Group by an SQL expression or a function, or by several expressions."""
        from moldau.streams.topology.grouped import GroupedStream

        key = key_mapper(keys, named, returns, self._node.shape, self._place("group_by"))
        shape = reshaped(self._node.shape, key=mapped_type(key), windowed=False)
        return GroupedStream(self._building, self._building.add(Map, "group_by", (self._node,), shape, key=key))

    def join(
        self,
        other: "KStream | KTable | GlobalKTable",
        joiner: Callable[..., Any] | None = None,
        /,
        *,
        on: Mapping | None = None,
        within: timedelta | tuple[timedelta, timedelta] | None = None,
        grace: timedelta | None = None,
        returns: Returns = None,
        as_: str | None = None,
        **fields: Text,
    ) -> "KStream":
        """Records that have a partner on the other side, with the fields of both, or with what joiner or `fields` say.

        A table is looked up by the record's key, or by `on`, which then is the new key; a global table by `on`, and the
        key stays. Another stream needs `within`: how far apart the times may be, or a pair: how much the
        other may be (earlier, later).
        """
        return self._join(JoinKind.INNER, other, joiner, on, within, grace, returns, as_, fields)

    def left_join(
        self,
        other: "KStream | KTable | GlobalKTable",
        joiner: Callable[..., Any] | None = None,
        /,
        *,
        on: Mapping | None = None,
        within: timedelta | tuple[timedelta, timedelta] | None = None,
        grace: timedelta | None = None,
        returns: Returns = None,
        as_: str | None = None,
        **fields: Text,
    ) -> "KStream":
        """As join, and records without a partner too; with a stream as the other side, when their window has closed."""
        return self._join(JoinKind.LEFT, other, joiner, on, within, grace, returns, as_, fields)

    def outer_join(
        self,
        other: "KStream",
        joiner: Callable[..., Any] | None = None,
        /,
        *,
        within: timedelta | tuple[timedelta, timedelta] | None = None,
        grace: timedelta | None = None,
        returns: Returns = None,
        as_: str | None = None,
        **fields: Text,
    ) -> "KStream":
        """As left_join with a stream, and the other's records without a partner too."""
        return self._join(JoinKind.OUTER, other, joiner, None, within, grace, returns, as_, fields)

    def process(
        self,
        processor: type[Processor],
        *,
        returns: Returns,
        key: Returns = None,
        grace: timedelta = NO_GRACE,
        as_: str | None = None,
    ) -> "KStream":
        """A class of yours that sees the records of one key in order, with stores and timers.

        `returns` is the type of the values that it forwards, `key` that of keys, if they are others. Timers wait for
        the newest record's time, less the grace. The key is that of the stream: select_key before, if needed.
        """
        place = self._place("process")
        checked = place.check(lambda: check_processor(processor))
        if self._node.shape.windowed:
            raise place.refused("its records are windowed: select_key first, which drops the window")
        value, model = returned(returns, place)
        new_key = self._node.shape.key if key is None else returned(key, place)[0]
        shape = reshaped(self._node.shape, key=new_key, value=value, model=model)
        grace_ms = millis(grace, "the grace of process")
        return self._add(Process, "process", shape, as_, processor=checked, grace_ms=grace_ms)

    def _join(
        self,
        how: JoinKind,
        other: Any,
        joiner: Callable[..., Any] | None,
        on: Mapping | None,
        within: Any,
        grace: timedelta | None,
        returns: Returns,
        as_: str | None,
        fields: dict[str, Text],
    ) -> "KStream":
        from moldau.streams.topology.table import GlobalKTable, KTable

        place = self._place(how.value)
        if not isinstance(other, KStream | KTable | GlobalKTable):
            raise place.refused(f"{other!r} is neither a stream nor a table")
        wanted = Wanted(self._building, how, self._node, other._node, joiner, fields, returns, as_, place)
        if isinstance(other, KStream):
            if on is not None:
                raise place.refused("streams are joined by their keys: select_key on both sides instead of on=")
            return KStream(self._building, join_streams(wanted, within, grace))
        if within is not None or grace is not None:
            raise place.refused("within= and grace= are for joins of two streams; a table has no window")
        if how is JoinKind.OUTER:
            raise place.refused("a stream and a table have no outer join: a table's rows are no events. Use left_join")
        if isinstance(other, GlobalKTable):
            return KStream(self._building, join_global(wanted, on))
        return KStream(self._building, join_with_table(wanted, on))

    def _place(self, operator: str) -> Place:
        return Place(operator, self._node.name)

    def _add(self, make: Any, operator: str, shape: Shape, as_: str | None, **more: Any) -> "KStream":
        return KStream(self._building, self._building.add(make, operator, (self._node,), shape, as_, **more))

    def _filter(self, operator: str, condition: Predicate, as_: str | None, *, negated: bool) -> "KStream":
        test = predicate(condition, self._node.shape, self._place(operator))
        return self._add(Filter, operator, self._node.shape, as_, predicate=test, negated=negated)

    def _flow(
        self, flow: Flow, function: Callable[..., Any], returns: Returns, key: Returns, as_: str | None
    ) -> "KStream":
        place = self._place(flow.value)
        call = python_function(function, 1, place, returns=returns, needed=True, many=True)
        shape = reshaped(self._node.shape, value=call.type, model=call.model)
        if flow is not Flow.FLAT_MAP_VALUES:
            shape = reshaped(shape, key=returned(key, place)[0], windowed=False)
        return self._add(Apply, flow.value, shape, as_, flow=flow, function=call)

    def _written(self, given: object, kind: Any, model: Any, what: str) -> Format:
        if given is None:
            return default_format(kind, model)
        chosen = format_of(given, f"the {what} of to")
        if chosen.name == "json" or same_type(chosen.type, kind):
            wanted = Format(chosen.name, kind, chosen.model or model)
            if chosen.name == "json" and not same_type(chosen.type, kind):
                raise self._place("to").refused(f"the {what} is a {kind}, not a {chosen.type}")
            return wanted
        raise self._place("to").refused(f"a {what} of {kind} cannot be written as {chosen.name}; leave it out for JSON")


class Branches:
    """The streams of a branch, by name: as attributes, and as a dictionary."""

    def __init__(self, streams: dict[str, KStream]) -> None:
        self._streams = streams

    def __getattr__(self, name: str) -> KStream:
        try:
            return self._streams[name]
        except KeyError as missing:
            raise AttributeError(f"no branch {name}; there are {', '.join(self._streams)}") from missing

    def __getitem__(self, name: str) -> KStream:
        return self._streams[name]

    def __iter__(self) -> Any:
        return iter(self._streams.values())
