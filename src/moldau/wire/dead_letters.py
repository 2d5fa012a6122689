"""Headers of dead letters, and of records in retry topics: why, where from, how often. Sends nothing.

All are UTF-8 text. The origin stays that of the first topic, however often a record fails. Its topic, partition and
offset are a key: two dead letters with the same key are the same. A record that a broker refused never had an offset:
there topic, partition and producer are the key, if its producer was idempotent.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.base.ids import Millis, Offset

REASON: Final = "moldau.reason"
TOPIC: Final = "moldau.topic"
PARTITION: Final = "moldau.partition"
OFFSET: Final = "moldau.offset"
TIMESTAMP: Final = "moldau.timestamp"  # of the record; in ms since the Unix epoch
ATTEMPT: Final = "moldau.attempt"  # how often it was tried
STACK: Final = "moldau.stack"  # of the exception; only the end of a long one
PRODUCER: Final = "moldau.producer"  # of a record that a broker refused: producer id, its epoch, the sequence
DUE: Final = "moldau.due"  # not to be tried before this time; in ms since the Unix epoch

NAMES: Final = frozenset((REASON, TOPIC, PARTITION, OFFSET, TIMESTAMP, ATTEMPT, STACK, PRODUCER, DUE))


class Origin(NamedTuple):
    """The record that failed."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis | int


def letter_headers(reason: str, origin: Origin) -> list[tuple[str, bytes | None]]:
    """What every dead letter says."""
    told = (reason, *origin)
    names = (REASON, TOPIC, PARTITION, OFFSET, TIMESTAMP)
    return [(name, encoded(str(each))) for name, each in zip(names, told, strict=True)]


def refused_headers(
    reason: str, topic: str, partition: int, timestamp: Millis | int, producer: tuple[int, int, int] | None
) -> list[tuple[str, bytes | None]]:
    """What the dead letter of a record says that a broker refused. `producer`: id, epoch and sequence."""
    told = {REASON: reason, TOPIC: topic, PARTITION: partition, TIMESTAMP: timestamp}
    headers: list[tuple[str, bytes | None]] = [(name, encoded(str(each))) for name, each in told.items()]
    return headers if producer is None else [*headers, (PRODUCER, b"%d/%d/%d" % producer)]


def encoded(text: str) -> bytes:
    """UTF-8; what it cannot express is escaped: a reason may quote anything."""
    return text.encode(errors="backslashreplace")


def origin_in(headers: Iterable[tuple[str, bytes | None]]) -> Origin | None:
    """The origin that headers tell; None if they tell none."""
    found = {name: value for name, value in headers if name in NAMES and value is not None}
    try:
        return Origin(found[TOPIC].decode(), *(int(found[name]) for name in (PARTITION, OFFSET, TIMESTAMP)))
    except (KeyError, ValueError):
        return None


def number_in(headers: Iterable[tuple[str, bytes | None]], name: str) -> int:
    """A number among the headers; 0 if there is none."""
    for each, value in headers:
        if each == name and value is not None:
            try:
                return int(value)
            except ValueError:
                return 0
    return 0
