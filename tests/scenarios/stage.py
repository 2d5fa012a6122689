"""A stage for coordinators' machines: a clock, timers and a log, and every decision carried out as a broker would.

Generic over the machine: whatever decides and applies as `moldau.base.coordination` says. What happens is told in
lines, for scripts to record.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from moldau.base.coordination import Caller, Decision, Fired, Record, TimerKey
from moldau.base.errors import WireError
from moldau.wire.declare import REQUIRED, fields_of
from scenarios.script import Command, Verb

NOBODY = Caller(None, 0, "", "")


class Machine(Protocol):
    def decide(self, command: Any, caller: Caller, env: Any) -> Decision: ...
    def apply(self, change: Any, producer_id: int = -1) -> None: ...
    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...
    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None: ...
    def loaded(self, env: Any) -> Decision: ...


class Stage:
    """One machine and its surroundings. Time starts at 0 and passes when a script waits.

    `states` says in a few words where the machine is, by name; what changes is told with what changed it.
    """

    def __init__(
        self,
        machine: Callable[[], Machine],
        env: Callable[[int], Any],
        states: Callable[[Any], dict[str, str]] = lambda machine: {},
    ) -> None:
        self._new_machine = machine
        self._env = env
        self._states = states
        self.machine = machine()
        self.now = 0
        self.timers: dict[TimerKey, int] = {}
        self.log: list[tuple[bytes, bytes | None, int]] = []
        self.append_fails = False

    def verbs(self) -> dict[str, Verb]:
        """What every machine's scripts can say."""
        return {"wait": self._wait, "restart": self._restart, "fail": self._fail}

    def ask(self, command: Any, who: str, version: int = 0) -> list[str]:
        caller = Caller(who, version, who, "/127.0.0.1")
        return list(self.carry_out(self.machine.decide(command, caller, self._env(self.now))))

    def carry_out(self, decision: Decision) -> Iterator[str]:
        """Append, apply, set timers, reply. If the append fails nothing of it happens."""
        if decision.records and self.append_fails:
            self.append_fails = False
            yield from (f"{token} gets an error: nothing could be written" for token, _ in decision.replies)
            return
        before = self._states(self.machine)
        for record in decision.records:
            key, value = self.machine.encode(record)
            self.log.append((key, value, decision.producer_id))
            self.machine.apply(record, decision.producer_id)
            yield f"writes {show_record(record)}"
        for change in decision.passing:
            self.machine.apply(change)
        yield from self._moves(before)
        for work in decision.work:
            yield f"work {work}"
        for timer in decision.timers:
            earlier = self.timers.pop(timer.key, None)
            if timer.at is not None:
                self.timers[timer.key] = timer.at
                yield f"timer {' '.join(timer.key)} in {timer.at - self.now}"
            elif earlier is not None:
                yield f"timer {' '.join(timer.key)} off"
        for token, response in decision.replies:
            yield f"{token} <- {show(response)}"

    def _moves(self, before: dict[str, str]) -> Iterator[str]:
        after = self._states(self.machine)
        for name in before | after:
            if before.get(name) != after.get(name):
                yield f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"

    def fire_next(self, until: int) -> list[str] | None:
        """The next timer that is due by then; None if there is none."""
        due = min(((at, key) for key, at in self.timers.items() if at <= until), default=None)
        if due is None:
            return None
        self.now, key = max(self.now, due[0]), due[1]
        del self.timers[key]
        decision = self.machine.decide(Fired(key), NOBODY, self._env(self.now))
        return [f"at {self.now} {' '.join(key)}", *self.carry_out(decision)]

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
        """`restart`: a new machine reads the log; whoever waited is forgotten."""
        self.machine = self._new_machine()
        self.timers.clear()
        for key, value, producer_id in self.log:
            self.machine.replay(key, value, producer_id)
        return list(self.carry_out(self.machine.loaded(self._env(self.now))))

    def _fail(self, command: Command) -> list[str]:
        """`fail`: the next append does."""
        self.append_fails = True
        return []


def show(message: Any) -> str:
    """A message in short: its name, and the fields that are not as they are by default."""
    return f"{type(message).__name__.removesuffix('Response')} {show_fields(message)}".rstrip()


def show_record(record: Record) -> str:
    if isinstance(record.key, bytes):
        return "bytes"  # whoever packed them has tests that look into them
    name = type(record.key).__name__.removesuffix("Key")
    return f"{name} {show_fields(record.key)}: {show_fields(record.value) if record.value else 'gone'}"


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
