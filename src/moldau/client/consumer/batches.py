"""Batches of messages that grow until they are full or their time is over. Knows neither buffers nor progress."""

import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from moldau.client.consumer.progress import Handed
from moldau.client.errors import InvalidUse

M = TypeVar("M")


class Piece(NamedTuple, Generic[M]):
    """Messages, and what is done when they are: they themselves, or ranges of offsets."""

    messages: list[M]
    handed: Sequence[Handed]


Take: TypeAlias = Callable[[int, float | None], Piece[M] | None]  # None when the time is over; empty after a wakeup


class Gathering(Generic[M]):
    """A batch that grows: up to `most` messages, all that come within `wait` seconds after the first."""

    def __init__(self, most: int, wait: float) -> None:
        self._most = most
        self._wait = wait
        self._until = 0.0
        self.messages: list[M] = []
        self.handed: list[Handed] = []
        self.woken = False

    @property
    def room(self) -> int:
        return self._most - len(self.messages)

    @property
    def left(self) -> float | None:
        """Seconds to wait for the next messages; None: for ever."""
        return max(self._until - time.monotonic(), 0) if self.messages else None

    def add(self, piece: Piece[M] | None) -> bool:
        """Whether there is time and room for more. A piece is None when the time is over, and empty after a wakeup."""
        if piece is None:
            return False
        if not piece.messages:
            self.woken = True
            return False
        if not self.messages:
            self._until = time.monotonic() + self._wait
        self.messages += piece.messages
        self.handed += piece.handed
        return self.room > 0


def check_batch(n: int) -> None:
    """Refuse a number of messages that makes no batch."""
    if not isinstance(n, int) or n < 1:
        raise InvalidUse(f"n={n!r}: a batch has one message at least")
