"""Reply: what a handler returns for one request: bytes, bytes and slices of files, nothing, or a parked reply."""

from collections.abc import Callable
from typing import TypeAlias

from moldau.base.slices import FileSlice

Parts: TypeAlias = list[bytes | bytearray | FileSlice]


class BadRequest(Exception):
    """A request that breaks the protocol and has no error response: it closes the connection, with this reason."""


class Parked:
    """A reply that comes later, as from Kafka's purgatory.

    The connection reads on meanwhile; replies still leave in the order of their requests.
    """

    __slots__ = ("_abandoned", "_wake", "done", "held", "reply")

    def __init__(self, abandoned: Callable[[], None] | None = None) -> None:
        self.done = False
        self.reply: bytes | Parts | BadRequest | None = None
        self.held = 0  # bytes that count as pending while it is ready and waits behind another
        self._wake: Callable[[], None] | None = None
        self._abandoned = abandoned

    def resolve(self, reply: bytes | Parts | BadRequest | None) -> None:
        """Set the reply, once: None to send nothing, a BadRequest to close the connection."""
        self.reply = reply
        self.done = True
        if self._wake is not None:
            self._wake()

    def on_done(self, wake: Callable[[], None]) -> None:
        """Call `wake` on `resolve`."""
        self._wake = wake

    def abandon(self) -> None:
        """Drop the reply: its connection is closed."""
        self._wake = None
        if not self.done and self._abandoned is not None:
            self._abandoned()


Reply: TypeAlias = bytes | Parts | Parked | None
