"""Operators whose state Spark does not have itself: `transformWithState` around the state machines of `operators/`.

Records go to the processor and come back as pickled values, so that it sees what the interpreter sees. The state of a
key is one pickled value.
"""

import pickle
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from moldau.streams.compiler.columns import RowReader, Rows, RowWriter, frame_schema
from moldau.streams.interpreter.engine import accepts, operator_of
from moldau.streams.operators.records import Event, frozen, merged
from moldau.streams.topology.nodes import Node, Shape

Frame = Any

EVENTS: Final = "name string, event binary, at timestamp"
EVENTS_ARROW: Final = pa.schema([("name", pa.string()), ("event", pa.binary()), ("at", pa.timestamp("us", "UTC"))])
RESULTS: Final = "result binary"
STATE: Final = "state binary"


def with_state(node: Node, frames: list[Frame], shape: Shape) -> Frame:
    """The records that a node makes of those of its parents. `shape` is that of the results."""
    grace = getattr(operator_of(node), "grace_ms", None)
    events = as_events(node, 0, frames[0])
    for side, frame in enumerate(frames[1:], start=1):
        events = events.union(as_events(node, side, frame))
    if grace is not None:
        # Spark drops rows behind the watermark of a column that it knows; which of them are late is for the operator.
        events = events.withWatermark("at", f"{grace} milliseconds").selectExpr("name", "event")
    else:
        events = events.select("name", "event")
    processor = processor_of(node)
    mode = "eventTime" if grace is not None else "none"
    results = events.groupBy("name").transformWithState(processor, RESULTS, "Update", mode)

    def read(batches: Rows) -> Rows:
        made = (pickle.loads(each) for batch in batches for each in batch.column(0).to_pylist())
        return RowWriter(shape).write((record, 0, 0) for record in made)

    return results.mapInArrow(read, frame_schema(shape))


def as_events(node: Node, side: int, frame: Frame) -> Frame:
    shape = node.parents[side].shape

    def write(batches: Rows) -> Rows:
        wanted = accepts(node)
        rows: list[dict[str, Any]] = []
        for number, (record, partition, offset) in enumerate(RowReader(shape).read(batches)):
            if wanted(side, record):
                name = repr((frozen(record.key), record.window))
                event = pickle.dumps((side, partition, offset, number, record))
                rows.append({"name": name, "event": event, "at": record.time * 1000})
            if len(rows) >= RowWriter.ROWS:
                yield pa.RecordBatch.from_pylist(rows, EVENTS_ARROW)
                rows = []
        yield pa.RecordBatch.from_pylist(rows, EVENTS_ARROW)

    return frame.mapInArrow(write, EVENTS)


def processor_of(node: Node) -> Any:
    """A StatefulProcessor of PySpark, which is imported here only."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Processor(StatefulProcessor):  # type: ignore[misc, unused-ignore]
        """One key at a time. The state is (key, the operator's state)."""

        def init(self, handle: Any) -> None:
            self._handle = handle
            self._state = handle.getValueState("state", STATE)
            self._operator = operator_of(node)
            self._closing = hasattr(self._operator, "close")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            given = sorted((pickle.loads(bytes(row.event)) for row in rows), key=lambda each: each[:4])
            events = merged([Event(each[0], each[4]) for each in given])
            old = self._load()
            watermark = timerValues.getCurrentWatermarkInMs() if self._closing else 0
            name, state = (events[0].record.key, None) if old is None else old
            state, results = self._operator.process(name, state, events, watermark)
            self._keep(name, state, None if old is None else old[1])
            return self._rows(results)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
            old = self._load()
            if old is None:
                return iter(())
            state, results = self._operator.close(old[0], old[1], timerValues.getCurrentWatermarkInMs())
            self._keep(old[0], state, None)
            return self._rows(results)

        def close(self) -> None:
            pass

        def _load(self) -> Any:
            return pickle.loads(bytes(self._state.get()[0])) if self._state.exists() else None

        def _keep(self, name: Any, state: Any, before: Any) -> None:
            if state is None:
                self._state.clear()
            else:
                self._state.update((pickle.dumps((name, state)),))
            if not self._closing:
                return
            old = None if before is None else self._operator.deadline(before)
            new = None if state is None else self._operator.deadline(state)
            if old != new:
                if old is not None:
                    self._handle.deleteTimer(old)
                if new is not None:
                    self._handle.registerTimer(new)

        def _rows(self, results: Iterable[Any]) -> Iterator[Any]:
            return iter([Row(result=pickle.dumps(each)) for each in results])

    return Processor()
