"""Joins as nodes: their keys must have the same type, and their result is checked when they are built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from moldau.streams.sql.expressions import Column
from moldau.streams.sql.parser import Scope
from moldau.streams.sql.types import BIGINT, INT, Struct, Type, same_type
from moldau.streams.topology.building import AnyNode, Building
from moldau.streams.topology.mappers import (
    Place,
    Returns,
    Text,
    key_mapper,
    mapped_type,
    model_of,
    projection,
    python_function,
)
from moldau.streams.topology.nodes import (
    ForeignKeyJoin,
    GlobalJoin,
    JoinKind,
    LookupJoin,
    Map,
    Mapper,
    Node,
    Projection,
    PythonFunction,
    Shape,
    StreamJoin,
    TableJoin,
    reshaped,
)
from moldau.streams.topology.windows import Within, millis

Joiner = Projection | PythonFunction


@dataclass(frozen=True, slots=True)
class Wanted:
    """A join as a user has written it."""

    building: Building
    how: JoinKind
    left: Node
    right: Node
    joiner: Callable[..., Any] | None
    fields: Mapping[str, Text]
    returns: Returns
    name: str | None
    place: Place

    def node(self, make: Callable[..., AnyNode], **more: Any) -> AnyNode:
        """The node of the join, with its result."""
        result = join_result(self.left.shape, self.right.shape, self.joiner, self.fields, self.returns, self.place)
        shape = joined(self.left.shape, result)
        parents = (self.left, self.right)
        return self.building.add(make, self.how.value, parents, shape, self.name, how=self.how, joiner=result, **more)


def join_streams(wanted: Wanted, within: Any, grace: timedelta | None) -> StreamJoin:
    place = wanted.place
    if within is None:
        raise place.refused(
            "two streams are joined within a window: give within=minutes(5), the most they may be apart"
        )
    before, after = within if isinstance(within, tuple) else (within, within)
    early, late = millis(before, "within"), millis(after, "within")
    window = Within(early, late, max(early, late) if grace is None else millis(grace, "grace"))
    check_keys(wanted.left.shape, wanted.right, place, "select_key on one side")
    return wanted.node(StreamJoin, within=window)


def join_with_table(wanted: Wanted, on: Any) -> LookupJoin:
    if on is not None:
        key = key_mapper((on,), {}, None, wanted.left.shape, wanted.place)
        shape = reshaped(wanted.left.shape, key=mapped_type(key), windowed=False)
        wanted = replace(wanted, left=wanted.building.add(Map, "select_key", (wanted.left,), shape, key=key))
    check_keys(wanted.left.shape, wanted.right, wanted.place, "on=…")
    return wanted.node(LookupJoin)


def join_global(wanted: Wanted, on: Any) -> GlobalJoin:
    shape = wanted.left.shape
    key: Mapper = Column(("key",), shape.key)
    if on is not None:
        key = key_mapper((on,), {}, None, shape, wanted.place)
    check_keys(reshaped(shape, key=mapped_type(key)), wanted.right, wanted.place, "on=…")
    return wanted.node(GlobalJoin, on=key)


def join_tables(wanted: Wanted, on: Any) -> TableJoin | ForeignKeyJoin:
    left, right, place = wanted.left, wanted.right, wanted.place
    if left.shape.windowed or right.shape.windowed:
        raise place.refused(
            "windowed tables are not joined. Join their streams: to_stream(), then join within a window"
        )
    if on is None:
        check_keys(left.shape, right, place, "on=…, a foreign key,")
        return wanted.node(TableJoin)
    if wanted.how is JoinKind.OUTER:
        raise place.refused(
            "there is no outer join by a foreign key: rows of the right side would have no key. Use left_join"
        )
    key = key_mapper((on,), {}, None, left.shape, place)
    check_keys(reshaped(left.shape, key=mapped_type(key)), right, place, "another on=…")
    return wanted.node(ForeignKeyJoin, on=key)


def joined(left: Shape, result: Joiner) -> Shape:
    return reshaped(left, value=mapped_type(result), model=model_of(result))


def check_keys(left: Shape, right: Node, place: Place, remedy: str) -> None:
    """Both sides have keys of one type, so that equal keys are equal in Spark and equal bytes in their topics."""
    one, other = left.written_key(), right.shape.written_key()
    if same_type(one, other):
        return
    hint = ": cast one of them" if {one, other} == {INT, BIGINT} else ""
    raise place.refused(
        f"its key is a {one} and that of {right.name} a {other}, so no record finds its partner. "
        f"Use {remedy} with an expression that gives a {other}{hint}"
    )


def join_result(
    left: Shape,
    right: Shape,
    joiner: Callable[..., Any] | None,
    fields: Mapping[str, Text],
    returns: Returns,
    place: Place,
) -> Joiner:
    """The result of a join: a function of both values, named expressions, or the fields of both."""
    if joiner is not None and fields:
        raise place.refused("give either a function or named expressions for the result")
    if joiner is not None:
        return python_function(joiner, 2, place, returns=returns, needed=True)
    sides: dict[str, Type] = {"left": left.value, "right": right.value}
    if fields:
        roots = {name: kind for name, kind in left.roots().items() if name != "value"}
        return projection(fields, Scope({**roots, **sides}, within=("left", "right")), place)
    if not isinstance(left.value, Struct) or not isinstance(right.value, Struct):
        return Projection(tuple((side, Column((side,), kind)) for side, kind in sides.items()))
    lowered = {name.lower() for name in left.value.names}
    twice = [name for name in right.value.names if name.lower() in lowered]
    if twice:
        wanted = ", ".join(f'{each}="left.{each}"' for each in twice[:3])
        raise place.refused(
            f"both sides have a field {', '.join(twice)}. Name the result's fields: {place.operator}(…, {wanted}, …)"
        )
    return Projection(
        tuple((each.name, Column(("left", each.name), each.type)) for each in left.value.fields)
        + tuple((each.name, Column(("right", each.name), each.type)) for each in right.value.fields)
    )
