"""Progress in one partition: which messages are handed out and not done yet. Pure: knows neither commits nor threads.

Messages are handed out in the order of their offsets and may be done in any order. Offsets have gaps: compaction and
transaction markers leave them.
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from moldau.base.ids import Offset, TopicPartition


class Handed(Protocol):
    """A message that was handed out. `is_done` may be set by any thread, once and for all."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def offset(self) -> Offset: ...

    is_done: bool


class OffsetRange:
    """Messages of a partition that were handed out, and are done, as one: from `offset` to before `end`."""

    __slots__ = ("end", "is_done", "offset", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, offset: Offset, end: Offset) -> None:
        self.topic_partition = topic_partition
        self.offset = offset
        self.end = end
        self.is_done = False


H = TypeVar("H", bound=Handed)


class Progress(Generic[H]):
    """Messages of a partition from the first that is not done to the last that was handed out."""

    __slots__ = ("_first", "_handed", "_returned", "position")

    def __init__(self) -> None:
        self._handed: deque[H] = deque()
        self._returned: set[Offset] = set()
        self._first: Offset | None = None  # that was ever handed out here
        self.position: Offset | None = None  # after the last message that was handed out; None: none was

    def hand_out(self, messages: Sequence[H]) -> None:
        """Messages that follow, or messages again: what was handed out from their offset on is forgotten."""
        if not messages:
            return
        first = messages[0].offset
        self.rewind(first)
        self._pop_done()
        self._first = first if self._first is None else min(first, self._first)
        self._handed.extend(messages)
        self.position = messages[-1].offset + 1

    def hand_out_range(self, handed: H, end: Offset) -> None:
        """What counts as one message, up to before `end`."""
        self.hand_out([handed])
        self.position = end

    def rewind(self, offset: Offset) -> None:
        """Forget what was handed out from this offset on; it will be handed out again."""
        while self._handed and (last := self._handed[-1].offset) >= offset:
            self._handed.pop()
            self._returned.discard(last)
        if self.position is not None:
            self.position = min(self.position, offset)

    def seek(self, offset: Offset | None) -> None:
        """Go on at this offset, or at one that is not known yet (None). Messages before it that are in hand stay so."""
        if offset is not None:
            self.rewind(offset)
        self.position = offset

    @property
    def committable(self) -> Offset | None:
        """The first offset that is not done; None if nothing was handed out."""
        self._pop_done()
        return self._handed[0].offset if self._handed else self.position

    def covers(self, offset: Offset) -> bool:
        """Whether a message with this offset can have been handed out here."""
        return self._first is not None and self.position is not None and self._first <= offset < self.position

    def give_back(self, offset: Offset) -> None:
        """This message will not be done, and is not in hand any more."""
        self._returned.add(offset)

    def in_hand(self) -> list[H]:
        """Messages that are not done."""
        return [each for each in self._handed if not each.is_done and each.offset not in self._returned]

    def _pop_done(self) -> None:
        handed = self._handed
        while handed and handed[0].is_done:
            done = handed.popleft()
            if self._returned:
                self._returned.discard(done.offset)
