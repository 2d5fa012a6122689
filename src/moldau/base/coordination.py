"""The values that a coordinator's state machine takes and returns, shared by groups/ and transactions/.

A state machine decides; the runtime in broker/coordinators appends the decision's records to the coordinator's log, has
the machine apply them, and sends the replies. Loading applies the same records. Nothing here waits or holds a future.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.base.ids import Epoch

TimerKey = tuple[str, ...]


class Caller(NamedTuple):
    """The sender of a command. Its token comes back with the reply; a state machine knows nothing else of it."""

    token: object
    version: int
    client_id: str
    client_host: str


INTERNAL_CALLER = Caller(None, 0, "", "")  # of timers and of commands by the broker itself: no reply is sent


class Record(NamedTuple):
    """A record of a coordinator's log: a key and a value, as messages or as packed bytes; value None: a tombstone."""

    key: object
    value: object


class Timer(NamedTuple):
    """Send the machine `TimerFired(key)` at this time (milliseconds since the Unix epoch); None cancels the timer."""

    key: TimerKey
    at: int | None


class TimerFired(NamedTuple):
    """The command that a machine gets when one of its timers is due."""

    key: TimerKey


@dataclass(slots=True)
class Decision:
    """The outcome of a command. Nothing of it has happened yet: only `apply` changes a machine."""

    records: list[Record] = field(default_factory=list)  # appended as one batch, then applied
    transient: list[object] = field(default_factory=list)  # changes applied after the records, never written to the log
    replies: list[tuple[object, object]] = field(default_factory=list)  # token and response, sent after the commit
    timers: list[Timer] = field(default_factory=list)
    work: list[object] = field(default_factory=list)  # done by the coordinator after the commit: markers to write
    producer_id: int = -1  # the records belong to this producer's transaction
    producer_epoch: Epoch = -1

    @classmethod
    def reply(cls, caller: Caller, response: object) -> "Decision":
        """A response without any change."""
        return cls(replies=[(caller.token, response)])
