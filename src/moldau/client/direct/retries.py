"""How long to go on trying: a deadline, and pauses that grow. Knows nothing of what is tried."""

import random
import time
from typing import NamedTuple


class Backoff(NamedTuple):
    """Between tries: the first, and the longest that it grows to."""

    initial_s: float = 0.02
    max_s: float = 1.0


class Retries:
    """`while …: if not patience.again(): give up` – the pause is in `again`."""

    __slots__ = ("_backoff", "_pause_s", "deadline")

    def __init__(self, seconds: float, backoff: Backoff = Backoff()) -> None:  # noqa: B008  # an immutable value
        self.deadline = time.monotonic() + seconds
        self._backoff = backoff
        self._pause_s = backoff.initial_s

    def again(self) -> bool:
        """Waits a little; False once the time is up. Some chance keeps many clients from asking in step."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, self._pause_s * random.uniform(0.8, 1.2)))
        self._pause_s = min(self._backoff.max_s, self._pause_s * 2)
        return True

    def progress(self) -> None:
        """Something succeeded: the next pause is short again. The deadline stays."""
        self._pause_s = self._backoff.initial_s
