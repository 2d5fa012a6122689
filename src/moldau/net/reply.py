"""What a handler gives back for one request: bytes, bytes and slices of files, nothing, or a promise."""

from collections.abc import Callable
from typing import TypeAlias

from moldau.base.slices import FileSlice

Parts: TypeAlias = list[bytes | bytearray | FileSlice]


class BadRequest(Exception):
    """The peer broke the protocol in a way that has no error answer: the connection is closed with this reason."""


class Parked:
    """A reply that comes later. The connection goes on reading; replies still leave in the order of their requests."""

    __slots__ = ("_abandoned", "_wake", "done", "held", "reply")

    def __init__(self, abandoned: Callable[[], None] | None = None) -> None:
        self.done = False
        self.reply: bytes | Parts | BadRequest | None = None
        self.held = 0  # bytes that the connection counts for it while it is ready and cannot leave
        self._wake: Callable[[], None] | None = None
        self._abandoned = abandoned

    def resolve(self, reply: bytes | Parts | BadRequest | None) -> None:
        """Here it is; None where none is sent, a BadRequest where the connection has to end instead. Only once."""
        self.reply = reply
        self.done = True
        if self._wake is not None:
            self._wake()

    def on_done(self, wake: Callable[[], None]) -> None:
        """Called when it is resolved, which is after the request's handler has returned it."""
        self._wake = wake

    def abandon(self) -> None:
        """The peer is gone: nobody waits any more."""
        self._wake = None
        if not self.done and self._abandoned is not None:
            self._abandoned()


Reply: TypeAlias = bytes | Parts | Parked | None
