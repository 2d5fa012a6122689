"""Where a reset puts a group's offsets: the aim as typed, the plan partition by partition, and plans as CSV. Pure.

The CSV is that of Kafka's own tool: `topic,partition,offset`, or with the group before it. Each can read the other's.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from moldau.tools.common.failure import CommandError, misused
from moldau.tools.places import HIGHEST_PARTITION, Place, is_number
from moldau.tools.positions import LARGEST, Bounds, describe


class Kind(Enum):
    OFFSET = auto()
    TIME = auto()
    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    SHIFT = auto()
    FILE = auto()


@dataclass(frozen=True, slots=True)
class Aim:
    kind: Kind
    number: int = 0  # an offset, a number of records, or milliseconds since 1970
    offsets: Mapping[Place, int] = field(default_factory=dict)  # of a file


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a partition before the reset."""

    bounds: Bounds
    committed: int | None = None
    at_time: int | None = None  # the offset of the first record from the aim's time on


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one partition."""

    place: Place
    committed: int | None
    new: int
    warning: str = ""


def plan_step(aim: Aim, place: Place, facts: Facts) -> Step:
    new, warning = _choose(aim, place, facts)
    return Step(place, facts.committed, new, warning)


def _choose(aim: Aim, place: Place, facts: Facts) -> tuple[int, str]:
    bounds = facts.bounds
    match aim.kind:
        case Kind.EARLIEST:
            return bounds.begin, ""
        case Kind.LATEST:
            return bounds.end, ""
        case Kind.OFFSET:
            return _clamp(aim.number, place, bounds)
        case Kind.FILE:
            return _clamp(aim.offsets[place], place, bounds)
        case Kind.SHIFT:
            if facts.committed is None:
                raise CommandError(
                    f"the group has no committed offset for {place} that could be shifted",
                    remedy="Choose partitions with --topic NAME:P,…, or another way than --shift-by",
                )
            return _clamp(facts.committed + aim.number, place, bounds)
        case Kind.TIME if facts.at_time is not None:
            return facts.at_time, ""
        case Kind.TIME:
            return bounds.end, f"{place} has no record from that time on; its end, {bounds.end}, is taken."
    return (bounds.end if facts.committed is None else facts.committed), ""


def _clamp(wanted: int, place: Place, bounds: Bounds) -> tuple[int, str]:
    """Offsets outside the log become its nearest end, as in Kafka's tool."""
    nearest = min(max(wanted, bounds.begin), bounds.end)
    if nearest == wanted:
        return wanted, ""
    return nearest, f"offset {wanted} is outside {place}, {describe(bounds)}; {nearest} is taken."


def write_csv(steps: Iterable[Step]) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerows((step.place.topic, step.place.partition, step.new) for step in steps)
    return lines.getvalue()


def read_csv(text: str, group: str, source: str) -> dict[Place, int]:
    """The offsets that a plan has for this group."""
    offsets: dict[Place, int] = {}
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise misused(f"{source} is not CSV: {error}") from error
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        owner, topic, partition, offset = row if len(row) == 4 else (group, *row) if len(row) == 3 else ("", "", "", "")
        if not topic or not is_number(partition, HIGHEST_PARTITION) or not is_number(offset, LARGEST):
            raise misused(
                f"line {number} of {source} is not part of a plan",
                remedy="Lines are TOPIC,PARTITION,OFFSET, or GROUP,TOPIC,PARTITION,OFFSET",
            )
        place = Place(topic, int(partition))
        if owner == group and offsets.setdefault(place, int(offset)) != int(offset):
            raise misused(f"{source} has two offsets for {place}")
    if not offsets:
        raise misused(f"{source} has no line for group {group!r}")
    return offsets
