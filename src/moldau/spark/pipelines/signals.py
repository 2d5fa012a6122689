"""StopSignals: SIGINT and SIGTERM raise StopRequested in the main thread, once."""

import signal
from types import FrameType
from typing import Any


class StopRequested(BaseException):
    """A stop was requested. Not an Exception: an `except Exception` in a pipeline's file must not catch it."""


class StopSignals:
    """Raises StopRequested at the first signal while `raises` is true, and counts the others.

    Must be entered in the main thread, as Python requires of signal handlers.
    """

    def __init__(self) -> None:
        self.received = 0
        self.raises = True
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Set the handlers. Call it again after a session has started: PySpark sets its own for SIGINT."""
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.signal(number, self._handle)
            self._previous.setdefault(number, previous)

    def rearm(self) -> bool:
        """Let the next signal raise again; False if one has come already."""
        self.raises = True
        return self.received == 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        if self.received == 1 and self.raises:
            raise StopRequested
