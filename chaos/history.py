"""What happened in a run, as values, and as a file with one JSON object per line. Judges nothing; see `checker`.

Values are unique in a run (`producer.17`). A place is `topic/partition`. Times are seconds of the recorder's clock.
"""

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

Read = tuple[int, str]  # offset and value
ATTEMPT = "~"  # between what is copied and the number of the attempt


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something that the client `who` did or saw at the time `at`."""

    at: float
    who: str


@dataclasses.dataclass(frozen=True, slots=True)
class Send(Event):
    """Handed to the client. `once`: it promises neither to repeat nor to reorder the records of this producer."""

    place: str
    value: str
    transaction: str = ""
    once: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Acked(Event):
    """The broker has it. The offset is -1 where the client does not know it."""

    place: str
    value: str
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Failed(Event):
    """The client gave up. `surely`: it is known not to be written; otherwise it may be there.

    `hard`: no error after which it is enough to try again.
    """

    place: str
    value: str
    error: str
    surely: bool = False
    hard: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Placed(Event):
    """A reader goes on at this offset (what it was assigned, or sought); -1 where it is not known."""

    place: str
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Polled(Event):
    """Records that a reader got of one place, in its order. `isolated`: by read_committed."""

    place: str
    reads: tuple[Read, ...]
    isolated: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Exhausted(Event):
    """The reader has come to the end of a place that it began at 0: nothing more is there."""

    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stamped(Event):
    """Who wrote what is at an offset, and in which of its epochs: as the log has it."""

    place: str
    offset: int
    producer_id: int
    producer_epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class Erred(Event):
    """A client's program was told of an error that is not a record's. `hard`: to try again is not enough."""

    error: str
    hard: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Ending(Event):
    """The client was asked to commit or to abort a transaction."""

    transaction: str
    commit: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Ended(Event):
    """It is known how a transaction ended. One that has no such event may have ended either way."""

    transaction: str
    commit: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Copies(Event):
    """Records of one topic are copied to another, each once: `a.17` as `a.17~1`, `~2` at the next attempt."""

    source: str
    target: str


@dataclasses.dataclass(frozen=True, slots=True)
class Committing(Event):
    """A group's offset is about to be committed."""

    group: str
    place: str
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Committed(Event):
    """And that was acknowledged."""

    group: str
    place: str
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fetched(Event):
    """A group's committed offset, as the broker told it; -1: none. The question was asked at `since`."""

    group: str
    place: str
    offset: int
    since: float


@dataclasses.dataclass(frozen=True, slots=True)
class Listed(Event):
    """The end of a place, as ListOffsets told it. The question was asked at `since`."""

    place: str
    offset: int
    since: float


@dataclasses.dataclass(frozen=True, slots=True)
class Disturbed(Event):
    """From now on a broker may not know that it was replaced, and tell clients what was true before."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settled(Event):
    """And that is over: all brokers know what there is to know."""


@dataclasses.dataclass(frozen=True, slots=True)
class Struck(Event):
    """What a fault did to the cluster, as those saw it whom it left alone.

    How many partitions got another leader, how many had a replica out of sync; and whether nobody was left to ask.
    """

    fault: str
    moved: int
    behind: int
    silent: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Noted(Event):
    """Something for who reads the history: a fault, its end, what a client did after an error."""

    text: str


KINDS = {
    kind.__name__: kind
    for kind in (
        Send, Acked, Failed, Placed, Polled, Exhausted, Stamped, Erred, Ending, Ended, Copies, Committing, Committed,
        Fetched, Listed, Disturbed, Settled, Struck, Noted,
    )
}  # fmt: skip


class Recorder:
    """Keeps events in the order in which they are told, from any thread, and writes each to a file at once."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.events: list[Event] = []
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._file: TextIO | None = path.open("w") if path else None

    def now(self) -> float:
        return self._clock() - self._began

    def tell(self, kind: type[Event], who: str, *fields: Any, **named: Any) -> None:
        """`recorder.tell(Send, "producer", "topic/0", "producer.17")`: now."""
        with self._lock:
            event = kind(round(self.now(), 6), who, *fields, **named)
            self.events.append(event)
            if self._file:
                self._file.write(as_line(event))

    def close(self) -> None:
        with self._lock:
            if self._file:
                self._file.close()
                self._file = None


def as_line(event: Event) -> str:
    return json.dumps({"kind": type(event).__name__, **dataclasses.asdict(event)}, separators=(",", ":")) + "\n"


def from_line(line: str) -> Event:
    fields = json.loads(line)
    kind = KINDS[fields.pop("kind")]
    if kind is Polled:
        fields["reads"] = tuple((offset, value) for offset, value in fields["reads"])
    return kind(**fields)


def load(path: Path) -> Iterator[Event]:
    with path.open() as lines:
        yield from map(from_line, lines)


def save(history: Iterable[Event], path: Path) -> None:
    with path.open("w") as file:
        file.writelines(map(as_line, history))
