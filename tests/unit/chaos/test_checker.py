"""Every anomaly in a history made by hand in which it, and nothing else, is found; and histories without any."""

from pathlib import Path

import pytest

from chaos.checker import FINDERS, check, counts
from chaos.history import (
    Acked,
    Committed,
    Committing,
    Copies,
    Disturbed,
    Ended,
    Ending,
    Erred,
    Event,
    Exhausted,
    Failed,
    Fetched,
    Listed,
    Noted,
    Placed,
    Polled,
    Recorder,
    Send,
    Settled,
    Stamped,
    load,
    save,
)

PLACE = "topic/0"


class Story:
    """A history written down line by line; the clock goes on by one second with each."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def now(self) -> float:
        return float(len(self.events))

    def send(self, value: str, offset: int | None = None, *, transaction: str = "", place: str = PLACE) -> "Story":
        """By the producer that is named before the dot; acknowledged if an offset is given."""
        who = value.partition(".")[0]
        self.events.append(Send(self.now, who, place, value, transaction))
        if offset is not None:
            self.events.append(Acked(self.now, who, place, value, offset))
        return self

    def read(self, *reads: tuple[int, str], by: str = "reader", isolated: bool = True, place: str = PLACE) -> "Story":
        self.events.append(Polled(self.now, by, place, reads, isolated))
        return self

    def end(self, transaction: str, *, commit: bool, known: bool = True) -> "Story":
        self.events.append(Ending(self.now, "producer", transaction, commit))
        if known:
            self.events.append(Ended(self.now, "producer", transaction, commit))
        return self

    def then(self, kind: type[Event], who: str, *fields: object) -> "Story":
        self.events.append(kind(self.now, who, *fields))
        return self


def story() -> Story:
    return Story()


def twice() -> Story:
    return story().send("a.0", 1).read((0, "a.0"), (1, "a.0"))


def copied(begun: Story, times: int) -> Story:
    begun.then(Copies, "copier", "topic", "target")
    for number in range(times):
        begun.send(f"a.0~{number}", number, place="target/0")
    return begun.read(*((number, f"a.0~{number}") for number in range(times)), place="target/0")


def committed(offset: int) -> Story:
    """A group has committed this offset, and that was acknowledged."""
    return story().then(Committing, "member", "group", PLACE, offset).then(Committed, "member", "group", PLACE, offset)


ANOMALIES = {
    "lost write": story().send("a.0", 0).send("a.1", 1).read((1, "a.1")),
    "unseen": story().send("a.0", 0).send("a.1", 1).read((0, "a.0")),
    "aborted read": story().send("a.0", 0, transaction="t").end("t", commit=False).read((0, "a.0")),
    "precommitted read": story().send("a.0", 0, transaction="t").read((0, "a.0")).end("t", commit=True),
    "phantom": story().send("a.0", 0).read((0, "a.0"), (1, "b.9")),
    "inconsistent offsets": story().send("a.0", 5).send("b.0").read((5, "a.0")).read((5, "b.0"), by="other"),
    "duplicate": story().send("a.0", 0).read((0, "a.0"), (1, "a.0")),
    "non-monotonic send": story().send("a.0", 1).send("a.1", 0).read((0, "a.1"), (1, "a.0")),
    "non-monotonic poll": story().send("a.0", 0).send("a.1", 1).read((0, "a.0"), (1, "a.1")).read((0, "a.0")),
    "skipped poll": (
        story().send("a.0", 0).send("a.1", 1).send("a.2", 2)
        .read((0, "a.0"), (1, "a.1"), (2, "a.2")).read((0, "a.0"), by="other").read((2, "a.2"), by="other")
    ),
    "lost copy": (
        story().then(Copies, "copier", "topic", "target").send("a.0", 0).send("a.1", 1).read((0, "a.0"), (1, "a.1"))
        .send("a.0~1", 0, transaction="t", place="target/0").end("t", commit=True)
        .read((0, "a.0~1"), place="target/0")
    ),
    "repeated copy": (
        story().then(Copies, "copier", "topic", "target").send("a.0", 0).read((0, "a.0"))
        .send("a.0~1", 0, place="target/0").send("a.0~2", 1, place="target/0")
        .read((0, "a.0~1"), (1, "a.0~2"), place="target/0")
    ),
    "lost commit": committed(3).then(Committing, "m", "group", PLACE, 7).then(Committed, "m", "group", PLACE, 7).then(
        Fetched, "asker", "group", PLACE, 3, 3.5
    ),
    "strange commit": committed(7).then(Fetched, "asker", "group", PLACE, 8, 1.5),
    "stale end": story().send("a.0", 4).read((4, "a.0")).then(Listed, "asker", PLACE, 4, 2.5),
    "hard error": story().then(Erred, "reader", "INCONSISTENT_VOTER_SET", True),
}  # fmt: skip


def test_every_anomaly_has_a_history() -> None:
    assert ANOMALIES.keys() == FINDERS.keys()


@pytest.mark.parametrize("kind", ANOMALIES)
def test_exactly_it_is_found(kind: str) -> None:
    found = check(ANOMALIES[kind].events)
    assert counts(found) == dict.fromkeys(FINDERS, 0) | {kind: 1}, found


VARIANTS = {
    "a transaction of which one record was read has committed, whatever its producer knows": (
        "lost write",
        story().send("a.0", 0, transaction="t").send("a.1", 1, transaction="t").end("t", commit=True, known=False)
        .read((1, "a.1")),
    ),
    "what failed for certain is never read": (
        "aborted read",
        story().send("a.0").then(Failed, "a", PLACE, "a.0", "too large", True).read((0, "a.0")),
    ),
    "a transaction that nobody ended shows nothing": (
        "precommitted read",
        story().send("a.0", 0, transaction="t").read((0, "a.0")),
    ),
    "a reader that begins too late": (
        "skipped poll",
        story().send("a.0", 0).send("a.1", 1).read((0, "a.0"), (1, "a.1"))
        .then(Placed, "other", PLACE, 0).read((1, "a.1"), by="other"),
    ),
    "a reader that begins too early": (
        "non-monotonic poll",
        story().send("a.0", 0).then(Placed, "reader", PLACE, 1).read((0, "a.0")),
    ),
    "a record that moved": ("duplicate", story().send("a.0", 0).read((1, "a.0"))),
    "a record twice in one epoch of its producer": (
        "duplicate",
        twice().then(Stamped, "last", PLACE, 0, 7, 3).then(Stamped, "last", PLACE, 1, 7, 3),
    ),
    "a record of two producers": (
        "duplicate",
        twice().then(Stamped, "last", PLACE, 0, 7, 3).then(Stamped, "last", PLACE, 1, 8, 4),
    ),
    "a record that is copied more often than it is there": (
        "repeated copy",
        copied(twice(), 3).then(Stamped, "last", PLACE, 0, 7, 3).then(Stamped, "last", PLACE, 1, 7, 4),
    ),
    "a record in another place": (
        "phantom",
        story().send("a.0", 0).read((0, "a.0")).read((0, "a.0"), place="topic/1"),
    ),
    "an end that goes back": (
        "stale end",
        story().then(Listed, "asker", PLACE, 9, 0.0).then(Listed, "asker", PLACE, 8, 0.5),
    ),
    "an end that a fault does not excuse": (
        "stale end",
        story().send("a.0", 4).read((4, "a.0")).then(Disturbed, "faults").then(Listed, "asker", PLACE, 4, 4.5),
    ),
    "a broker that was replaced and never learns of it": (
        "stale end",
        story().then(Disturbed, "faults").send("a.0", 4).read((4, "a.0")).then(Settled, "faults")
        .then(Listed, "asker", PLACE, 4, 5.5),
    ),
    "a record that was read, and is gone in the end": (
        "lost write",
        story().send("a.0", 0).send("a.1", 1).read((0, "a.0"), (1, "a.1"))
        .read((0, "a.0"), by="last").then(Exhausted, "last", PLACE),
    ),
    "one that failed, was read all the same, and is gone in the end": (
        "lost write",
        story().send("a.0").then(Failed, "a", PLACE, "a.0", "timed out").read((0, "a.0"))
        .then(Exhausted, "last", PLACE),
    ),
    "an end before what was read": (
        "stale end",
        story().send("a.0").read((4, "a.0")).then(Listed, "asker", PLACE, 4, 2.5),
    ),
    "a record that was refused for good": (
        "hard error",
        story().send("a.0").then(Failed, "a", PLACE, "a.0", "OUT_OF_ORDER_SEQUENCE_NUMBER", False, True),
    ),
    "a group's offset is gone": ("lost commit", committed(7).then(Fetched, "asker", "group", PLACE, -1, 1.5)),
}  # fmt: skip


@pytest.mark.parametrize("what", VARIANTS)
def test_other_ways_to_the_same_anomaly(what: str) -> None:
    kind, told = VARIANTS[what]
    assert {each.kind for each in check(told.events)} == {kind}


CLEAN = {
    "nothing": story(),
    "written and read": story().send("a.0", 0).send("b.0", 1).send("a.1", 2).read((0, "a.0"), (1, "b.0"), (2, "a.1")),
    "markers take offsets": (
        story().send("a.0", 0, transaction="t").end("t", commit=True).send("a.1", 2).read((0, "a.0"), (2, "a.1"))
    ),
    "a failure that may be there, and is": (
        story().send("a.0").then(Failed, "a", PLACE, "a.0", "timed out").send("a.1", 1).read((0, "a.0"), (1, "a.1"))
    ),
    "a failure that may be there, and is not": (
        story().send("a.0").then(Failed, "a", PLACE, "a.0", "timed out").send("a.1", 0).read((0, "a.1"))
    ),
    "a failure that comes late": (
        story().send("a.0").then(Failed, "a", PLACE, "a.0", "timed out").send("a.1", 0).read((0, "a.1"), (1, "a.0"))
    ),
    "an aborted transaction": story().send("a.0", 0, transaction="t").end("t", commit=False),
    "read_uncommitted sees it": (
        story().send("a.0", 0, transaction="t").read((0, "a.0"), isolated=False).end("t", commit=False)
    ),
    "a transaction whose end is not known, unread": (
        story().send("a.0", 0, transaction="t").end("t", commit=True, known=False)
    ),
    "errors that pass": (
        story().send("a.0").then(Failed, "a", PLACE, "a.0", "timed out").then(Erred, "reader", "timed out", False)
    ),
    "a record that its producer wrote again in another epoch": (
        copied(twice(), 2).then(Stamped, "last", PLACE, 0, 7, 3).then(Stamped, "last", PLACE, 1, 7, 4)
    ),
    "a reader that read all": story().send("a.0", 0).read((0, "a.0"), by="last").then(Exhausted, "last", PLACE),
    "a reader that seeks": (
        story().send("a.0", 0).read((0, "a.0")).then(Placed, "reader", PLACE, 0).read((0, "a.0"))
    ),
    "a reader that came where nobody knows": (
        story().send("a.0", 0).send("a.1", 1).read((0, "a.0"), (1, "a.1"))
        .then(Placed, "other", PLACE, -1).read((1, "a.1"), by="other")
    ),
    "a producer that may repeat": Story(),
    "acknowledged at an offset that the client does not know": (
        story().send("a.0").then(Acked, "a", PLACE, "a.0", -1).read((0, "a.0"))
    ),
    "an attempt to copy was aborted": (
        story().then(Copies, "copier", "topic", "target").send("a.0", 0).read((0, "a.0"))
        .send("a.0~1", 0, transaction="t1", place="target/0").end("t1", commit=False)
        .send("a.0~2", 2, transaction="t2", place="target/0").end("t2", commit=True)
        .read((2, "a.0~2"), place="target/0")
    ),
    "commits": committed(7).then(Fetched, "asker", "group", PLACE, 7, 1.5),
    "a commit that was under way while the question was": (
        story().then(Committing, "m", "group", PLACE, 7).then(Fetched, "asker", "group", PLACE, -1, 0.5)
        .then(Committed, "m", "group", PLACE, 7)
    ),
    "a commit that was not acknowledged comes late": (
        story().then(Committing, "m", "group", PLACE, 3).then(Committing, "m", "group", PLACE, 7)
        .then(Committed, "m", "group", PLACE, 7).then(Fetched, "asker", "group", PLACE, 3, 2.5)
    ),
    "ends": story().send("a.0", 4).read((4, "a.0")).then(Listed, "asker", PLACE, 5, 2.5),
    "an end that was asked for before": story().send("a.0", 4).read((4, "a.0")).then(Listed, "asker", PLACE, 4, 0.5),
    "a broker that was replaced tells what was true before": (
        story().send("a.0", 4).then(Disturbed, "faults").send("a.1", 5).then(Listed, "asker", PLACE, 5, 5.5)
        .then(Settled, "faults").read((4, "a.0"), (5, "a.1")).then(Listed, "asker", PLACE, 6, 8.5)
    ),
    "faults": story().then(Noted, "faults", "killed broker 1"),
}  # fmt: skip
CLEAN["a producer that may repeat"].events = [
    Send(0, "a", PLACE, "a.0", "", False),
    Acked(1, "a", PLACE, "a.0", 1),
    Polled(2, "reader", PLACE, ((0, "a.0"), (1, "a.0"))),
]


@pytest.mark.parametrize("what", CLEAN)
def test_nothing_is_found_where_nothing_is_wrong(what: str) -> None:
    assert check(CLEAN[what].events) == []


@pytest.mark.parametrize("kind", ANOMALIES)
def test_a_run_that_was_broken_off_is_checked_for_all_that_was_read(kind: str) -> None:
    left_open = {"lost write", "unseen", "lost copy", "phantom"}  # the event that is missing might have come
    assert [each.kind for each in check(ANOMALIES[kind].events, ended=False)] == [kind] * (kind not in left_open)


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    every = [event for told in (*ANOMALIES.values(), *CLEAN.values()) for event in told.events]
    save(every, tmp_path / "history.jsonl")
    assert list(load(tmp_path / "history.jsonl")) == every


def test_the_recorder_writes_at_once_and_in_order(tmp_path: Path) -> None:
    clock = iter((10.0, 11.0, 12.5))
    recorder = Recorder(tmp_path / "history.jsonl", lambda: next(clock))
    recorder.tell(Send, "a", PLACE, "a.0")
    recorder.tell(Polled, "reader", PLACE, ((0, "a.0"),), isolated=False)
    recorder.close()
    assert list(load(tmp_path / "history.jsonl")) == recorder.events
    assert [event.at for event in recorder.events] == [1.0, 2.5]
