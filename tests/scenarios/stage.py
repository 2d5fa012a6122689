"""A stage for the coordinators' state machines: a clock, timers and a log; decisions are executed as in a broker.

Generic over the machine. Every effect is a line, for scripts to record.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from moldau.base.coordination import INTERNAL_CALLER, Caller, Decision, Record, TimerFired, TimerKey
from moldau.base.errors import WireError
from moldau.wire.declare import REQUIRED, fields_of
from scenarios.script import Command, Verb


class Machine(Protocol):
    def decide(self, command: Any, caller: Caller, env: Any) -> Decision: ...
    def apply(self, change: Any, producer_id: int = -1) -> None: ...
    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...
    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, commit: bool) -> None: ...
    def loaded(self, env: Any) -> Decision: ...


class Logged(NamedTuple):
    """A record in the log, or the marker that ends a transaction."""

    key: bytes
    value: bytes | None
    producer_id: int
    commit: bool | None = None  # of a marker


class Stage:
    """One state machine with log, timers and clients. Time starts at 0 and passes when a script waits.

    `states` says in a few words where the machine is, by name; what changes is told with what changed it. `read` turns
    bytes into records that can be shown, for machines that pack some by hand.
    """

    def __init__(
        self,
        machine: Callable[[], Machine],
        env: Callable[[int], Any],
        states: Callable[[Any], dict[str, str]] = lambda machine: {},
        read: Callable[[bytes, bytes | None], Record | None] | None = None,
    ) -> None:
        self._new_machine = machine
        self._env = env
        self._states = states
        self._read = read
        self.machine = machine()
        self.now = 0
        self.timers: dict[TimerKey, int] = {}
        self.log: list[Logged] = []
        self.append_fails = False

    def verbs(self) -> dict[str, Verb]:
        """What every machine's scripts can say."""
        return {"wait": self._wait, "restart": self._restart, "fail": self._fail}

    def ask(self, command: Any, who: str, version: int = 0) -> list[str]:
        caller = Caller(who, version, who, "/127.0.0.1")
        return list(self.execute(self.machine.decide(command, caller, self._env(self.now))))

    def execute(self, decision: Decision) -> Iterator[str]:
        """Append, apply, set timers, reply. If the append fails nothing of it happens."""
        if decision.records and self.append_fails:
            self.append_fails = False
            yield from (f"{token} gets an error: nothing could be written" for token, _ in decision.replies)
            return
        before = self._states(self.machine)
        for record in decision.records:
            key, value = self.machine.encode(record)
            self.log.append(Logged(key, value, decision.producer_id))
            self.machine.apply(record, decision.producer_id)
            yield f"writes {self.show_record(record, decision.producer_id)}"
        for change in decision.transient:
            self.machine.apply(change)
        yield from self._moves(before)
        for work in decision.work:
            yield f"work {self.show_work(work)}"
        for timer in decision.timers:
            earlier = self.timers.pop(timer.key, None)
            if timer.at is not None:
                self.timers[timer.key] = timer.at
                yield f"timer {' '.join(timer.key)} in {timer.at - self.now}"
            elif earlier is not None:
                yield f"timer {' '.join(timer.key)} off"
        for token, response in decision.replies:
            yield f"{token} <- {show(response)}"

    def show_record(self, record: Record, producer_id: int) -> str:
        shown = self._read(record.key, record.value) if self._read and isinstance(record.key, bytes) else record
        assert shown is not None
        name = type(shown.key).__name__.removesuffix("Key")
        where = f" in the transaction of {producer_id}" if producer_id >= 0 else ""
        return f"{name} {show_fields(shown.key)}: {show_fields(shown.value) if shown.value else 'gone'}{where}"

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A marker goes to the log."""
        self.log.append(Logged(b"", None, producer_id, commit))
        self.machine.end_transaction(producer_id, commit)

    def _moves(self, before: dict[str, str]) -> Iterator[str]:
        after = self._states(self.machine)
        for name in before | after:
            if before.get(name) != after.get(name):
                yield f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"

    def show_work(self, work: Any) -> str:
        return str(work)

    def fire_next(self, until: int) -> list[str] | None:
        """The next timer that is due by then; None if there is none."""
        due = min(((at, key) for key, at in self.timers.items() if at <= until), default=None)
        if due is None:
            return None
        self.now, key = max(self.now, due[0]), due[1]
        del self.timers[key]
        decision = self.machine.decide(TimerFired(key), INTERNAL_CALLER, self._env(self.now))
        return [f"at {self.now} {' '.join(key)}", *self.execute(decision)]

    # -- verbs

    def _wait(self, command: Command) -> list[str]:
        """`wait 3000`: so many milliseconds pass, and timers fire as they are due."""
        until = self.now + int(command.words[0])
        told: list[str] = []
        while (lines := self.fire_next(until)) is not None:
            told += lines
        self.now = until
        return told

    def _restart(self, command: Command) -> list[str]:
        """`restart`: a new machine reads the log; pending requests are dropped."""
        self.machine = self._new_machine()
        self.timers.clear()
        for key, value, producer_id, commit in self.log:
            if commit is None:
                self.machine.replay(key, value, producer_id)
            else:
                self.machine.end_transaction(producer_id, commit)
        return list(self.execute(self.machine.loaded(self._env(self.now))))

    def _fail(self, command: Command) -> list[str]:
        """`fail`: the next append does."""
        self.append_fails = True
        return []


def show(message: Any) -> str:
    """A message in short: its name, and the fields that are not as they are by default. An error is its name."""
    if isinstance(message, WireError):
        return message.name
    return f"{type(message).__name__.removesuffix('Response')} {show_fields(message)}".rstrip()


def show_fields(message: Any) -> str:
    fields = [(field.name, getattr(message, field.name), field.default) for field in fields_of(type(message))]
    return " ".join(
        f"{name}={_show_value(name, value)}"
        for name, value, default in fields
        if default is REQUIRED or value != default
    )


def _show_value(name: str, value: Any) -> str:
    if name == "error_code":
        return WireError(value).name
    if isinstance(value, bytes):
        return repr(value.decode("latin-1"))
    if isinstance(value, tuple):
        return "[" + ", ".join(_show_value("", each) for each in value) + "]"
    return f"({show_fields(value)})" if hasattr(value, "__wire_fields__") else str(value)
