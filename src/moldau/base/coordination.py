"""What a coordinator's machine takes and gives: plain values, shared by groups/ and transactions/.

A machine decides, the runtime in broker/ appends what was decided to the coordinator's log, the machine applies it,
and then the replies go out. Start-up applies the same records. Nothing here waits, and nothing here holds a future.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

TimerKey = tuple[str, ...]


class Caller(NamedTuple):
    """Who asks. The token comes back with the reply; a machine knows nothing else of it."""

    token: object
    version: int
    client_id: str
    client_host: str


class Record(NamedTuple):
    """A record of a coordinator's log: a key message and a value message, or None to say that the key is gone."""

    key: Any
    value: Any


class Timer(NamedTuple):
    """Wake the machine with `Fired(key)` at this time (milliseconds since the Unix epoch); None: not any more."""

    key: TimerKey
    at: int | None


class Fired(NamedTuple):
    """The command that a machine gets when one of its timers is due."""

    key: TimerKey


@dataclass(slots=True)
class Decision:
    """What a command leads to. Nothing of it has happened yet: only `apply` changes a machine."""

    records: list[Record] = field(default_factory=list)  # appended as one batch, then applied
    passing: list[Any] = field(default_factory=list)  # applied after the records, never written: a restart forgets it
    replies: list[tuple[object, Any]] = field(default_factory=list)  # token and response, once the records are safe
    timers: list[Timer] = field(default_factory=list)
    work: list[Any] = field(default_factory=list)  # for others to do once the records are safe: markers to write
    producer_id: int = -1  # the records belong to this producer's transaction
    producer_epoch: int = -1

    @classmethod
    def reply(cls, caller: Caller, response: Any) -> "Decision":
        """An answer, and nothing changes."""
        return cls(replies=[(caller.token, response)])
