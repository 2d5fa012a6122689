"""Positions in a partition relative to its log (beginning, end, an offset, the last N, a time), and their offsets."""

from dataclasses import dataclass
from enum import Enum, auto

from moldau.base.ids import Offset
from moldau.client.admin.errors import OffsetOutOfRange

LARGEST = 2**63 - 1


class Kind(Enum):
    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    BEFORE_END = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class LogPosition:
    kind: Kind
    number: int = 0  # an offset, a number of records before the end, or milliseconds


@dataclass(frozen=True, slots=True)
class Bounds:
    """The log start offset and the next offset of a partition."""

    begin: Offset
    end: Offset


def start_offset(position: LogPosition, partition: int, bounds: Bounds) -> Offset:
    """The first offset to read, for every kind but a time, which only the broker can look up."""
    if position.kind is Kind.BEGINNING:
        return bounds.begin
    if position.kind is Kind.BEFORE_END:
        return max(bounds.begin, bounds.end - position.number)
    if position.kind is Kind.OFFSET:
        if not bounds.begin <= position.number <= bounds.end:
            raise OffsetOutOfRange(f"offset {position.number} is outside partition {partition}, {describe(bounds)}")
        return position.number
    return bounds.end


def stop_offset(position: LogPosition | None, bounds: Bounds, follow: bool) -> Offset | None:
    """The offset to stop before; None to go on for ever, or until a record's time says so."""
    limit = None if follow else bounds.end
    if position is None or position.kind is Kind.TIME:
        return limit
    if position.kind is Kind.OFFSET:
        return position.number if limit is None else min(position.number, limit)
    return start_offset(position, 0, bounds)


def describe(bounds: Bounds) -> str:
    if bounds.begin == bounds.end:
        return f"which is empty (its next offset is {bounds.end})"
    return f"which holds {bounds.begin} to {bounds.end - 1}"
