"""Anomalies in a history that a log must never show. Pure: events in, anomalies out; no clients, no brokers.

After the Kafka workload of Jepsen: every record is unique, so each acknowledgement and each read gives the position of
one record. Offsets need not be contiguous (transaction markers take some). All readers must find the same records at
the same offsets, in order. One row of FINDERS is one anomaly.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from chaos.facts import Facts, Fate, gather
from chaos.history import ATTEMPT, Committed, Committing, Copies, Event, Fetched, Placed, Polled


class Anomaly(NamedTuple):
    kind: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.place}: {self.text}"


Found = Iterator[tuple[str, str]]  # a place, and the anomaly there


def check(history: Iterable[Event], *, ended: bool = True) -> list[Anomaly]:
    """All anomalies of a history that ends with a full read of every partition.

    Without that read (`ended` is false, the run did not finish) a missing record proves nothing.
    """
    facts = gather(history)
    finders = {kind: find for kind, find in FINDERS.items() if ended or kind not in ENDED_ONLY}
    return [Anomaly(kind, place, text) for kind, find in finders.items() for place, text in find(facts)]


def counts(anomalies: Sequence[Anomaly]) -> dict[str, int]:
    """Number of anomalies of every kind, including those with none."""
    found = Counter(each.kind for each in anomalies)
    return {kind: found[kind] for kind in FINDERS}


def _lost_writes(facts: Facts) -> Found:
    """Acknowledged, but skipped by all readers that read beyond it; or read once, and missing at the end."""
    for fate in _missing(facts):
        if fate.offset is not None and fate.offset < facts.top.get(fate.send.place, -1):
            top = facts.top[fate.send.place]
            yield fate.send.place, f"{fate.send.value} at {fate.offset} was never read, but {top} was"
    for reader, place in facts.whole:
        found = {value for walk in facts.walks[reader, place] if isinstance(walk, Polled) for _, value in walk.reads}
        for (where, value), fate in facts.fates.items():
            if where == place and fate.visible and value not in found:
                yield (
                    place,
                    f"{value} was read at {sorted(fate.visible)}, but not by {reader}, which read all",
                )


def _unseen(facts: Facts) -> Found:
    """Acknowledged, but never read, and no reader got that far."""
    for fate in _missing(facts):
        if fate.offset is None or fate.offset >= facts.top.get(fate.send.place, -1):
            yield fate.send.place, f"{fate.send.value}, acknowledged at {fate.offset}, was never read"


def _missing(facts: Facts) -> Iterator[Fate]:
    return (fate for fate in facts.fates.values() if not fate.found and facts.must_be_there(fate))


def _aborted_reads(facts: Facts) -> Found:
    """Read, although the write definitely failed or its transaction was aborted."""
    for fate in facts.fates.values():
        transaction = fate.send.transaction
        if fate.found and fate.failed is not None and fate.failed.surely:
            yield fate.send.place, f"{fate.send.value} was read, but had failed: {fate.failed.error}"
        elif fate.visible and transaction and not facts.outcomes.get(transaction, True):
            yield fate.send.place, f"{fate.send.value} was read, but {transaction} was aborted"


def _precommitted_reads(facts: Facts) -> Found:
    """Read with read_committed before the commit of its transaction was requested."""
    for poll in facts.polls:
        for offset, value in poll.reads if poll.isolated else ():
            fate = facts.fates.get((poll.place, value))
            if fate is None or not fate.send.transaction:
                continue
            ending = facts.endings.get(fate.send.transaction)
            if ending is None or ending.at > poll.at:
                yield (
                    poll.place,
                    f"{value} at {offset} was read by {poll.client} while {fate.send.transaction} was open",
                )


def _phantoms(facts: Facts) -> Found:
    """Read, but never sent to that partition."""
    for place, offset, value in facts.strangers:
        yield place, f"{value!r} at {offset} was never sent there"


def _inconsistent_offsets(facts: Facts) -> Found:
    """Two records at one offset."""
    for place, offsets in facts.at_offset.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield place, f"{offset}: " + ", ".join(f"{value} {how}" for value, how in values.items())


def _duplicates(facts: Facts) -> Found:
    """One record at two offsets."""
    for fate in facts.fates.values():
        offsets = set(fate.found)
        if fate.acked is not None and fate.acked.offset >= 0:
            offsets.add(fate.acked.offset)
        if len(offsets) > 1 and fate.send.once and not facts.renumbered(fate):
            yield fate.send.place, f"{fate.send.value} is at {sorted(offsets)}"


def _nonmonotonic_sends(facts: Facts) -> Found:
    """A producer's later record is before an earlier one.

    A record that the producer gave up may be appended late: it was still in a connection.
    """
    for (_, place), fates in facts.sends.items():
        last: Fate | None = None
        for fate in fates:
            if fate.offset is None or fate.failed is not None or not fate.send.once:
                continue
            if last is not None and last.offset is not None and fate.offset < last.offset:
                yield place, f"{fate.send.value} is at {fate.offset}, after {last.send.value} at {last.offset}"
            last = fate


def _nonmonotonic_polls(facts: Facts) -> Found:
    """A reader goes back or stays without a seek."""
    for reader, place, expected, offset in _steps(facts):
        if offset < expected:
            yield place, f"{reader} should have read {expected} next, but read {offset}"


def _skipped_polls(facts: Facts) -> Found:
    """A reader skips a record that another one read."""
    for reader, place, expected, offset in _steps(facts):
        known = facts.visible.get(place, [])
        first = bisect_left(known, expected)
        if first < len(known) and known[first] < offset:
            yield place, f"{reader} should have read {expected} next, but read {offset}; {known[first]} is between them"


def _steps(facts: Facts) -> Iterator[tuple[str, str, int, int]]:
    """Each read with a known position of the reader: reader, place, position, offset that it read."""
    for (reader, place), walk in facts.walks.items():
        expected = -1
        for event in walk:
            match event:
                case Placed():
                    expected = event.offset
                case Polled():
                    for offset, _ in event.reads:
                        if expected >= 0:
                            yield reader, place, expected, offset
                        expected = offset + 1


def _lost_copies(facts: Facts) -> Found:
    """Definitely written, but its copy was never read."""
    for copies in facts.copies:
        made = _copies_made(facts, copies)
        for fate in _of_topic(facts, copies.source):
            if (fate.visible or facts.must_be_there(fate)) and not made[fate.send.value]:
                yield fate.send.place, f"{fate.send.value} was not copied to {copies.target}"


def _repeated_copies(facts: Facts) -> Found:
    """Two committed copies of one record."""
    for copies in facts.copies:
        twice = {fate.send.value: len(fate.found) for fate in _of_topic(facts, copies.source) if facts.renumbered(fate)}
        for value, number in _copies_made(facts, copies).items():
            if number > twice.get(value, 1):
                yield copies.target, f"{value} was copied {number} times"


def _copies_made(facts: Facts, copies: Copies) -> Counter[str]:
    targets = _of_topic(facts, copies.target)
    return Counter(fate.send.value.partition(ATTEMPT)[0] for fate in targets if fate.visible)


def _of_topic(facts: Facts, topic: str) -> Iterator[Fate]:
    return (fate for (place, _), fate in facts.fates.items() if place.rpartition("/")[0] == topic)


def _lost_commits(facts: Facts) -> Found:
    """A group's committed offset is lower than one that was acknowledged before the request.

    Members of a group commit increasing offsets: a member that takes over starts at the committed one. But a commit
    that was not acknowledged may wait in a paused broker's socket and be applied after its successor.
    """
    for (group, place), events in facts.commits.items():
        acknowledged = [each for each in events if isinstance(each, Committed)]
        begun = Counter(each.offset for each in events if isinstance(each, Committing))
        late = begun - Counter(each.offset for each in acknowledged)
        highest = _running_maximum(sorted((each.at, each.offset) for each in acknowledged))
        for each in events:
            if isinstance(each, Fetched):
                least = _before(highest, facts.horizon(each))
                if each.offset < least and not late[each.offset]:
                    yield place, f"{group} had committed {least}, but {each.offset} was there at {each.at}"


def _strange_commits(facts: Facts) -> Found:
    """A group's committed offset that no member had started to commit."""
    for (group, place), events in facts.commits.items():
        begun = {each.offset: each.at for each in reversed(events) if isinstance(each, Committing)}
        for each in events:
            if isinstance(each, Fetched) and each.offset >= 0 and begun.get(each.offset, each.at) >= each.at:
                yield place, f"{group} has {each.offset}, which no member committed before {each.at}"


def _stale_ends(facts: Facts) -> Found:
    """The end offset is lower than one that was acknowledged, read or listed before the request."""
    known: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for ack in facts.acks:
        if ack.offset >= 0 and facts.must_be_there(facts.fates[ack.place, ack.value]):
            known[ack.place].append((ack.at, ack.offset + 1))
    for poll in facts.polls:
        if poll.reads:
            known[poll.place].append((poll.at, poll.reads[-1][0] + 1))
    for listed in facts.listings:
        known[listed.place].append((listed.at, listed.offset))
    highest = {place: _running_maximum(sorted(ends)) for place, ends in known.items()}
    for listed in facts.listings:
        least = _before(highest[listed.place], facts.horizon(listed))
        if listed.offset < least:
            yield listed.place, f"the end was {listed.offset} at {listed.at}, after it had been {least}"


def _hard_errors(facts: Facts) -> Found:
    """A client got an error that a retry does not solve."""
    for each in facts.errors:
        if each.hard:
            yield each.client, each.error


def _running_maximum(times: list[tuple[float, int]]) -> list[tuple[float, int]]:
    most = -1
    return [(at, most := max(most, offset)) for at, offset in times]


def _before(highest: list[tuple[float, int]], at: float) -> int:
    """The highest offset known before a time."""
    index = bisect_left(highest, (at, -1))
    return highest[index - 1][1] if index else -1


FINDERS: dict[str, Callable[[Facts], Found]] = {
    "lost write": _lost_writes,
    "unseen": _unseen,
    "aborted read": _aborted_reads,
    "precommitted read": _precommitted_reads,
    "phantom": _phantoms,
    "inconsistent offsets": _inconsistent_offsets,
    "duplicate": _duplicates,
    "non-monotonic send": _nonmonotonic_sends,
    "non-monotonic poll": _nonmonotonic_polls,
    "skipped poll": _skipped_polls,
    "lost copy": _lost_copies,
    "repeated copy": _repeated_copies,
    "lost commit": _lost_commits,
    "strange commit": _strange_commits,
    "stale end": _stale_ends,
    "hard error": _hard_errors,
}
ENDED_ONLY = {"lost write", "unseen", "lost copy", "phantom"}  # programs report a record once its outcome is known
