"""Joins with tables: a stream that looks up rows, and two tables that are one."""

from collections.abc import Sequence
from typing import Any

from moldau.streams.operators.calls import joiner_of
from moldau.streams.operators.records import Event, Record
from moldau.streams.topology.nodes import JoinKind, LookupJoin, TableJoin

STREAM, TABLE = 0, 1


class Lookup:
    """A stream's record finds the row that is there when it comes. The state is that row."""

    def __init__(self, node: LookupJoin) -> None:
        self._left = node.how is JoinKind.LEFT
        self._join = joiner_of(node)

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        results = []
        for side, record in events:
            if side == TABLE:
                state = record.value if record.key is not None else None
            elif record.value is not None and (state is not None or self._left):
                joined = self._join(record.key, record.value, state, record.time)
                results.append(record._replace(value=joined))
        return state, results


class TableToTable:
    """Rows of two tables with the same key. The state is a pair of rows."""

    def __init__(self, node: TableJoin) -> None:
        self._how = node.how
        self._join = joiner_of(node)

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        rows = [None, None] if state is None else list(state)
        results: list[Record] = []
        for side, record in events:
            if record.key is None or (rows[side] is None and record.value is None):
                continue
            before = self._is_row(*rows)
            rows[side] = record.value
            if self._is_row(*rows):
                results.append(record._replace(value=self._join(record.key, rows[0], rows[1], record.time)))
            elif before:
                results.append(record._replace(value=None))
        return (None if rows == [None, None] else tuple(rows)), results[-1:]

    def _is_row(self, left: Any, right: Any) -> bool:
        if self._how is JoinKind.INNER:
            return left is not None and right is not None
        return left is not None or (self._how is JoinKind.OUTER and right is not None)
