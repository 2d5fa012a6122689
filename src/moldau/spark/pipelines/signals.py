"""Being asked to stop: Ctrl-C and SIGTERM end what the main thread does, once; asked again, one does not wait."""

import signal
from types import FrameType
from typing import Any


class StopAsked(BaseException):
    """Somebody wants the pipeline to end. Not an Exception: a file's `except Exception` must not swallow it."""


class Signals:
    """Raises StopAsked at the first signal while `waits` is true; later ones only make haste."""

    def __init__(self) -> None:
        self.asked = 0
        self.waits = True
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def take(self) -> None:
        """Again after a session was started: PySpark takes Ctrl-C for itself."""
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, self._note)
            self._before.setdefault(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.asked == 1 and self.waits:
            raise StopAsked
