"""Lease: messages that a loop takes at once and works through one by one, so that it need not lock for each.

Messages that the loop has not begun can be called back at any time: the thread that calls back closes the limit first
and then reads how far the loop is; the loop first says how far it is and then reads the limit. So at least one of them
sees the other, and the loop asks under the lock (`Handover.goes_on`).
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

M = TypeVar("M")

CLOSED = 0


class Lease(Generic[M]):
    """Messages from `at` on are not done; those after `at` are not begun."""

    __slots__ = ("at", "end", "limit", "messages")

    def __init__(self, messages: Sequence[M]) -> None:
        self.messages = messages
        self.at = -1  # the message that the loop has begun; set by the loop alone
        self.end = len(messages)  # the messages from here on were called back
        self.limit = self.end  # the loop asks before it begins a message from here on

    def close_limit(self) -> None:
        """Let the loop ask before its next message."""
        self.limit = CLOSED

    def call_back(self) -> Sequence[M]:
        """The messages that are not begun. The loop does not get them any more."""
        self.limit = CLOSED
        return self.end_at(self.at + 1)

    def end_at(self, index: int) -> Sequence[M]:
        """The messages from this one on, which the loop does not get any more."""
        rest = self.messages[index : self.end]
        self.end = min(index, self.end)
        return rest
