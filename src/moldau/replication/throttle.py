"""Limits how many bytes per second of throttled partitions are copied (KIP-73). Others say what is throttled."""

from collections.abc import Callable, Container
from typing import Protocol

Key = tuple[str, int]
NO_LIMIT = 2**63 - 1
WINDOW_S = 1.0  # how far what was sent ahead of its time is paid back at most


class Throttled(Protocol):
    """A partition, as far as a throttle looks at it."""

    topic: str
    index: int


class Throttle:
    """A bucket that fills with `rate` bytes per second. It may go below zero by what one answer carries."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.rate = NO_LIMIT
        self.partitions: Container[Key] = ()  # those that are throttled
        self._room = 0.0
        self._filled_at = clock()

    @property
    def limited(self) -> bool:
        return self.rate != NO_LIMIT

    def must_wait(self, partition: Throttled) -> bool:
        """Whether a partition gets nothing just now."""
        if not self.limited or not self._throttled(partition):
            return False
        self._fill()
        return self._room <= 0

    def count(self, partition: Throttled, size: int) -> None:
        if self.limited and size and self._throttled(partition):
            self._fill()
            self._room -= size

    def _throttled(self, partition: Throttled) -> bool:
        return (partition.topic, partition.index) in self.partitions

    def _fill(self) -> None:
        now = self._clock()
        self._room = min(self._room + (now - self._filled_at) * self.rate, self.rate * WINDOW_S)
        self._filled_at = now
