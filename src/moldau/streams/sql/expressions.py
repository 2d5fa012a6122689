"""Expressions as values, with a type for each part. Made by parser.py, read by evaluate.py and spark_text.py."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from moldau.streams.sql.types import Type


@dataclass(frozen=True, slots=True)
class Literal:
    value: object  # None, bool, int, float, str or datetime
    type: Type


@dataclass(frozen=True, slots=True)
class Column:
    """A part of the record: `("value", "amount")`, `("key",)`, `("window", "start")`."""

    path: tuple[str, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator, by its name in functions.py. Arguments have the types that it takes."""

    function: str
    arguments: tuple["Expression", ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    argument: "Expression"
    type: Type


@dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN … THEN … ELSE … END`; `if(…)` too."""

    arms: tuple[tuple["Expression", "Expression"], ...]
    otherwise: "Expression"
    type: Type


@dataclass(frozen=True, slots=True)
class SparkText:
    """Text that only Spark understands, with the type that its author promises."""

    text: str
    type: Type


Expression: TypeAlias = Literal | Column | Call | Cast | Case | SparkText


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """`sum(amount)`: an aggregate function over the records of a group. The argument of `count(*)` is None."""

    function: str
    argument: Expression | None
    type: Type


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An expression over aggregates: in `sum(amount) / count(*)` its columns are `("aggregates", "0")` and `…"1"`."""

    calls: tuple[AggregateCall, ...]
    result: Expression

    @property
    def type(self) -> Type:
        return self.result.type


AGGREGATES = "aggregates"  # the root of their columns


def parts(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it."""
    yield expression
    match expression:
        case Call(_, arguments, _):
            for argument in arguments:
                yield from parts(argument)
        case Cast(argument, _):
            yield from parts(argument)
        case Case(arms, otherwise, _):
            for condition, result in arms:
                yield from parts(condition)
                yield from parts(result)
            yield from parts(otherwise)
        case _:
            return
