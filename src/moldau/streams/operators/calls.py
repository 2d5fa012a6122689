"""Predicates, mappers and joiners as plain functions: of SQL by evaluation, of Python by calling."""

from collections.abc import Callable
from typing import Any, TypeAlias

from moldau.streams.operators.records import Record, row_of
from moldau.streams.operators.values import conform
from moldau.streams.sql.evaluate import compiled
from moldau.streams.sql.expressions import Expression
from moldau.streams.topology.models import Model, from_dictionary
from moldau.streams.topology.nodes import Mapper, Node, Projection, PythonAggregate, PythonFunction, Shape

OfRecord: TypeAlias = Callable[[Record], Any]
OfPair: TypeAlias = Callable[[Any, Any, Any, int], Any]  # key, left, right, time
Step: TypeAlias = Callable[[Any, Any, Any], Any]  # key, and two values


def predicate_of(given: Expression | PythonFunction, shape: Shape) -> OfRecord:
    """True, False, or None where SQL does not know."""
    if isinstance(given, PythonFunction):
        return of_record(given, shape.model, "a condition")
    evaluate = compiled(given)
    return lambda record: evaluate(row_of(record))


def mapper_of(given: Mapper, shape: Shape, what: str) -> OfRecord:
    if isinstance(given, PythonFunction):
        return of_record(given, shape.model, what)
    if isinstance(given, Projection):
        fields = [(name, compiled(each)) for name, each in given.fields]

        def project(record: Record) -> dict[str, Any]:
            row = row_of(record)
            return {name: evaluate(row) for name, evaluate in fields}

        return project
    evaluate = compiled(given)
    return lambda record: evaluate(row_of(record))


def of_record(function: PythonFunction, model: Model | None, what: str) -> OfRecord:
    """A user's function of the value, or of key and value."""
    call, read = function.call, model_reader(model)
    check = _same if function.type is None else conform(function.type, f"what {function.name} returned to {what}")
    if function.keyed:
        return lambda record: check(call(record.key, read(record.value)))
    return lambda record: check(call(read(record.value)))


def joiner_of(node: Any) -> OfPair:
    """The joiner of a join: of the key, both values and the time."""
    joiner = node.joiner
    if isinstance(joiner, PythonFunction):
        left, right = (model_reader(parent.shape.model) for parent in node.parents)
        check = conform(joiner.type, f"what {joiner.name} returned to {node.name}") if joiner.type else _same
        call = joiner.call
        if joiner.keyed:
            return lambda key, one, other, time: check(call(key, left(one), right(other)))
        return lambda key, one, other, time: check(call(left(one), right(other)))
    fields = [(name, compiled(each)) for name, each in joiner.fields]

    def join(key: Any, one: Any, other: Any, time: int) -> dict[str, Any]:
        row = {**row_of(Record(key, None, time)), "left": one, "right": other}
        return {name: evaluate(row) for name, evaluate in fields}

    return join


def step_of(function: PythonFunction, first: Model | None, second: Model | None) -> Step:
    """A user's function of two values, or of the key and two values: adders, reducers, mergers."""
    call, one, other = function.call, model_reader(first), model_reader(second)
    if function.keyed:
        return lambda key, a, b: call(key, one(a), other(b))
    return lambda key, a, b: call(one(a), other(b))


def aggregate_check(aggregate: PythonAggregate, node: Node) -> Callable[[Any], Any]:
    return conform(aggregate.type, f"the aggregate of {node.name}")


def model_reader(model: Model | None) -> Callable[[Any], Any]:
    return _same if model is None else from_dictionary(model)


def _same(value: Any) -> Any:
    return value
