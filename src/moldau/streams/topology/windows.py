"""Windows and times: how records are cut into windows, how long a window waits for late ones, and when results come."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

from moldau.streams.topology.refusals import TopologyRefused

Millis: TypeAlias = int
MAX_WINDOWS_PER_RECORD: Final = 1000  # a hopping window of a day that advances by a second would be 86,400


def milliseconds(count: float) -> timedelta:
    return timedelta(milliseconds=count)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def days(count: float) -> timedelta:
    return timedelta(days=count)


class Emit(Enum):
    """When a windowed aggregate gives results."""

    UPDATES = "updates"
    FINAL = "final"


updates: Final = Emit.UPDATES  # as they change: at most one per window and batch
final: Final = Emit.FINAL  # once, when the window closes


def millis(span: object, what: str, *, least: Millis = 0) -> Millis:
    """A time span in milliseconds; refused unless it is one of at least so many."""
    if not isinstance(span, timedelta):
        raise TopologyRefused(f"{what} is a time span, such as minutes(1), not {span!r}")
    exact, rest = divmod(span, timedelta(milliseconds=1))
    if rest:
        raise TopologyRefused(f"{what} is {span}: the time of records is in whole milliseconds")
    if exact < least:
        raise TopologyRefused(f"{what} is {shown(exact)}, and must be at least {shown(least)}")
    return exact


@dataclass(frozen=True)
class Window:
    """What all windows have. `grace` is how far a record may be behind the newest one; by default the window's size."""

    size: timedelta
    grace: timedelta | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        millis(self.size, f"the size of {type(self).__name__}", least=1)
        if self.grace is not None:
            millis(self.grace, f"the grace of {type(self).__name__}")

    @property
    def size_ms(self) -> Millis:
        return millis(self.size, "the size")

    @property
    def grace_ms(self) -> Millis:
        return self.size_ms if self.grace is None else millis(self.grace, "the grace")

    def describe(self) -> str:
        return f"{type(self).__name__}({shown(self.size_ms)}, grace {shown(self.grace_ms)})"


@dataclass(frozen=True)
class Tumbling(Window):
    """Windows side by side, aligned to the epoch: each record is in one."""

    def windows(self, time: Millis) -> Iterator[tuple[Millis, Millis]]:
        start = time - time % self.size_ms
        yield start, start + self.size_ms


@dataclass(frozen=True)
class Hopping(Window):
    """Windows that begin every `advance` and overlap, aligned to the epoch: each record is in several."""

    advance: timedelta = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        step = millis(self.advance, "the advance of Hopping", least=1)
        if step > self.size_ms:
            raise TopologyRefused(
                f"Hopping advances by {shown(step)}, more than its size of {shown(self.size_ms)}: "
                "records would be in no window"
            )
        if self.size_ms > step * MAX_WINDOWS_PER_RECORD:
            raise TopologyRefused(
                f"each record would be in {self.size_ms // step} windows, and the limit is {MAX_WINDOWS_PER_RECORD}. "
                "Advance by more, or use Sliding"
            )

    @property
    def advance_ms(self) -> Millis:
        return millis(self.advance, "the advance")

    def windows(self, time: Millis) -> Iterator[tuple[Millis, Millis]]:
        start = time - time % self.advance_ms
        while start > time - self.size_ms:
            yield start, start + self.size_ms
            start -= self.advance_ms

    def describe(self) -> str:
        return f"Hopping({shown(self.size_ms)}, advance {shown(self.advance_ms)}, grace {shown(self.grace_ms)})"


@dataclass(frozen=True)
class Session(Window):
    """Windows of one key that grow while records come, and end after a gap of `size` without any."""


@dataclass(frozen=True)
class Sliding(Window):
    """Windows of records that are at most `size` apart, aligned to the records. Both ends are inside, as in Kafka."""


@dataclass(frozen=True, slots=True)
class Within:
    """The other side of a join of two streams may be this much earlier or later."""

    before_ms: Millis
    after_ms: Millis
    grace_ms: Millis

    def describe(self) -> str:
        span = (
            shown(self.before_ms)
            if self.before_ms == self.after_ms
            else f"-{shown(self.before_ms)}/+{shown(self.after_ms)}"
        )
        return f"within {span}, grace {shown(self.grace_ms)}"


UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def shown(span: Millis) -> str:
    """`90000` as 1min 30s."""
    if span == 0:
        return "0s"
    words = []
    for unit, name in UNITS:
        count, span = divmod(span, unit)
        if count:
            words.append(f"{count}{name}")
    return " ".join(words)
