"""Ctrl-C for commands that stay inside librdkafka.

A KeyboardInterrupt raised while librdkafka calls back is swallowed by its binding, which then fails with a SystemError.
So the first Ctrl-C is only noted, for the command's loop to see; the second one raises at once.
"""

import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import IO, Any


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
