"""Progress in a partition against a model that remembers everything."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from moldau.client.consumer.progress import Progress


@dataclass(eq=False)
class Handed:
    offset: int
    is_done: bool = False


class ProgressMachine(RuleBasedStateMachine):
    """Hand out with gaps, do in any order, rewind and seek; the model keeps one list of what counts."""

    handed = Bundle("handed")

    def __init__(self) -> None:
        super().__init__()
        self.progress: Progress[Handed] = Progress()
        self.model: list[Handed] = []  # handed out in this order and not rewound
        self.next = 0
        self.position: int | None = None

    @rule(target=handed, gaps=st.lists(st.integers(0, 3), min_size=1, max_size=5))
    def hand_out(self, gaps: list[int]) -> list[Handed]:
        messages = []
        self.model = [each for each in self.model if each.offset < self.next + gaps[0]]
        for gap in gaps:
            messages.append(Handed(self.next + gap))
            self.next += gap + 1
        self.progress.hand_out(messages)
        self.model += messages
        self.position = self.next
        return messages

    @rule(messages=consumes(handed), data=st.data())
    def do(self, messages: list[Handed], data: st.DataObject) -> None:
        for message in data.draw(st.permutations(messages)):
            message.is_done = True

    @rule(messages=handed, which=st.integers(0, 4))
    def do_one(self, messages: list[Handed], which: int) -> None:
        messages[which % len(messages)].is_done = True

    @rule(messages=handed, which=st.integers(0, 4))
    def rewind(self, messages: list[Handed], which: int) -> None:
        message = messages[which % len(messages)]
        covered = self.position is not None and message.offset < self.position
        assert self.progress.covers(message.offset) or not covered
        self.progress.rewind(message.offset)
        self.model = [each for each in self.model if each.offset < message.offset]
        self.next = min(self.next, message.offset)
        self.position = None if self.position is None else min(self.position, message.offset)

    @rule(ahead=st.integers(0, 10))
    def seek_ahead(self, ahead: int) -> None:
        self.next += ahead
        self.progress.seek(self.next)
        self.model = [each for each in self.model if each.offset < self.next]
        self.position = self.next

    @rule(found=st.integers(0, 40))
    def seek_to_an_unknown_offset(self, found: int) -> None:
        self.progress.seek(None)
        self.position = None
        self.next = found

    @invariant()
    def the_first_offset_that_is_not_done_is_committable(self) -> None:
        left = [each for each in self.model if not each.is_done]
        assert self.progress.committable == (left[0].offset if left else self.position)

    @invariant()
    def messages_in_hand_are_those_that_are_not_done(self) -> None:
        assert self.progress.in_hand() == [each for each in self.model if not each.is_done]


TestProgress = ProgressMachine.TestCase


def test_messages_that_are_given_back_hold_the_commit_and_are_not_in_hand() -> None:
    progress: Progress[Handed] = Progress()
    messages = [Handed(offset) for offset in range(5)]
    progress.hand_out(messages)
    progress.give_back(1)
    for message in (messages[0], messages[3], messages[4]):
        message.is_done = True
    assert progress.committable == 1
    assert progress.in_hand() == [messages[2]]
    messages[1].is_done = True
    assert progress.committable == 2


def test_offsets_of_another_assignment_are_not_covered() -> None:
    progress: Progress[Handed] = Progress()
    assert not progress.covers(5)
    progress.hand_out([Handed(10), Handed(12)])
    assert not progress.covers(9)
    assert progress.covers(11)
    assert not progress.covers(13)


def test_done_messages_are_not_kept() -> None:
    """A loop that does each message before the next one holds one message, however long it runs."""
    progress: Progress[Handed] = Progress()
    for offset in range(10_000):
        message = Handed(offset)
        progress.hand_out([message])
        message.is_done = True
    assert len(progress._handed) == 1
