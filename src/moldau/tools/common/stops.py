"""Ctrl-C, SIGTERM and SIGHUP, for commands that stop their children before they end."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if sys.platform != "win32" else (signal.SIGINT,)
ALWAYS = (signal.SIGINT, signal.SIGTERM)


class StopAsked(Exception):
    """The command was asked to stop."""


class Stops:
    """While entered, these signals raise StopAsked. SIGHUP stays ignored under nohup."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._holding = False
        self._asked = False

    def __enter__(self) -> "Stops":
        for number in SIGNALS:
            if number in ALWAYS or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Defer signals: a child that was just started must not be forgotten."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._asked:
            self._asked = False
            raise StopAsked

    def ignore(self) -> None:
        """Ignore all further signals: the command is stopping."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self._holding:
            raise StopAsked
        self._asked = True
