"""Reset of a group's committed offsets: the target, the plan partition by partition, and plans as CSV.

The CSV is that of Kafka's own tool: `topic,partition,offset`, or with the group before it. Each can read the other's.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from moldau.base.ids import Offset, TopicPartition
from moldau.client.admin.clients import Admin
from moldau.client.admin.errors import GroupNotEmpty, InvalidArgument, NoSuchPartition, NothingCommitted, NothingToShift
from moldau.client.admin.group_offsets import read_committed, read_offsets
from moldau.client.admin.groups import describe_groups
from moldau.client.admin.positions import LARGEST, Bounds, describe
from moldau.client.admin.scope import HIGHEST_PARTITION, Scope, is_number
from moldau.client.admin.topics import existing_partitions


class Kind(Enum):
    OFFSET = auto()
    TIME = auto()
    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    SHIFT = auto()
    FILE = auto()


@dataclass(frozen=True, slots=True)
class ResetTo:
    """Where the offsets should go."""

    kind: Kind
    number: int = 0  # an offset, a number of records, or milliseconds since 1970
    offsets: Mapping[TopicPartition, Offset] = field(default_factory=dict)  # of a file


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """A partition before the reset."""

    bounds: Bounds
    committed: Offset | None = None
    at_time: Offset | None = None  # the offset of the first record from the target time on


@dataclass(frozen=True, slots=True)
class Step:
    """The reset of one partition."""

    partition: TopicPartition
    committed: Offset | None
    new: Offset
    warning: str = ""


@dataclass(frozen=True, slots=True)
class ResetPlan:
    group: str
    exists: bool  # else the reset creates the group
    steps: tuple[Step, ...]


def plan_reset(admin: Admin, group: str, to: ResetTo, scopes: Sequence[Scope]) -> ResetPlan:
    """The plan for these partitions, or for all with a committed offset. GroupNotEmpty if the group is in use."""
    (found,) = describe_groups(admin, [group])
    if found.is_live():
        raise GroupNotEmpty(group, len(found.members), found.state)
    committed = read_committed(admin, group)
    partitions = _partitions(admin, group, to, scopes, committed)
    begins = read_offsets(admin, partitions, "earliest")
    ends = read_offsets(admin, partitions, "latest")
    at_time = read_offsets(admin, partitions, to.number) if to.kind is Kind.TIME else {}
    steps = []
    for tp in partitions:
        begin, end = begins.get(tp), ends.get(tp)
        if begin is None or end is None:
            raise NoSuchPartition(tp.topic, tp.partition)
        known = PartitionOffsets(Bounds(begin, end), committed.get(tp), at_time.get(tp))
        steps.append(plan_step(group, to, tp, known))
    return ResetPlan(group, found.exists() or bool(committed), tuple(steps))


def _partitions(
    admin: Admin, group: str, to: ResetTo, scopes: Sequence[Scope], committed: Mapping[TopicPartition, Offset]
) -> list[TopicPartition]:
    if to.kind is Kind.FILE:
        return sorted(to.offsets)
    if not scopes:
        if not committed:
            raise NothingCommitted(group)
        return sorted(committed)
    return sorted({tp for scope in scopes for tp in existing_partitions(admin, scope)})


def plan_step(group: str, to: ResetTo, tp: TopicPartition, known: PartitionOffsets) -> Step:
    new, warning = _choose(group, to, tp, known)
    return Step(tp, known.committed, new, warning)


def _choose(group: str, to: ResetTo, tp: TopicPartition, known: PartitionOffsets) -> tuple[Offset, str]:
    bounds = known.bounds
    match to.kind:
        case Kind.EARLIEST:
            return bounds.begin, ""
        case Kind.LATEST:
            return bounds.end, ""
        case Kind.OFFSET:
            return _clamp(to.number, tp, bounds)
        case Kind.FILE:
            return _clamp(to.offsets[tp], tp, bounds)
        case Kind.SHIFT:
            if known.committed is None:
                raise NothingToShift(group, str(tp))
            return _clamp(known.committed + to.number, tp, bounds)
        case Kind.TIME if known.at_time is not None:
            return known.at_time, ""
        case Kind.TIME:
            return bounds.end, f"{tp} has no record from that time on; its end, {bounds.end}, is taken."
    return (bounds.end if known.committed is None else known.committed), ""


def _clamp(wanted: Offset, tp: TopicPartition, bounds: Bounds) -> tuple[Offset, str]:
    """Offsets outside the log become its nearest end, as in Kafka's tool."""
    nearest = min(max(wanted, bounds.begin), bounds.end)
    if nearest == wanted:
        return wanted, ""
    return nearest, f"offset {wanted} is outside {tp}, {describe(bounds)}; {nearest} is taken."


def write_csv(steps: Iterable[Step]) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerows((step.partition.topic, step.partition.partition, step.new) for step in steps)
    return lines.getvalue()


def read_csv(text: str, group: str, source: str) -> dict[TopicPartition, Offset]:
    """The offsets that a plan has for this group; `source` names it in errors."""
    offsets: dict[TopicPartition, Offset] = {}
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise InvalidArgument(f"{source} is not CSV: {error}") from error
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        owner, topic, partition, offset = row if len(row) == 4 else (group, *row) if len(row) == 3 else ("", "", "", "")
        if not topic or not is_number(partition, HIGHEST_PARTITION) or not is_number(offset, LARGEST):
            raise InvalidArgument(
                f"line {number} of {source} is not part of a plan: "
                "lines are TOPIC,PARTITION,OFFSET, or GROUP,TOPIC,PARTITION,OFFSET"
            )
        tp = TopicPartition(topic, int(partition))
        if owner == group and offsets.setdefault(tp, int(offset)) != int(offset):
            raise InvalidArgument(f"{source} has two offsets for {tp}")
    if not offsets:
        raise InvalidArgument(f"{source} has no line for group {group!r}")
    return offsets
