"""Aggregates of grouped tables: rows enter groups, and leave them when they change."""

from collections.abc import Sequence
from typing import Any

from moldau.streams.operators.calls import Step, aggregate_check, mapper_of, step_of
from moldau.streams.operators.records import Event, Record, frozen, row_of
from moldau.streams.operators.windowed import step_of_adder
from moldau.streams.sql.aggregates import Accumulator
from moldau.streams.topology.nodes import Regroup, SqlAggregates, TableAggregate


def change(leaves: Any, enters: Any) -> dict[str, Any]:
    return {"leaves": leaves, "enters": enters}


class Regrouping:
    """By the table's own key: what a change takes from a group and adds to one. The state is the row.

    Results have the group as key, and the row that leaves it and the one that enters as value.
    """

    def __init__(self, node: Regroup) -> None:
        self._group = mapper_of(node.key, node.parents[0].shape, node.name)

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        results: list[Record] = []
        for _, record in events:
            if record.key is None:
                continue
            before = None if state is None else self._group(record._replace(value=state))
            after = None if record.value is None else self._group(record)
            if before is not None and after is not None and frozen(before) == frozen(after):
                results.append(Record(after, change(state, record.value), record.time))
            else:
                if before is not None:
                    results.append(Record(before, change(state, None), record.time))
                if after is not None:
                    results.append(Record(after, change(None, record.value), record.time))
            state = record.value
        return state, results


def _swapped(step: Step) -> Step:
    return lambda key, row, kept: step(key, kept, row)


class GroupOfRows:
    """By group: takes away rows that leave and adds those that enter. The state is the aggregate."""

    def __init__(self, node: TableAggregate) -> None:
        aggregates = node.aggregates
        row_model = node.parents[0].shape.model
        self._names: tuple[str, ...] = ()
        self._sql: Accumulator | None = None
        if isinstance(aggregates, SqlAggregates):
            self._sql = Accumulator(aggregates.aggregations)
            self._names = aggregates.names
            return
        assert aggregates.subtract is not None
        self._start = aggregates.start
        self._check = aggregate_check(aggregates, node)
        self._add = step_of_adder(aggregates, row_model)
        if aggregates.start is None:
            self._subtract = _swapped(step_of(aggregates.subtract, row_model, row_model))
        else:
            self._subtract = step_of(aggregates.subtract, row_model, aggregates.model)

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        last: Record | None = None
        for _, record in events:
            last = record
            leaves, enters = record.value["leaves"], record.value["enters"]
            if leaves is not None and state is not None:
                state = self._take(record._replace(value=leaves), state)
            if enters is not None:
                state = self._put(record._replace(value=enters), state)
        if last is None:
            return state, []
        return state, [last._replace(value=self._result(last, state))]

    def _take(self, record: Record, state: Any) -> Any:
        if self._sql is not None:
            return self._sql.subtract(state, row_of(record))
        return self._check(self._subtract(record.key, record.value, state))

    def _put(self, record: Record, state: Any) -> Any:
        if self._sql is not None:
            return self._sql.add(self._sql.start if state is None else state, row_of(record))
        if state is None:
            if self._start is None:
                return self._check(record.value)
            state = self._check(self._start())
        return self._check(self._add(record.key, record.value, state))

    def _result(self, record: Record, state: Any) -> Any:
        if self._sql is None or state is None:
            return state
        values = self._sql.results(state, row_of(record._replace(value=None)))
        return dict(zip(self._names, values, strict=True)) if self._names else values[0]
