"""Records between operators, and the order in which those of several inputs are taken."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from moldau.streams.sql.evaluate import Row
from moldau.streams.sql.functions import EPOCH, MILLISECOND

Span: TypeAlias = tuple[int, int]  # start and end of a window, in milliseconds


class Record(NamedTuple):
    """A key, a value, a time in milliseconds, and the window of a windowed table."""

    key: Any
    value: Any
    time: int
    window: Span | None = None


class Event(NamedTuple):
    """A record at an operator with state. `side` is the number of the parent that it comes from."""

    side: int
    record: Record


def moment(millis: int) -> datetime:
    return EPOCH + millis * MILLISECOND


def millis_of(time: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    return (time - EPOCH) // MILLISECOND


def row_of(record: Record) -> Row:
    """The names that an expression sees."""
    row = {"key": record.key, "value": record.value, "timestamp": moment(record.time)}
    if record.window is not None:
        row["window"] = window_row(record.window)
    return row


def window_row(window: Span) -> dict[str, datetime]:
    return {"start": moment(window[0]), "end": moment(window[1])}


def frozen(value: Any) -> Any:
    """A value that is equal for equal keys and can be a key of a dictionary."""
    if isinstance(value, Mapping):
        return tuple((name, frozen(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(frozen(each) for each in value)
    return value


def merged(events: Iterable[Event]) -> Sequence[Event]:
    """Events of several inputs in the order in which Kafka Streams takes them.

    Each input keeps its own order; of the next ones of all inputs the one with the smallest time goes first, and at the
    same time a table's (the later input) before a stream's, so that a lookup finds what is there.
    """
    queues: dict[int, deque[Event]] = {}
    for event in events:
        queues.setdefault(event.side, deque()).append(event)
    if len(queues) == 1:
        return list(next(iter(queues.values())))
    taken: list[Event] = []
    while queues:
        side = min(queues, key=lambda each: (queues[each][0].record.time, -each))
        taken.append(queues[side].popleft())
        if not queues[side]:
            del queues[side]
    return taken
