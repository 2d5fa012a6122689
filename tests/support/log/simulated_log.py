"""A partition in memory with producers, transactions, readers and a group; right, or wrong once.

The dice decide who acts; every action records what real clients would. `FAULTS` names the ways to go wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from chaos.history import (
    Acked,
    Committed,
    Committing,
    Ended,
    Ending,
    Event,
    Exhausted,
    Failed,
    Fetched,
    Listed,
    Placed,
    Polled,
    Recorder,
    Send,
)

PLACE, GROUP = "topic/0", "group"
PRODUCERS = ("a", "b", "c")
READERS = ("one", "two")
LAST = "last"  # reads everything at the end


@dataclass(slots=True)
class Entry:
    value: str  # empty: a marker of a transaction, or what a fault left
    transaction: str = ""


class SimulatedLog:
    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._ticks = 0.0
        self._recorder = Recorder(clock=self._tick)
        self._entries: list[Entry] = []
        self._numbers = dict.fromkeys((*PRODUCERS, "victim", "thief"), 0)
        self._waiting: dict[str, list[str]] = {producer: [] for producer in PRODUCERS}
        self._open: dict[str, str] = {}  # producer → its transaction
        self._ended: dict[str, bool] = {}  # transaction → committed
        self._positions = dict.fromkeys(READERS, 0)
        self._committed = -1

    @property
    def history(self) -> list[Event]:
        return self._recorder.events

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._dice.choice(ACTIONS)(self)

    def finish(self) -> None:
        """All that is under way comes to an end, and a reader reads everything."""
        for producer in PRODUCERS:
            while self._waiting[producer]:
                self.deliver(producer)
            self.end(producer)
        for reader in READERS:
            self.poll(reader, len(self._entries))
        self._positions[LAST] = 0
        self._tell(Placed, LAST, PLACE, 0)
        self.poll(LAST, len(self._entries))
        self._tell(Exhausted, LAST, PLACE)

    # -- what may happen ----------------------------------------------------------------------------------------------

    def send(self, producer: str) -> str:
        value = f"{producer}.{self._numbers[producer]}"
        self._numbers[producer] += 1
        self._tell(Send, producer, PLACE, value, self._open.get(producer, ""))
        if producer in self._waiting:
            self._waiting[producer].append(value)
        return value

    def deliver(self, producer: str) -> None:
        """The oldest record that waits is written and acknowledged, or its fate is unknown, or it is refused."""
        if not self._waiting[producer]:
            return
        value = self._waiting[producer].pop(0)
        fate = self._dice.random()
        if fate < 0.8:
            self._ack(producer, value, self._append(value, self._open.get(producer, "")))
        else:
            if fate < 0.9:
                self._append(value, self._open.get(producer, ""))
            self._tell(Failed, producer, PLACE, value, "timed out" if fate < 0.95 else "refused", fate >= 0.95)

    def begin(self, producer: str) -> None:
        if producer not in self._open and not self._waiting[producer]:
            self._open[producer] = f"{producer}-{self._numbers[producer]}-{len(self._ended)}"

    def end(self, producer: str) -> None:
        if producer not in self._open or self._waiting[producer]:
            return
        transaction, commit = self._open.pop(producer), self._dice.random() < 0.7
        self._tell(Ending, producer, transaction, commit)
        self._ended[transaction] = commit
        self._entries.append(Entry(""))
        if self._dice.random() < 0.8:
            self._tell(Ended, producer, transaction, commit)

    def poll(self, reader: str, many: int) -> None:
        begin = self._positions[reader]
        end = min(begin + many, self._stable())
        found = [(at, self._entries[at].value) for at in range(begin, end) if self._shown(self._entries[at])]
        self._positions[reader] = max(begin, end)
        self._tell(Polled, reader, PLACE, tuple(found))

    def seek(self, reader: str) -> None:
        self._positions[reader] = self._dice.randint(0, len(self._entries))
        self._tell(Placed, reader, PLACE, self._positions[reader])

    def commit(self) -> None:
        offset = self._committed + self._dice.randint(1, 3)
        self._tell(Committing, "member", GROUP, PLACE, offset)
        if self._dice.random() < 0.8:
            self._committed = offset
            self._tell(Committed, "member", GROUP, PLACE, offset)

    def ask(self) -> None:
        self._tell(Fetched, "asker", GROUP, PLACE, self._committed, self._recorder.now())
        self._tell(Listed, "asker", PLACE, len(self._entries), self._recorder.now())

    # -- what must not ------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        self._ack("victim", self.send("victim"), self._append("", ""))

    def duplicate(self) -> None:
        value = self.send("victim")
        self._append(value, "")
        self._ack("victim", value, self._append(value, ""))

    def reorder(self) -> None:
        first, second = self.send("victim"), self.send("victim")
        self._ack("victim", second, self._append(second, ""))
        self._ack("victim", first, self._append(first, ""))

    def reuse(self) -> None:
        mine, other = self.send("victim"), self.send("thief")
        offset = self._append(mine, "")
        self._ack("victim", mine, offset)
        if self._dice.random() < 0.5:
            self.poll(self._dice.choice(READERS), len(self._entries))
        self._entries[offset] = Entry(other)
        self._ack("thief", other, offset)

    def skip(self) -> None:
        self._settle()
        self._append(self.send("victim"), "")
        left_out = self._append(self.send("victim"), "")
        self._append(self.send("victim"), "")
        self.poll("one", left_out - self._positions["one"])
        self._positions["one"] = left_out + 1
        self.poll("one", 1)

    def go_back(self) -> None:
        self._settle()
        again = self._append(self.send("victim"), "")
        self.poll("one", len(self._entries))
        self._positions["one"] = again
        self.poll("one", 1)

    def forget_commit(self) -> None:
        for _ in range(2):
            self.commit_for_sure(10)  # farther than anybody tried before
        self._committed -= 10
        self.ask()

    def shrink(self) -> None:
        value = self.send("victim")
        self._ack("victim", value, self._append(value, ""))
        self._tell(Listed, "asker", PLACE, len(self._entries) - 1, self._recorder.now())

    def show_aborted(self) -> None:
        self._settle()
        value = f"victim.{self._numbers['victim']}"
        self._numbers["victim"] += 1
        self._tell(Send, "victim", PLACE, value, "doomed")
        self._ack("victim", value, self._append(value, ""))  # without its transaction: everybody sees it
        self._tell(Ending, "victim", "doomed", False)
        self._tell(Ended, "victim", "doomed", False)

    def truncate(self) -> None:
        """Written, read, and cut off again, as an unclean election does."""
        self._settle()
        self._positions["one"] = len(self._entries)
        self._tell(Placed, "one", PLACE, len(self._entries))
        self._append(self.send("victim"), "")
        self.poll("one", 1)
        self._entries.pop()

    def show_too_early(self) -> None:
        self._settle()
        value = f"victim.{self._numbers['victim']}"
        self._numbers["victim"] += 1
        self._tell(Send, "victim", PLACE, value, "open")
        self._tell(Placed, "one", PLACE, len(self._entries))
        self._positions["one"] = self._append(value, "")
        self.poll("one", 1)
        self._tell(Ending, "victim", "open", True)

    def write_what_is_refused(self) -> None:
        value = self.send("victim")
        self._append(value, "")
        self._tell(Failed, "victim", PLACE, value, "refused", True)

    def invent(self) -> None:
        self._append("nobody.0", "")

    def invent_commit(self) -> None:
        self._tell(Fetched, "asker", GROUP, PLACE, self._committed + 1_000, self._recorder.now())

    # -- how ----------------------------------------------------------------------------------------------------------

    def commit_for_sure(self, more: int) -> None:
        self._committed += more
        self._tell(Committing, "member", GROUP, PLACE, self._committed)
        self._tell(Committed, "member", GROUP, PLACE, self._committed)

    def _settle(self) -> None:
        """No transaction is open: readers come to the end."""
        for producer in PRODUCERS:
            while self._waiting[producer]:
                self.deliver(producer)
            self.end(producer)

    def _append(self, value: str, transaction: str) -> int:
        self._entries.append(Entry(value, transaction))
        return len(self._entries) - 1

    def _ack(self, producer: str, value: str, offset: int) -> None:
        self._tell(Acked, producer, PLACE, value, offset)

    def _stable(self) -> int:
        """Where the first open transaction begins."""
        is_open = set(self._open.values())
        return next((at for at, entry in enumerate(self._entries) if entry.transaction in is_open), len(self._entries))

    def _shown(self, entry: Entry) -> bool:
        return bool(entry.value) and (not entry.transaction or self._ended.get(entry.transaction, False))

    def _tick(self) -> float:
        self._ticks += 1
        return self._ticks

    def _tell(self, kind: type[Event], who: str, *fields: object) -> None:
        self._recorder.tell(kind, who, *fields)


def _by(method: Callable[[SimulatedLog, str], object], names: tuple[str, ...]) -> Callable[[SimulatedLog], object]:
    return lambda log: method(log, log._dice.choice(names))


ACTIONS: tuple[Callable[[SimulatedLog], object], ...] = (
    _by(SimulatedLog.send, PRODUCERS),
    _by(SimulatedLog.send, PRODUCERS),
    _by(SimulatedLog.deliver, PRODUCERS),
    _by(SimulatedLog.deliver, PRODUCERS),
    _by(SimulatedLog.begin, PRODUCERS),
    _by(SimulatedLog.end, PRODUCERS),
    _by(lambda log, reader: log.poll(reader, log._dice.randint(1, 6)), READERS),
    _by(SimulatedLog.seek, READERS),
    SimulatedLog.commit,
    SimulatedLog.ask,
)

FAULTS: dict[str, tuple[Callable[[SimulatedLog], None], set[str]]] = {  # what goes wrong → what is found, one at least
    "drop": (SimulatedLog.drop, {"lost write", "unseen"}),
    "duplicate": (SimulatedLog.duplicate, {"duplicate"}),
    "reorder": (SimulatedLog.reorder, {"non-monotonic send"}),
    "offset reuse": (SimulatedLog.reuse, {"inconsistent offsets"}),
    "skipped read": (SimulatedLog.skip, {"skipped poll"}),
    "read again": (SimulatedLog.go_back, {"non-monotonic poll"}),
    "forgotten commit": (SimulatedLog.forget_commit, {"lost commit"}),
    "shrunk end": (SimulatedLog.shrink, {"stale end"}),
    "aborted but shown": (SimulatedLog.show_aborted, {"aborted read"}),
    "refused but written": (SimulatedLog.write_what_is_refused, {"aborted read"}),
    "truncation": (SimulatedLog.truncate, {"lost write", "inconsistent offsets"}),
    "shown too early": (SimulatedLog.show_too_early, {"precommitted read"}),
    "an invented record": (SimulatedLog.invent, {"phantom"}),
    "an invented commit": (SimulatedLog.invent_commit, {"strange commit"}),
}
