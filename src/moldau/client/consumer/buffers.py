"""Buffer: messages between the poll thread and the body, bounded by number and bytes. Pure: has no lock of its own.

Messages are kept in runs: neighbours of one partition. Everything that concerns a partition is done by run.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from moldau.base.ids import TopicPartition

M = TypeVar("M")


class Run(Generic[M]):
    """Messages of one partition in the order of their offsets, from `start` on; those before were taken."""

    __slots__ = ("messages", "partition", "size", "start")

    def __init__(self, partition: TopicPartition, messages: Sequence[M], size: int) -> None:
        self.partition = partition
        self.messages = messages
        self.size = size  # bytes, of all messages; counted until the last one is taken
        self.start = 0

    def __len__(self) -> int:
        return len(self.messages) - self.start


class Slice(NamedTuple, Generic[M]):
    """The next messages of a run."""

    run: Run[M]
    length: int

    @property
    def messages(self) -> Sequence[M]:
        return self.run.messages[self.run.start : self.run.start + self.length]


class Buffer(Generic[M]):
    """Runs in the order in which they came. It may grow past its bounds by one chunk, and is `full` then."""

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._runs: deque[Run[M]] = deque()
        self.messages = 0
        self.bytes = 0

    @property
    def full(self) -> bool:
        return self.messages >= self._most_messages or self.bytes >= self._most_bytes

    @property
    def half_empty(self) -> bool:
        return self.messages <= self._most_messages // 2 and self.bytes <= self._most_bytes // 2

    def room(self, average: int) -> int:
        """How many messages may still come if they have this many bytes."""
        by_bytes = (self._most_bytes - self.bytes) // max(average, 1)
        return max(min(self._most_messages - self.messages, by_bytes), 0)

    def add(self, runs: Iterable[Run[M]]) -> None:
        for run in runs:
            self._runs.append(run)
            self.messages += len(run)
            self.bytes += run.size

    def add_first(self, runs: Sequence[Run[M]]) -> None:
        """Put runs that were taken before the others."""
        self._runs.extendleft(reversed(runs))
        self.messages += sum(map(len, runs))
        self.bytes += sum(run.size for run in runs)

    def peek(self, most: int, without: Collection[TopicPartition] = ()) -> list[Slice[M]]:
        """Up to `most` next messages, none of partitions `without`; they stay here until `remove`."""
        found: list[Slice[M]] = []
        for run in self._runs:
            if run.partition in without:
                continue
            count = min(len(run), most)
            found.append(Slice(run, count))
            most -= count
            if not most:
                break
        return found

    def remove(self, slices: Sequence[Slice[M]]) -> None:
        """Remove what `peek` returned."""
        emptied = 0
        for run, count in slices:
            run.start += count
            self.messages -= count
            emptied += not len(run)
        while emptied and not len(self._runs[0]):
            self.bytes -= self._runs.popleft().size
            emptied -= 1
        if emptied:  # behind runs that were left out
            self._keep([run for run in self._runs if len(run)])

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the messages of these partitions."""
        self._keep([run for run in self._runs if run.partition not in partitions])

    def first(self, partition: TopicPartition) -> M | None:
        """The next message of a partition."""
        return next((run.messages[run.start] for run in self._runs if run.partition == partition), None)

    def _keep(self, runs: list[Run[M]]) -> None:
        self._runs = deque(runs)
        self.messages = sum(map(len, runs))
        self.bytes = sum(run.size for run in runs)
