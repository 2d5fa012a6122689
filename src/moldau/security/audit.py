"""Audit records: administrative actions, denials and failed logins as JSON, in a buffer with bounds. Writes nothing.

    {"time": "2026-05-04T10:20:30.405Z", "id": "1-1777890000000-7", "broker": 1, "event": "action",
     "principal": "User:alice", "host": "10.0.0.7", "listener": "CLIENTS", "client_id": "rdkafka",
     "api": "CreateTopics", "outcome": "ok", "resources": [{"type": "Topic", "name": "orders", "outcome": "ok"}]}

Actions have a rate of their own, so that a flood of denials cannot hide them. What is over the rate, or does not fit
into the buffer, is counted, and a record tells how much was left out.

Time is an argument: `now_s` are seconds of a clock that does not go back, `now_ms` milliseconds since the Unix epoch.
"""

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

from moldau.base.errors import WireError
from moldau.base.session import Session
from moldau.security.acls import Operation, ResourceType
from moldau.security.quotas import TokenBucket, Window

SHOWN_RESOURCES: Final = 20  # of one action; `more` counts the others
SHOWN_LETTERS: Final = 300  # of a name, which may come from the wire with any length
BUFFERED_BYTES: Final = 4 * 1024 * 1024  # of records that wait to be written
BATCH_BYTES: Final = 512 * 1024  # written at once; a single record is smaller
OK: Final = "ok"
PARTIAL: Final = "partial"  # resources have different outcomes

Record = Mapping[str, object]


class Event(Enum):
    """The kind of a record; the value is also its name among the counts of what was left out."""

    ACTION = "action"
    DENIAL = "denial"
    FAILED_LOGIN = "failed-login"
    LEFT_OUT = "left-out"


class Client(NamedTuple):
    """The client that an event is about."""

    principal: str | None  # None: a failed login as a user that does not exist
    host: str
    listener: str
    client_id: str | None

    def fields(self) -> Record:
        return {
            "principal": shown(self.principal),
            "host": self.host,
            "listener": self.listener,
            "client_id": shown(self.client_id),
        }


def client_of(session: Session) -> Client:
    return Client(str(session.principal), host_of(session.peer), session.listener, session.client_id)


def host_of(peer: str) -> str:
    """The host of a session's peer, without its port."""
    return peer.rpartition(":")[0].strip("[]") or peer


class Resource(NamedTuple):
    """A resource that a request names, and what came of it. The detail says what was asked, without values."""

    type: str
    name: str
    error: int = 0
    detail: str = ""

    def fields(self) -> Record:
        detail = {"detail": shown(self.detail)} if self.detail else {}
        return {"type": self.type, "name": shown(self.name), "outcome": outcome_of(self.error), **detail}


def outcome_of(error: int) -> str:
    try:
        return WireError(error).name if error else OK
    except ValueError:  # of a controller of a later release
        return f"error {error}"


def action(
    client: Client, api: str, resources: Sequence[Resource], error: int = 0, *, validate_only: bool = False
) -> Record:
    """An administrative request. `error` is that of the whole request. What failed is shown first."""
    outcomes = {outcome_of(error)} if error or not resources else {outcome_of(each.error) for each in resources}
    shown_first = sorted(resources, key=lambda each: not each.error)[:SHOWN_RESOURCES]
    more = len(resources) - len(shown_first)
    return {
        "event": Event.ACTION.value,
        **client.fields(),
        "api": api,
        "outcome": outcomes.pop() if len(outcomes) == 1 else PARTIAL,
        **({"validate_only": True} if validate_only else {}),
        "resources": [each.fields() for each in shown_first],
        **({"more": more} if more else {}),
    }


def denial(client: Client, api: str, operation: Operation, resource: ResourceType, name: str, repeats: int) -> Record:
    """A denied operation. `repeats`: how often the same was denied since the last record of it."""
    return {
        "event": Event.DENIAL.value,
        **client.fields(),
        "api": api,
        "outcome": "denied",
        "operation": operation.name,
        "resources": [{"type": resource.title, "name": shown(name)}],
        **({"repeats": repeats} if repeats else {}),
    }


def failed_login(client: Client, mechanism: str, reason: str) -> Record:
    return {
        "event": Event.FAILED_LOGIN.value,
        **client.fields(),
        "mechanism": mechanism,
        "outcome": shown(reason),
    }


def shown(name: str | None) -> str | None:
    return None if name is None else name[:SHOWN_LETTERS]


class AuditBuffer:
    """Records that wait to be written, in the order of their events. `started_ms` makes ids differ between starts."""

    def __init__(self, broker: int, per_second: int, started_ms: int, now_s: float) -> None:
        self._broker = broker
        self._started_ms = started_ms
        self._count = 0
        self._records: deque[bytes] = deque()
        self._size = 0
        self._left_out: Counter[str] = Counter()  # since the last record that told so, by event
        moment = Window(burst_s=1.0, first_s=1.0)
        self._actions = TokenBucket(per_second, moment, now_s)
        self._others = TokenBucket(per_second, moment, now_s)
        self.dropped = 0  # because the buffer was full; the writer resets it

    def __len__(self) -> int:
        return len(self._records)

    @property
    def counts(self) -> Mapping[str, int]:
        """What was left out and not told yet, by event."""
        return self._left_out

    def add(self, record: Record, now_s: float, now_ms: int) -> None:
        """Take a record, or count it as left out."""
        bucket = self._actions if record["event"] == Event.ACTION.value else self._others
        if bucket.wait_s(now_s):
            self._left_out[str(record["event"])] += 1
            return
        bucket.take(1, now_s)
        self.tell_left_out(now_s, now_ms)
        if not self._push(record, now_ms):
            self._left_out[str(record["event"])] += 1
            self.dropped += 1

    def tell_left_out(self, now_s: float, now_ms: int) -> None:
        """Add a record about what was left out, if anything was. It counts as a denial.

        A buffer that fills up tells nothing yet: more will be left out.
        """
        if not self._left_out or self._others.wait_s(now_s) or self._size > BUFFERED_BYTES // 2:
            return
        if self._push({"event": Event.LEFT_OUT.value, "count": dict(sorted(self._left_out.items()))}, now_ms):
            self._others.take(1, now_s)
            self._left_out.clear()

    def _push(self, record: Record, now_ms: int) -> bool:
        self._count += 1
        head = {
            "time": time_of(now_ms),
            "id": f"{self._broker}-{self._started_ms}-{self._count}",
            "broker": self._broker,
        }
        encoded = json.dumps({**head, **record}, separators=(",", ":")).encode()
        if self._size + len(encoded) > BUFFERED_BYTES:
            return False
        self._records.append(encoded)
        self._size += len(encoded)
        return True

    def batch(self) -> list[bytes]:
        """The oldest records, as many as are written at once. They stay until they are removed."""
        taken: list[bytes] = []
        size = 0
        for record in self._records:
            size += len(record)
            if taken and size > BATCH_BYTES:
                break
            taken.append(record)
        return taken

    def remove(self, count: int, *, lost: bool = False) -> None:
        """Remove the oldest records: they are written, or lost, which is counted."""
        for _ in range(count):
            record = self._records.popleft()
            self._size -= len(record)
            if lost:
                self._left_out[str(json.loads(record)["event"])] += 1
        self.dropped += count if lost else 0


def time_of(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
