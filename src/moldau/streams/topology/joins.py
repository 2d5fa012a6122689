"""Joins as nodes: their keys must have the same type, and their result is checked when they are built."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from moldau.streams.sql.expressions import Column
from moldau.streams.sql.parser import Scope
from moldau.streams.sql.types import BIGINT, INT, Struct, Type, same_type
from moldau.streams.topology.building import Building
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


def join_streams(
    building: Building,
    how: JoinKind,
    left: Node,
    right: Node,
    within: Any,
    grace: timedelta | None,
    joiner: Callable[..., Any] | None,
    fields: Mapping[str, Text],
    returns: Returns,
    name: str | None,
    place: Place,
) -> StreamJoin:
    if within is None:
        raise place.refused(
            "two streams are joined within a window: give within=minutes(5), the most they may be apart"
        )
    before, after = within if isinstance(within, tuple) else (within, within)
    early, late = millis(before, "within"), millis(after, "within")
    window = Within(early, late, max(early, late) if grace is None else millis(grace, "grace"))
    check_keys(left.shape, right, place, "select_key on one side")
    result = join_result(left.shape, right.shape, joiner, fields, returns, place)
    shape = joined(left.shape, result)
    return building.add(StreamJoin, how.value, (left, right), shape, name, how=how, joiner=result, within=window)


def join_with_table(
    building: Building,
    how: JoinKind,
    left: Node,
    right: Node,
    on: Any,
    joiner: Callable[..., Any] | None,
    fields: Mapping[str, Text],
    returns: Returns,
    name: str | None,
    place: Place,
) -> LookupJoin:
    if on is not None:
        key = key_mapper((on,), {}, None, left.shape, place)
        left = building.add(
            Map, "select_key", (left,), reshaped(left.shape, key=mapped_type(key), windowed=False), key=key
        )
    check_keys(left.shape, right, place, "on=…")
    result = join_result(left.shape, right.shape, joiner, fields, returns, place)
    return building.add(LookupJoin, how.value, (left, right), joined(left.shape, result), name, how=how, joiner=result)


def join_global(
    building: Building,
    how: JoinKind,
    left: Node,
    right: Node,
    on: Any,
    joiner: Callable[..., Any] | None,
    fields: Mapping[str, Text],
    returns: Returns,
    name: str | None,
    place: Place,
) -> GlobalJoin:
    key: Mapper = Column(("key",), left.shape.key)
    if on is not None:
        key = key_mapper((on,), {}, None, left.shape, place)
    check_keys(reshaped(left.shape, key=mapped_type(key)), right, place, "on=…")
    result = join_result(left.shape, right.shape, joiner, fields, returns, place)
    shape = joined(left.shape, result)
    return building.add(GlobalJoin, how.value, (left, right), shape, name, how=how, joiner=result, on=key)


def join_tables(
    building: Building,
    how: JoinKind,
    left: Node,
    right: Node,
    on: Any,
    joiner: Callable[..., Any] | None,
    fields: Mapping[str, Text],
    returns: Returns,
    name: str | None,
    place: Place,
) -> TableJoin | ForeignKeyJoin:
    if left.shape.windowed or right.shape.windowed:
        raise place.refused(
            "windowed tables are not joined. Join their streams: to_stream(), then join within a window"
        )
    if on is not None and how is JoinKind.OUTER:
        raise place.refused(
            "there is no outer join by a foreign key: rows of the right side would have no key. Use left_join"
        )
    key = None if on is None else key_mapper((on,), {}, None, left.shape, place)
    if key is None:
        check_keys(left.shape, right, place, "on=…, a foreign key,")
    else:
        check_keys(reshaped(left.shape, key=mapped_type(key)), right, place, "another on=…")
    result = join_result(left.shape, right.shape, joiner, fields, returns, place)
    shape = joined(left.shape, result)
    if key is None:
        return building.add(TableJoin, how.value, (left, right), shape, name, how=how, joiner=result)
    return building.add(ForeignKeyJoin, how.value, (left, right), shape, name, how=how, joiner=result, on=key)


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
