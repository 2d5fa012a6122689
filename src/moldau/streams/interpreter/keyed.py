"""Operators with state in memory: a state per key, and a watermark that ends windows.

The watermark of a batch is the time of the newest record before it, minus the grace: so do Spark's queries, and so a
batch of one record behaves as Kafka Streams does.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from moldau.streams.operators.records import Event, Record, frozen, merged

BEGINNING: Final = -(1 << 62)


class Operator(Protocol):
    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        """The next state of a key and the results. A state that is None is forgotten."""


@runtime_checkable
class Closing(Operator, Protocol):
    """An operator with windows."""

    grace_ms: int
    late: int

    def close(self, key: Any, state: Any, watermark: int) -> tuple[Any, list[Record]]: ...

    def deadline(self, state: Any) -> int | None:
        """The first watermark that ends something of this state."""


class Keyed:
    """All keys of one operator."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._closing = operator if isinstance(operator, Closing) else None
        self._states: dict[Any, tuple[Any, Any]] = {}
        self.watermark = BEGINNING

    @property
    def late(self) -> int:
        return self._closing.late if self._closing is not None else 0

    def batch(self, events: Iterable[Event]) -> list[Record]:
        by_key: dict[Any, list[Event]] = {}
        newest = self.watermark
        for event in events:
            record = event.record
            by_key.setdefault((frozen(record.key), record.window), []).append(event)
            if self._closing is not None:
                newest = max(newest, record.time - self._closing.grace_ms)
        results: list[Record] = []
        for name, given in by_key.items():
            key, state = self._states.get(name, (given[0].record.key, None))
            next_state, made = self._operator.process(key, state, merged(given), self.watermark)
            self._keep(name, key, next_state)
            results += made
        if newest > self.watermark:
            self.watermark = newest
            results += self._close()
        return results

    def _close(self) -> list[Record]:
        """End what the watermark has passed."""
        closing = self._closing
        if closing is None:
            return []
        deadlines = {name: closing.deadline(state) for name, (_, state) in self._states.items()}
        results: list[Record] = []
        for name, deadline in deadlines.items():
            if deadline is not None and deadline <= self.watermark:
                key, state = self._states[name]
                next_state, made = closing.close(key, state, self.watermark)
                self._keep(name, key, next_state)
                results += made
        return results

    def _keep(self, name: Any, key: Any, state: Any) -> None:
        if state is None:
            self._states.pop(name, None)
        else:
            self._states[name] = (key, state)
