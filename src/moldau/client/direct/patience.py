"""How long to go on trying: a deadline, and pauses that grow. Knows nothing of what is tried."""

import random
import time
from typing import NamedTuple


class Pauses(NamedTuple):
    """Between tries: the first, and the longest that it grows to."""

    first_s: float = 0.02
    longest_s: float = 1.0


class Patience:
    """`while …: if not patience.again(): give up` – the pause is in `again`."""

    __slots__ = ("_pause_s", "_pauses", "deadline")

    def __init__(self, seconds: float, pauses: Pauses = Pauses()) -> None:  # noqa: B008  # an immutable value
        self.deadline = time.monotonic() + seconds
        self._pauses = pauses
        self._pause_s = pauses.first_s

    def again(self) -> bool:
        """Waits a little; False once the time is up. Some chance keeps many clients from asking in step."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, self._pause_s * random.uniform(0.8, 1.2)))
        self._pause_s = min(self._pauses.longest_s, self._pause_s * 2)
        return True

    def progress(self) -> None:
        """Something succeeded: the next pause is short again. The deadline stays."""
        self._pause_s = self._pauses.first_s
