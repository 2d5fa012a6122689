"""Events of a run, as values and as a file with one JSON object per line. The `checker` judges them.

Record values are unique in a run (`producer.17`). A place is `topic/partition`. Times are seconds of the recorder's
clock.
"""

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

Read = tuple[int, str]  # offset and value
ATTEMPT = "~"  # between the copied value and the number of the attempt


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An action or observation of a client at the time `at`."""

    at: float
    client: str


@dataclasses.dataclass(frozen=True, slots=True)
class Send(Event):
    """A record was given to the client library. `once`: the library promises no duplicates and no reordering."""

    place: str
    value: str
    transaction: str = ""
    once: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Acked(Event):
    """A record was acknowledged. The offset is -1 if the client does not know it."""

    place: str
    value: str
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Failed(Event):
    """The client gave up a record. `surely`: it is definitely not written; otherwise it may be.

    `hard`: an error that a retry does not solve.
    """

    place: str
    value: str
    error: str
    surely: bool = False
    hard: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Placed(Event):
    """A reader continues at this offset after an assignment or a seek; -1 if unknown."""

    place: str
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Polled(Event):
    """Records of one partition that a reader got, in order. `isolated`: with read_committed."""

    place: str
    reads: tuple[Read, ...]
    isolated: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Exhausted(Event):
    """A reader that started at 0 has reached the end of the partition."""

    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stamped(Event):
    """Producer id and epoch of the record at an offset, as the log has them."""

    place: str
    offset: int
    producer_id: int
    producer_epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class Erred(Event):
    """A client got an error that concerns no single record. `hard`: a retry does not solve it."""

    error: str
    hard: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Ending(Event):
    """The commit or abort of a transaction was requested."""

    transaction: str
    commit: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Ended(Event):
    """The outcome of a transaction is known. A transaction without this event may have ended either way."""

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
    """The commit of a group's offset was acknowledged."""

    group: str
    place: str
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fetched(Event):
    """A group's committed offset by OffsetFetch; -1 if none. The request was sent at `since`."""

    group: str
    place: str
    offset: int
    since: float


@dataclasses.dataclass(frozen=True, slots=True)
class Listed(Event):
    """The end offset of a partition by ListOffsets. The request was sent at `since`."""

    place: str
    offset: int
    since: float


@dataclasses.dataclass(frozen=True, slots=True)
class Disturbed(Event):
    """From now on a broker may not know that it was replaced, and return stale answers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settled(Event):
    """All brokers are up to date again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Struck(Event):
    """Effect of a fault, by the metadata of the other brokers.

    Partitions with a new leader, partitions with a replica out of sync, and whether no broker answered.
    """

    fault: str
    moved: int
    behind: int
    silent: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Noted(Event):
    """A note for readers of the history: a fault, its end, the reaction of a client to an error."""

    text: str


KINDS = {
    kind.__name__: kind
    for kind in (
        Send, Acked, Failed, Placed, Polled, Exhausted, Stamped, Erred, Ending, Ended, Copies, Committing, Committed,
        Fetched, Listed, Disturbed, Settled, Struck, Noted,
    )
}  # fmt: skip


class Recorder:
    """Keeps events from all threads in order, and writes each one to a file at once."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.events: list[Event] = []
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._file: TextIO | None = path.open("w") if path else None

    def now(self) -> float:
        return self._clock() - self._began

    def tell(self, kind: type[Event], client: str, *fields: Any, **named: Any) -> None:
        """Record an event that happens now: `recorder.tell(Send, "producer", "topic/0", "producer.17")`."""
        with self._lock:
            event = kind(round(self.now(), 6), client, *fields, **named)
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
