"""How long to go on trying: a deadline, and pauses that grow. Knows nothing of what is tried."""

import random
import time

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0


class Patience:
    """`while …: if not patience.again(): give up` – the pause is in `again`."""

    __slots__ = ("_pause_s", "deadline")

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self._pause_s = FIRST_PAUSE_S

    def again(self) -> bool:
        """Waits a little; False once the time is up. Some chance keeps many clients from asking in step."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, self._pause_s * random.uniform(0.8, 1.2)))
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
        return True

    def progress(self) -> None:
        """Something succeeded: the next pause is short again. The deadline stays."""
        self._pause_s = FIRST_PAUSE_S
