"""A history sorted for the checker: which client sent what, where it was found, which transactions committed.

Pure. Detects no anomalies; see `checker`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

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
    Placed,
    Polled,
    Send,
    Settled,
    Stamped,
)

Key = tuple[str, str]  # place and value


@dataclass(slots=True)
class Fate:
    """One record: the outcome that its producer got, and the offsets at which readers found it."""

    send: Send
    acked: Acked | None = None
    failed: Failed | None = None
    found: set[int] = field(default_factory=set)  # offsets at which any reader got it
    visible: set[int] = field(default_factory=set)  # offsets at which a read_committed reader got it

    @property
    def offset(self) -> int | None:
        """Its offset if known: as acknowledged, else as first read."""
        if self.acked is not None and self.acked.offset >= 0:
            return self.acked.offset
        return min(self.found) if self.found else None


@dataclass(slots=True)
class Facts:
    fates: dict[Key, Fate] = field(default_factory=dict)
    strangers: list[tuple[str, int, str]] = field(default_factory=list)  # read, but never sent: place, offset, value
    at_offset: dict[str, dict[int, dict[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    visible: dict[str, list[int]] = field(default_factory=dict)  # place → sorted offsets that read_committed saw
    top: dict[str, int] = field(default_factory=dict)  # place → the highest offset that was read
    walks: dict[Key, list[Placed | Polled]] = field(default_factory=lambda: defaultdict(list))  # (reader, place) →
    sends: dict[Key, list[Fate]] = field(default_factory=lambda: defaultdict(list))  # (producer, place) → in order
    endings: dict[str, Ending] = field(default_factory=dict)  # transaction → what was requested
    outcomes: dict[str, bool] = field(default_factory=dict)  # transaction → committed, if known
    polls: list[Polled] = field(default_factory=list)
    acks: list[Acked] = field(default_factory=list)
    whole: list[Key] = field(default_factory=list)  # readers that read a whole partition: (reader, place)
    stamps: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # place, offset → producer, its epoch
    errors: list[Erred | Failed] = field(default_factory=list)
    copies: list[Copies] = field(default_factory=list)
    listings: list[Listed] = field(default_factory=list)
    disturbances: list[tuple[float, float]] = field(default_factory=list)  # from when to when
    commits: dict[Key, list[Committing | Committed | Fetched]] = field(default_factory=lambda: defaultdict(list))

    def horizon(self, asked: Fetched | Listed) -> float:
        """A response must include everything that was known before this time.

        A leader that was replaced and does not know it yet still answers; but it was up to date until the disturbance
        began.
        """
        begun = [begin for begin, end in self.disturbances if begin <= asked.at and asked.since <= end]
        return min([asked.since, *begun])

    def renumbered(self, fate: Fate) -> bool:
        """Whether its producer wrote it in several epochs, once in each: no broker can detect the duplicate."""
        stamps = [self.stamps.get((fate.send.place, offset)) for offset in fate.found]
        written = {each for each in stamps if each is not None}
        return len(written) == len(fate.found) > 1 and len({producer for producer, _ in written}) == 1

    def must_be_there(self, fate: Fate) -> bool:
        """Acknowledged, and if it was part of a transaction, committed."""
        transaction = fate.send.transaction
        return fate.acked is not None and (not transaction or self.outcomes.get(transaction, False))


def gather(history: Iterable[Event]) -> Facts:
    facts = Facts()
    for event in history:
        _note(facts, event)
    for poll in facts.polls:
        _note_reads(facts, poll)
    for fate in facts.fates.values():
        # A record that read_committed returns proves that its whole transaction is committed.
        if fate.visible and fate.send.transaction:
            facts.outcomes.setdefault(fate.send.transaction, True)
    visible: dict[str, set[int]] = defaultdict(set)
    for poll in facts.polls:
        if poll.isolated:
            visible[poll.place].update(offset for offset, _ in poll.reads)
    facts.visible = {place: sorted(offsets) for place, offsets in visible.items()}
    return facts


def _note(facts: Facts, event: Event) -> None:
    match event:
        case Send():
            fate = facts.fates[event.place, event.value] = Fate(event)
            facts.sends[event.client, event.place].append(fate)
        case Acked():
            facts.acks.append(event)
            facts.fates[event.place, event.value].acked = event
            if event.offset >= 0:
                _note_offset(facts, event.place, event.offset, event.value, f"acknowledged to {event.client}")
        case Failed():
            facts.errors.append(event)
            facts.fates[event.place, event.value].failed = event
        case Erred():
            facts.errors.append(event)
        case Exhausted():
            facts.whole.append((event.client, event.place))
        case Stamped():
            facts.stamps[event.place, event.offset] = event.producer_id, event.producer_epoch
        case Placed():
            facts.walks[event.client, event.place].append(event)
        case Polled():
            facts.polls.append(event)
            facts.walks[event.client, event.place].append(event)
        case Ending():
            facts.endings[event.transaction] = event
        case Ended():
            facts.outcomes[event.transaction] = event.commit
        case Disturbed():
            facts.disturbances.append((event.at, math.inf))
        case Settled():
            facts.disturbances[-1] = (facts.disturbances[-1][0], event.at)
        case Copies():
            facts.copies.append(event)
        case Listed():
            facts.listings.append(event)
        case Committing() | Committed() | Fetched():
            facts.commits[event.group, event.place].append(event)


def _note_offset(facts: Facts, place: str, offset: int, value: str, how: str) -> None:
    facts.at_offset[place].setdefault(offset, {}).setdefault(value, how)


def _note_reads(facts: Facts, poll: Polled) -> None:
    for offset, value in poll.reads:
        _note_offset(facts, poll.place, offset, value, f"read by {poll.client}")
        facts.top[poll.place] = max(facts.top.get(poll.place, -1), offset)
        fate = facts.fates.get((poll.place, value))
        if fate is None:
            facts.strangers.append((poll.place, offset, value))
            continue
        fate.found.add(offset)
        if poll.isolated:
            fate.visible.add(offset)
