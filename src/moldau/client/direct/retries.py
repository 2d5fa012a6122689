"""Retries: a deadline with exponential backoff."""

import random
import time
from typing import NamedTuple


class Backoff(NamedTuple):
    """Pause between retries: the first one, and the maximum it grows to."""

    initial_s: float = 0.02
    max_s: float = 1.0


class Retries:
    """`while True: …; if not retries.again(): return failure`. The pause is in `again`."""

    __slots__ = ("_backoff", "_pause_s", "deadline")

    def __init__(self, seconds: float, backoff: Backoff = Backoff()) -> None:  # noqa: B008  # an immutable value
        self.deadline = time.monotonic() + seconds
        self._backoff = backoff
        self._pause_s = backoff.initial_s

    def again(self) -> bool:
        """Sleep for the backoff with some jitter; False once the deadline has passed."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, self._pause_s * random.uniform(0.8, 1.2)))
        self._pause_s = min(self._backoff.max_s, self._pause_s * 2)
        return True

    def progress(self) -> None:
        """Something succeeded: reset the backoff. The deadline stays."""
        self._pause_s = self._backoff.initial_s
