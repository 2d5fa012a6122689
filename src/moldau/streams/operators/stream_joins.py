"""Join of two streams within a window of time, for the interpreter; Spark has its own."""

from collections.abc import Sequence
from typing import Any

from moldau.streams.operators.calls import joiner_of
from moldau.streams.operators.records import Event, Record
from moldau.streams.topology.nodes import JoinKind, StreamJoin

LEFT, RIGHT = 0, 1


class StreamToStream:
    """The state is the records of both sides, each with whether it has found a partner.

    A record that is more than the grace behind the newest one is late, and is dropped.
    """

    def __init__(self, node: StreamJoin) -> None:
        self.grace_ms = node.within.grace_ms
        self._before, self._after = node.within.before_ms, node.within.after_ms
        self._alone = {
            LEFT: node.how in (JoinKind.LEFT, JoinKind.OUTER),
            RIGHT: node.how is JoinKind.OUTER,
        }
        self._join = joiner_of(node)
        self.late = 0

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        sides: list[list[list[Any]]] = [[], []] if state is None else state
        results: list[Record] = []
        for side, record in events:
            if record.time <= watermark:
                self.late += 1
                continue
            mine = [record, False]
            for other in sides[1 - side] if record.key is not None else ():
                left, right = (record, other[0]) if side == LEFT else (other[0], record)
                if -self._before <= right.time - left.time <= self._after:
                    mine[1] = other[1] = True
                    results.append(self._joined(left, right))
            sides[side].append(mine)
        return sides if sides[0] or sides[1] else None, results

    def close(self, key: Any, state: Any, watermark: int) -> tuple[Any, list[Record]]:
        results: list[Record] = []
        kept: list[list[list[Any]]] = [[], []]
        for side in (LEFT, RIGHT):
            for entry in state[side]:
                if self._end(side, entry[0]) > watermark:
                    kept[side].append(entry)
                elif not entry[1] and self._alone[side]:
                    pair = (entry[0], None) if side == LEFT else (None, entry[0])
                    results.append(self._joined(*pair))
        return kept if kept[0] or kept[1] else None, results

    def deadline(self, state: Any) -> int | None:
        return min((self._end(side, entry[0]) for side in (LEFT, RIGHT) for entry in state[side]), default=None)

    def _end(self, side: int, record: Record) -> int:
        """The newest time of the other side that still joins with it."""
        return record.time + (self._after if side == LEFT else self._before)

    def _joined(self, left: Record | None, right: Record | None) -> Record:
        one = left or right
        assert one is not None
        time = max(each.time for each in (left, right) if each is not None)
        value = self._join(one.key, left.value if left else None, right.value if right else None, time)
        return Record(one.key, value, time, one.window)
