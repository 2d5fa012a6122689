"""Batches of messages: gathered until they are full or their time is over. Knows neither buffers nor progress."""

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


class Gathered(NamedTuple, Generic[M]):
    messages: list[M]
    handed: list[Handed]
    woken: bool


def check_batch(n: int) -> None:
    """Refuse a number of messages that makes no batch."""
    if not isinstance(n, int) or n < 1:
        raise InvalidUse(f"n={n!r}: a batch has one message at least")


def gather(take: Take[M], most: int, wait: float) -> Gathered[M]:
    """Up to `most` messages: all that come within `wait` seconds after the first."""
    messages: list[M] = []
    handed: list[Handed] = []
    left: float | None = None
    until = 0.0
    while len(messages) < most:
        piece = take(most - len(messages), left)
        if piece is None:
            break
        if not piece.messages:
            return Gathered(messages, handed, woken=True)
        if not messages:
            until = time.monotonic() + wait
        messages += piece.messages
        handed += piece.handed
        left = max(until - time.monotonic(), 0)
    return Gathered(messages, handed, woken=False)
