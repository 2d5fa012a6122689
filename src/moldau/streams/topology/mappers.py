"""What users give to operators (SQL text, named SQL expressions, Python functions) as checked values."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from moldau.streams.sql.errors import SqlRefused, StreamsError
from moldau.streams.sql.expressions import Column, Expression, SparkText
from moldau.streams.sql.parser import Scope, parse, parse_condition
from moldau.streams.sql.types import (
    STRING,
    VOID,
    Array,
    Decimal,
    Map,
    Scalar,
    Struct,
    Type,
    parse_schema,
    parse_type,
    without_nulls_known,
)
from moldau.streams.topology.formats import Format
from moldau.streams.topology.models import Model, is_model, schema_of, type_of
from moldau.streams.topology.nodes import Mapper, Projection, PythonFunction, Shape
from moldau.streams.topology.refusals import TopologyRefused

Text: TypeAlias = str | SparkText
Predicate: TypeAlias = str | SparkText | Callable[..., Any]
Returns: TypeAlias = str | Format | Type | type[Any] | None

RETURNS = 'give it as returns="…" (a type or a schema), a class, or annotate the function'


def spark_sql(text: str, kind: str) -> SparkText:
    """An expression that only Spark understands, and its type: `spark_sql("array_max(value.prices)", "double")`.

    Columns are key, value, timestamp and window. Names in it are checked by Spark, when the query starts.
    """
    return SparkText(text, parse_type(kind))


def scope_of(shape: Shape) -> Scope:
    return Scope(shape.roots())


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator is written, for its refusals."""

    operator: str
    of: str

    def refused(self, reason: object) -> TopologyRefused:
        return TopologyRefused(f"{self.operator} of {self.of}: {reason}")

    def check(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except TopologyRefused:
            raise
        except SqlRefused as wrong:
            raise self.refused(wrong) from wrong


def predicate(given: Predicate, shape: Shape, place: Place) -> Expression | PythonFunction:
    """A condition: SQL, or a function of the value, or of key and value."""
    if callable(given):
        return python_function(given, 1, place)
    _need_text(given, place, "a condition in SQL or a function")
    read: Expression = place.check(lambda: parse_condition(given, scope_of(shape)))
    return read


def expression(given: Text, shape: Shape, place: Place) -> Expression:
    _need_text(given, place, "an SQL expression or a function")
    read: Expression = place.check(lambda: parse(given, scope_of(shape)))
    if read.type == VOID:
        raise place.refused("null has no type: cast it, as in cast(null as string)")
    return read


def value_mapper(
    given: Text | Callable[..., Any] | Mapping[str, Text] | None,
    named: Mapping[str, Text],
    returns: Returns,
    shape: Shape,
    place: Place,
) -> Mapper:
    """The new value: one expression or function, or a struct of named expressions."""
    if isinstance(given, Mapping):
        named = {**given, **named}
        given = None
    if (given is None) == (not named):
        raise place.refused("give either one expression or function, or named expressions for the fields of the value")
    if given is None:
        return projection(named, scope_of(shape), place)
    if callable(given):
        return python_function(given, 1, place, returns=returns, needed=True)
    return expression(given, shape, place)


def key_mapper(
    given: tuple[Text | Callable[..., Any], ...],
    named: Mapping[str, Text],
    returns: Returns,
    shape: Shape,
    place: Place,
) -> Mapper:
    """The new key: one expression or function, or several expressions, which become a struct."""
    if len(given) == 1 and not named:
        only = given[0]
        if callable(only):
            return python_function(
                only, 1, place, returns=STRING if returns is None and not annotated(only) else returns, needed=True
            )
        return expression(only, shape, place)
    fields: dict[str, Text] = {}
    for each in given:
        if callable(each):
            raise place.refused("several keys are SQL expressions; one function may return them all as a dataclass")
        read = expression(each, shape, place)
        if not isinstance(read, Column):
            raise place.refused(f"name the key that is not a field, as in {place.operator}(name={each!r})")
        fields[read.path[-1]] = each
    if not fields and not named:
        raise place.refused("name at least one key")
    return projection({**fields, **named}, scope_of(shape), place)


def projection(named: Mapping[str, Text], scope: Scope, place: Place) -> Projection:
    fields = []
    lowered: set[str] = set()
    for name, given in named.items():
        _need_text(given, place, "an SQL expression")
        read: Expression = place.check(lambda given=given: parse(given, scope))  # type: ignore[misc]
        if read.type == VOID:
            raise place.refused(f"{name} is null and has no type: cast it, as in cast(null as string)")
        if name.lower() in lowered:
            raise place.refused(f"field {name} is there twice; Spark does not distinguish upper and lower case")
        lowered.add(name.lower())
        fields.append((name, read))
    return Projection(tuple(fields))


def mapped_type(mapper: Mapper) -> Type:
    kind = mapper.type
    if kind is None:
        raise StreamsError(f"{mapper} has no type")
    return without_nulls_known(kind)


def model_of(mapper: Mapper) -> Model | None:
    return mapper.model if isinstance(mapper, PythonFunction) else None


def annotated(call: Callable[..., Any]) -> bool:
    return _annotation(call) is not None


def _annotation(call: Callable[..., Any]) -> Any:
    target = call if inspect.isroutine(call) else type(call).__call__
    try:
        return typing.get_type_hints(target).get("return")
    except (NameError, TypeError):
        return None


def python_function(
    call: Callable[..., Any],
    values: int,
    place: Place,
    *,
    returns: Returns = None,
    needed: bool = False,
    many: bool = False,
) -> PythonFunction:
    """A function of so many values, or of key and values. `needed`: the type of what it returns must be known."""
    keyed = _takes_key(call, values, place)
    if not needed:
        return PythonFunction(call, keyed)
    given: Any = returns
    if given is None and not many:
        given = _annotation(call)
    if given is None:
        raise place.refused(f"the type of what {_name(call)} returns is not known: {RETURNS}")
    kind, model = returned(given, place)
    return PythonFunction(call, keyed, kind, model)


def returned(given: Any, place: Place) -> tuple[Type, Model | None]:
    """The type that `returns=` or an annotation names."""
    if isinstance(given, Format):
        return given.type, given.model
    if isinstance(given, str):
        return place.check(lambda: parse_schema(given)), None
    if is_model(given):
        return schema_of(given), given
    if isinstance(given, Scalar | Decimal | Array | Map | Struct):
        return given, None
    return type_of(given, f"what {place.operator} returns"), None


def _takes_key(call: Callable[..., Any], values: int, place: Place) -> bool:
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have none
        return False
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = sum(each.default is each.empty for each in positional)
    if needed <= values <= len(positional):
        return False
    if needed == values + 1:
        return True
    if any(each.kind is each.VAR_POSITIONAL for each in parameters) and needed <= values:
        return False
    raise place.refused(f"{_name(call)} takes {needed} arguments; it gets {values}, or {values + 1} with the key first")


def _name(call: object) -> str:
    return getattr(call, "__name__", type(call).__name__)


def _need_text(given: object, place: Place, wanted: str) -> None:
    if not isinstance(given, str | SparkText):
        raise place.refused(f"{given!r} is not {wanted}")
