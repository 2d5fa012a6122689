"""Ctrl-C for commands that stay inside librdkafka.

A KeyboardInterrupt raised while librdkafka calls back is swallowed by its binding, which then fails with a SystemError.
So `Interrupts` only notes the first Ctrl-C, for the command's loop to see; the second one raises at once.

While a call into librdkafka does not return, Python runs no handler at all. `ended_by_ctrl_c` ends the process then.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import IO, Any

from moldau.tools.common.failure import INTERRUPTED

GRACE_S = 1.0  # for Python to run the handler of a signal
SHORT_S = 0.001  # a time-out of 0 would mean: do not block
HANDLED = 0  # beside numbers of signals: a handler has run


class Interrupts:
    """Count Ctrl-C while entered."""

    def __init__(self) -> None:
        self.asked = 0
        self._may_raise = False
        self._before: Any = None

    def __enter__(self) -> "Interrupts":
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        _tell_handled()
        self.asked += 1
        if self._may_raise or self.asked > 1:
            raise KeyboardInterrupt

    def read_lines(self, source: IO[bytes]) -> Iterator[bytes]:
        """The lines of a source, up to its end or the first Ctrl-C, which does not wait for a line to be finished."""
        while True:
            try:
                self._may_raise = True
                line = b"" if self.asked else source.readline()
            except KeyboardInterrupt:
                return
            finally:
                self._may_raise = False
            if not line:
                return
            yield line


class _Watched:
    """Where signals and handlers tell `_watch`; None outside of `ended_by_ctrl_c`."""

    writer: socket.socket | None = None


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """While entered, Ctrl-C ends the process even if its main thread is stuck in a call outside of Python."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    _Watched.writer = writer
    before = signal.signal(signal.SIGINT, _interrupt)
    descriptor_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor_before)
        signal.signal(signal.SIGINT, before)
        _Watched.writer = None
        writer.close()  # ends the thread


def _interrupt(number: int, frame: FrameType | None) -> None:
    _tell_handled()
    raise KeyboardInterrupt


def _tell_handled() -> None:
    if _Watched.writer is not None:
        with suppress(OSError):
            _Watched.writer.send(bytes([HANDLED]))


def _watch(reader: socket.socket) -> None:
    """The interpreter writes a signal's number at once, whatever the main thread does; a handler tells that it ran."""
    deadline: float | None = None  # by which a handler must have run
    with reader:
        while True:
            reader.settimeout(None if deadline is None else max(deadline - time.monotonic(), SHORT_S))
            try:
                numbers = reader.recv(64)
            except TimeoutError:
                os._exit(INTERRUPTED)
            if not numbers:
                return
            for number in numbers:
                if number == HANDLED:
                    deadline = None
                elif number == signal.SIGINT and deadline is None:
                    deadline = time.monotonic() + GRACE_S
