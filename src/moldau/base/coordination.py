"""The values that a coordinator's state machine takes and returns, shared by groups/ and transactions/.

A state machine decides; the runtime in broker/coordinators appends the decision's records to the coordinator's log, has
the machine apply them, and sends the replies. Loading applies the same records. Nothing here waits or holds a future.
"""

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


class Decision:
    """The outcome of a command. Nothing of it has happened yet: only `apply` changes a machine.

    A plain class: one is made for each command, and a dataclass would call a factory for each field.
    """

    __slots__ = ("producer_epoch", "producer_id", "records", "replies", "timers", "transient", "work")

    def __init__(
        self,
        records: list[Record] | None = None,
        transient: list[object] | None = None,
        replies: list[tuple[object, object]] | None = None,
        timers: list[Timer] | None = None,
        work: list[object] | None = None,
        producer_id: int = -1,
        producer_epoch: Epoch = -1,
    ) -> None:
        self.records: list[Record] = [] if records is None else records  # appended as one batch, then applied
        # Changes applied after the records, never written to the log.
        self.transient: list[object] = [] if transient is None else transient
        # Token and response, sent after the commit.
        self.replies: list[tuple[object, object]] = [] if replies is None else replies
        self.timers: list[Timer] = [] if timers is None else timers
        # Done by the coordinator after the commit: markers to write.
        self.work: list[object] = [] if work is None else work
        self.producer_id = producer_id  # the records belong to this producer's transaction
        self.producer_epoch = producer_epoch

    @classmethod
    def reply(cls, caller: Caller, response: object) -> "Decision":
        """A response without any change."""
        return cls(replies=[(caller.token, response)])
