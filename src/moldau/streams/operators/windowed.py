"""Aggregates of grouped streams: without windows, in tumbling and hopping ones, in sessions and in sliding windows.

Each class is the aggregate of one key; `close` ends the windows that the watermark has passed.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from moldau.streams.operators.calls import aggregate_check, step_of
from moldau.streams.operators.records import Event, Record, Span, moment, row_of, window_row
from moldau.streams.sql.aggregates import Accumulator
from moldau.streams.topology.nodes import Aggregate, Aggregates, Cogroup, PythonAggregate, SqlAggregates
from moldau.streams.topology.windows import Emit, Hopping, Session, Sliding, Tumbling


class Sum(NamedTuple):
    """What is known of the records of a window: the aggregate, and the time of the newest one."""

    kept: Any
    time: int


class Adder:
    """The aggregate functions of a node, SQL or Python: how an aggregate starts, grows, merges and is read."""

    def __init__(self, node: Aggregate | Cogroup) -> None:
        given: tuple[Aggregates, ...] = node.aggregates if isinstance(node, Cogroup) else (node.aggregates,)
        first = given[0]
        self._merge: Callable[[Any, Any, Any], Any]
        if isinstance(first, SqlAggregates):
            sql = Accumulator(first.aggregations)
            self._names = first.names
            self._sql: Accumulator | None = sql
            return
        self._sql = None
        python = [each for each in given if isinstance(each, PythonAggregate)]
        self._add = [step_of_adder(each, parent.shape.model) for each, parent in zip(python, node.parents, strict=True)]
        self._start = first.start
        self._check = aggregate_check(first, node)
        self._merge = step_of(first.merge, first.model, first.model) if first.merge else _cannot_merge

    def add(self, kept: Any, event: Event) -> Any:
        record = event.record
        if self._sql is not None:
            return self._sql.add(self._sql.start if kept is None else kept, row_of(record))
        if kept is None and self._start is None:
            return self._check(record.value)
        start = self._check(self._start()) if kept is None and self._start else kept
        return self._check(self._add[event.side](record.key, record.value, start))

    def merge(self, key: Any, one: Any, other: Any) -> Any:
        if self._sql is not None:
            return self._sql.merge(one, other)
        return self._check(self._merge(key, one, other))

    def result(self, key: Any, kept: Any, time: int, window: Span | None) -> Any:
        if self._sql is None:
            return kept
        row = {"key": key, "timestamp": moment(time), "value": None}
        if window is not None:
            row["window"] = window_row(window)
        values = self._sql.results(kept, row)
        return dict(zip(self._names, values, strict=True)) if self._names else values[0]


def step_of_adder(aggregate: PythonAggregate, model: Any) -> Callable[[Any, Any, Any], Any]:
    """Calls `add(value, aggregate)`, or for reduce `add(aggregate, value)`."""
    if aggregate.start is None:
        reduce = step_of(aggregate.add, model, model)
        return lambda key, value, kept: reduce(key, kept, value)
    return step_of(aggregate.add, model, aggregate.model)


def _cannot_merge(key: Any, one: Any, other: Any) -> Any:
    raise TypeError("an aggregate without merge= has no sessions")


class Unwindowed:
    """One aggregate per key, for ever. The state is a Sum."""

    def __init__(self, node: Aggregate | Cogroup) -> None:
        self._adder = Adder(node)

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        last: Record | None = None
        for event in events:
            last = event.record
            if state is None:
                state = Sum(None, last.time)
            state = Sum(self._adder.add(state.kept, event), max(state.time, last.time))
        if last is None:
            return state, []
        value = self._adder.result(last.key, state.kept, state.time, last.window)
        return state, [Record(last.key, value, state.time, last.window)]


class Aligned:
    """Tumbling and hopping windows. The state is a dictionary of window → Sum."""

    def __init__(self, node: Aggregate | Cogroup) -> None:
        window = node.window
        assert isinstance(window, Tumbling | Hopping)
        self.grace_ms = window.grace_ms
        self._windows = window.windows
        self._final = node.emit is Emit.FINAL
        self._adder = Adder(node)
        self.late = 0

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        open_windows: dict[Span, Sum] = {} if state is None else dict(state)
        changed: dict[Span, None] = {}
        for event in events:
            time = event.record.time
            open_for = [span for span in self._windows(time) if span[1] > watermark]
            self.late += not open_for
            for span in open_for:
                old = open_windows.get(span, Sum(None, time))
                open_windows[span] = Sum(self._adder.add(old.kept, event), max(old.time, time))
                changed[span] = None
        results = [] if self._final else self._results(key, open_windows, changed)
        return open_windows or None, results

    def close(self, key: Any, state: Any, watermark: int) -> tuple[Any, list[Record]]:
        closed = sorted(span for span in state if span[1] <= watermark)
        results = self._results(key, state, closed) if self._final else []
        return {span: kept for span, kept in state.items() if span[1] > watermark} or None, results

    def deadline(self, state: Any) -> int | None:
        return min((span[1] for span in state), default=None)

    def _results(self, key: Any, windows: dict[Span, Sum], wanted: Iterable[Span]) -> list[Record]:
        return [
            Record(key, self._adder.result(key, windows[span].kept, windows[span].time, span), windows[span].time, span)
            for span in wanted
        ]


class Sessions:
    """Windows that grow. The state is a dictionary of (first, last) → Sum; a session that grew replaces older ones."""

    def __init__(self, node: Aggregate | Cogroup) -> None:
        window = node.window
        assert isinstance(window, Session)
        self.grace_ms = window.grace_ms
        self._gap = window.size_ms
        self._final = node.emit is Emit.FINAL
        self._adder = Adder(node)
        self.late = 0

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        before: dict[Span, Sum] = {} if state is None else state
        now = dict(before)
        for event in events:
            self._add(key, now, event, watermark)
        if self._final:
            return now or None, []
        gone = [Record(key, None, before[span].time, span) for span in before if span not in now]
        changed = [self._result(key, span, kept) for span, kept in sorted(now.items()) if before.get(span) != kept]
        return now or None, gone + changed

    def _add(self, key: Any, sessions: dict[Span, Sum], event: Event, watermark: int) -> None:
        time = event.record.time
        near = sorted(span for span in sessions if span[0] - self._gap <= time <= span[1] + self._gap)
        first, last = min([time, *(span[0] for span in near)]), max([time, *(span[1] for span in near)])
        if last + self._gap < watermark:
            self.late += 1
            return
        kept: Any = None
        newest = time
        for position, span in enumerate(near):
            old = sessions.pop(span)
            kept = old.kept if position == 0 else self._adder.merge(key, kept, old.kept)
            newest = max(newest, old.time)
        sessions[first, last] = Sum(self._adder.add(kept, event), newest)

    def close(self, key: Any, state: Any, watermark: int) -> tuple[Any, list[Record]]:
        closed = sorted((span, kept) for span, kept in state.items() if span[1] + self._gap < watermark)
        results = [self._result(key, span, kept) for span, kept in closed] if self._final else []
        return {span: kept for span, kept in state.items() if span[1] + self._gap >= watermark} or None, results

    def deadline(self, state: Any) -> int | None:
        return min((span[1] + self._gap + 1 for span in state), default=None)

    def _result(self, key: Any, span: Span, kept: Sum) -> Record:
        return Record(key, self._adder.result(key, kept.kept, kept.time, span), kept.time, span)


class Slides:
    """Windows of records that are at most `size` apart, both ends inside.

    For a record at t there is the window that ends at t, and the one that begins after t if it has records; before
    `size` there is one window from 0. The state is the records and how far windows were closed; a window's aggregate is
    made of its records when one comes, so that functions need no way back.
    """

    def __init__(self, node: Aggregate | Cogroup) -> None:
        window = node.window
        assert isinstance(window, Sliding)
        self.grace_ms = window.grace_ms
        self._size = window.size_ms
        self._final = node.emit is Emit.FINAL
        self._adder = Adder(node)
        self.late = 0

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        closed, kept = (watermark, []) if state is None else state
        kept = list(kept)
        changed: set[Span] = set()
        for event in events:
            time = event.record.time
            if max(time, self._size) + self._size < watermark:
                self.late += 1
                continue
            kept.append(event)
            changed |= {span for span in self._spans(kept) if span[0] <= time <= span[1] or span[0] == time + 1}
        kept.sort(key=lambda each: each.record.time)
        wanted = sorted(span for span in changed if span[1] >= watermark)
        return (closed, kept) if kept else None, [] if self._final else self._results(key, kept, wanted)

    def close(self, key: Any, state: Any, watermark: int) -> tuple[Any, list[Record]]:
        closed, kept = state
        done = sorted(span for span in self._spans(kept) if closed <= span[1] < watermark)
        results = self._results(key, kept, done) if self._final else []
        needed = [event for event in kept if max(event.record.time, self._size) + self._size + 1 >= watermark]
        return (max(closed, watermark), needed) if needed else None, results

    def deadline(self, state: Any) -> int | None:
        closed, kept = state
        return min((span[1] + 1 for span in self._spans(kept) if span[1] >= closed), default=closed + self._size + 1)

    def _spans(self, kept: Sequence[Event]) -> set[Span]:
        size = self._size
        times = sorted({event.record.time for event in kept})
        spans = {(0, size) if time < size else (time - size, time) for time in times}
        for time, following in pairwise(times):
            if following <= time + 1 + size:
                spans.add((time + 1, time + 1 + size))
        return spans

    def _results(self, key: Any, kept: Sequence[Event], spans: Iterable[Span]) -> list[Record]:
        results = []
        for span in spans:
            total: Any = None
            newest = span[0]
            for event in kept:
                if span[0] <= event.record.time <= span[1]:
                    total = self._adder.add(total, event)
                    newest = max(newest, event.record.time)
            results.append(Record(key, self._adder.result(key, total, newest, span), newest, span))
        return results
