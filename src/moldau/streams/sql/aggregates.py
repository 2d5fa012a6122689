"""Aggregate functions in Python: what each keeps of a group's records, and how it adds, takes away and merges them.

Spark's own aggregates do the same in queries; the differential tests compare them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moldau.streams.sql.evaluate import Row, compiled
from moldau.streams.sql.expressions import AGGREGATES, Aggregation
from moldau.streams.sql.functions import ANY, ORDERED, Signature, in_range
from moldau.streams.sql.types import BIGINT, DOUBLE, Type


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`subtract` is None if a record cannot be taken away again without keeping all others."""

    signatures: tuple[Signature, ...]
    start: object
    add: Callable[[Any, Any], Any]  # of a value that is not null
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    subtract: Callable[[Any, Any], Any] | None = None


def _keep_least(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)


def _keep_greatest(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else max(one, other)


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    total = one + other
    return in_range(total, BIGINT) if isinstance(total, int) else total


def _mean(kept: tuple[float, int]) -> float | None:
    return kept[0] / kept[1] if kept[1] else None


_SAME = (Signature((ANY,), ANY),)
AGGREGATE_FUNCTIONS: Final[dict[str, Aggregate]] = {
    "count": Aggregate(
        (Signature((ANY,), BIGINT),), 0, lambda kept, _: kept + 1, lambda a, b: a + b, lambda kept: kept,
        lambda kept, _: kept - 1,
    ),
    "sum": Aggregate(
        (Signature((BIGINT,), BIGINT), Signature((DOUBLE,), DOUBLE)), None, _sum, _sum, lambda kept: kept,
        lambda kept, value: kept - value,
    ),
    "avg": Aggregate(
        (Signature((DOUBLE,), DOUBLE),), (0.0, 0), lambda kept, value: (kept[0] + value, kept[1] + 1),
        lambda a, b: (a[0] + b[0], a[1] + b[1]), _mean, lambda kept, value: (kept[0] - value, kept[1] - 1),
    ),
    "min": Aggregate(_SAME, None, _keep_least, _keep_least, lambda kept: kept),
    "max": Aggregate(_SAME, None, _keep_greatest, _keep_greatest, lambda kept: kept),
}  # fmt: skip


class Accumulator:
    """The aggregates of one expression or of several: a state is a tuple with one entry per aggregate call."""

    __slots__ = ("_arguments", "_functions", "_results", "start")

    def __init__(self, aggregations: Sequence[Aggregation]) -> None:
        calls = [call for each in aggregations for call in each.calls]
        self._functions = [AGGREGATE_FUNCTIONS[call.function] for call in calls]
        self._arguments = [None if call.argument is None else compiled(call.argument) for call in calls]
        self._results = []
        first = 0
        for each in aggregations:
            self._results.append((compiled(each.result), first, first + len(each.calls)))
            first += len(each.calls)
        self.start: tuple[Any, ...] = tuple(function.start for function in self._functions)

    def add(self, kept: tuple[Any, ...], row: Row) -> tuple[Any, ...]:
        return tuple(
            function.add(old, True if argument is None else value)
            if argument is None or (value := argument(row)) is not None
            else old
            for function, argument, old in zip(self._functions, self._arguments, kept, strict=True)
        )

    def subtract(self, kept: tuple[Any, ...], row: Row) -> tuple[Any, ...]:
        return tuple(
            function.subtract(old, True if argument is None else value)
            if function.subtract and (argument is None or (value := argument(row)) is not None)
            else old
            for function, argument, old in zip(self._functions, self._arguments, kept, strict=True)
        )

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(each.merge(a, b) for each, a, b in zip(self._functions, one, other, strict=True))

    def results(self, kept: tuple[Any, ...], row: Row) -> list[Any]:
        """The value of each expression; `row` has the key and the window."""
        values = [function.result(old) for function, old in zip(self._functions, kept, strict=True)]
        return [
            result({**row, AGGREGATES: {str(position): value for position, value in enumerate(values[first:end])}})
            for result, first, end in self._results
        ]


def cannot_subtract(aggregation: Aggregation) -> str | None:
    """The first aggregate function in it that cannot take a record away."""
    names = [call.function for call in aggregation.calls]
    return next((name for name in names if AGGREGATE_FUNCTIONS[name].subtract is None), None)


def is_ordered(kind: Type) -> bool:
    return kind in ORDERED
