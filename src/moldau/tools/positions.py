"""Places in a partition as people write them (`beginning`, `42`, `-10`, `@2026-01-31T12:00`), and their offsets."""

from dataclasses import dataclass
from enum import Enum, auto

from moldau.tools.common.failure import CommandError, misused
from moldau.tools.common.formats import read_time

LARGEST = 2**63 - 1


class Kind(Enum):
    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    BEFORE_END = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True)
class Position:
    kind: Kind
    number: int = 0  # an offset, a count of records before the end, or milliseconds


WORDS = {"beginning": Position(Kind.BEGINNING), "end": Position(Kind.END)}


def read_position(text: str, option: str) -> Position:
    if text in WORDS:
        return WORDS[text]
    if text.startswith("@"):
        try:
            return Position(Kind.TIME, read_time(text[1:]))
        except ValueError as error:
            raise misused(f"{option} {text}: {error}") from None
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and int(digits) <= LARGEST:
        return Position(Kind.BEFORE_END if text.startswith("-") else Kind.OFFSET, int(digits))
    raise misused(
        f"{option} {text!r} is not a position",
        remedy="Give beginning, end, an offset, -N for the last N records, or @TIME",
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: its first offset and the one after its last."""

    begin: int
    end: int


def start_offset(position: Position, partition: int, bounds: Bounds) -> int:
    """Where to begin, for every kind but a time, which only the broker can look up."""
    if position.kind is Kind.BEGINNING:
        return bounds.begin
    if position.kind is Kind.BEFORE_END:
        return max(bounds.begin, bounds.end - position.number)
    if position.kind is Kind.OFFSET:
        if not bounds.begin <= position.number <= bounds.end:
            raise CommandError(
                f"offset {position.number} is outside partition {partition}, {describe(bounds)}",
                remedy="Choose partitions with -p, or another --from",
            )
        return position.number
    return bounds.end


def stop_offset(position: Position | None, bounds: Bounds, follow: bool) -> int | None:
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
