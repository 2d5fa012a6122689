"""Join of a table with another by a foreign key: three steps, each by another key, as in KIP-213.

1. By the left table's key: whom a row refers to now, and no longer.
2. By the foreign key: the row of the right table, and all rows of the left one that refer to it.
3. By the left table's key again: of answers that overtake each other only the newest counts.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from moldau.streams.operators.calls import joiner_of, mapper_of
from moldau.streams.operators.records import Event, Record, frozen
from moldau.streams.topology.nodes import ForeignKeyJoin, JoinKind

SUBSCRIPTION, ROW = 0, 1


class Reference(NamedTuple):
    """Step 1 to step 2: a row of the left table refers to this key (or does not any more: `left` is None)."""

    primary: Any
    version: int
    left: Any
    existed: bool


class Answer(NamedTuple):
    """To step 3: both rows, either of which may be missing."""

    version: int
    left: Any
    right: Any
    existed: bool


class Referring(NamedTuple):
    """The state of step 1."""

    left: Any
    foreign: Any
    version: int


class References:
    """Step 1. Results go to step 2 with the foreign key, or to step 3 if there is none."""

    def __init__(self, node: ForeignKeyJoin) -> None:
        self._foreign = mapper_of(node.on, node.parents[0].shape, node.name)

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        results: list[Record] = []
        for _, record in events:
            if record.key is None:
                continue
            old = Referring(None, None, 0) if state is None else state
            if old.left is None and record.value is None:
                continue
            existed = old.left is not None
            foreign = None if record.value is None else self._foreign(record)
            version = old.version + 1
            if old.foreign is not None and frozen(old.foreign) != frozen(foreign):
                results.append(Record(old.foreign, Reference(record.key, version, None, existed), record.time))
            if foreign is None:
                results.append(Record(record.key, Answer(version, record.value, None, existed), record.time))
            else:
                results.append(Record(foreign, Reference(record.key, version, record.value, existed), record.time))
            state = Referring(record.value, foreign, version)
        return state, results


class Referred:
    """Step 2. The state is the right row, and the left rows by their keys."""

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        right, referring = (None, {}) if state is None else state
        referring = dict(referring)
        results: list[Record] = []
        for side, record in events:
            if side == ROW:
                if right is None and record.value is None:
                    continue
                right = record.value
                for primary, version, left in referring.values():
                    results.append(Record(primary, Answer(version, left, right, existed=True), record.time))
                continue
            given: Reference = record.value
            if given.left is None:
                referring.pop(frozen(given.primary), None)
                continue
            referring[frozen(given.primary)] = (given.primary, given.version, given.left)
            results.append(Record(given.primary, Answer(given.version, given.left, right, given.existed), record.time))
        return (None if right is None and not referring else (right, referring)), results


class Answers:
    """Step 3. The state is the newest version."""

    def __init__(self, node: ForeignKeyJoin) -> None:
        self._left = node.how is JoinKind.LEFT
        self._join = joiner_of(node)

    def process(self, key: Any, state: Any, events: Sequence[Event], watermark: int) -> tuple[Any, list[Record]]:
        results: list[Record] = []
        for _, record in events:
            answer: Answer = record.value
            if state is not None and answer.version < state:
                continue
            state = answer.version
            if answer.left is not None and (answer.right is not None or self._left):
                joined = self._join(record.key, answer.left, answer.right, record.time)
                results.append(record._replace(value=joined))
            elif answer.existed:
                results.append(record._replace(value=None))
        return state, results[-1:]
