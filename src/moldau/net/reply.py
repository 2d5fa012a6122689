"""What a handler gives back for one request: bytes, bytes and slices of files, nothing, or a promise."""

from collections.abc import Callable
from typing import TypeAlias

from moldau.base.slices import FileSlice

Parts: TypeAlias = list[bytes | bytearray | FileSlice]


class Parked:
    """A reply that comes later. The connection goes on reading; replies still leave in the order of their requests."""

    __slots__ = ("_abandoned", "_wake", "done", "reply")

    def __init__(self, abandoned: Callable[[], None] | None = None) -> None:
        self.done = False
        self.reply: bytes | Parts | None = None
        self._wake: Callable[[], None] | None = None
        self._abandoned = abandoned

    def resolve(self, reply: bytes | Parts | None) -> None:
        self.reply = reply
        self.done = True
        if self._wake is not None:
            self._wake()

    def on_done(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def abandon(self) -> None:
        """The peer is gone: nobody waits any more."""
        self._wake = None
        if not self.done and self._abandoned is not None:
            self._abandoned()


Reply: TypeAlias = bytes | Parts | Parked | None
