"""Log lines about denied requests, in Kafka's words. A repeated line is counted, and written again after a minute."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger("moldau.authorizer")

REPEAT_S = 60.0
REMEMBERED_LINES = 1_000  # different ones; beyond that the oldest may be repeated earlier


@dataclass(slots=True)
class _Written:
    at: float
    repeats: int = 0


class DenialLog:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lines: dict[str, _Written] = {}  # the oldest first

    def write(self, line: str) -> int | None:
        """How often the line was repeated since it was last written; None: this is another repetition."""
        now = self._now()
        known = self._lines.get(line)
        if known is not None and now < known.at + REPEAT_S:
            known.repeats += 1
            return None
        if known is None and len(self._lines) >= REMEMBERED_LINES:
            del self._lines[next(iter(self._lines))]
        self._lines.pop(line, None)
        self._lines[line] = _Written(now)
        repeats = known.repeats if known else 0
        logger.info("%s%s", line, f" ({repeats} more times before)" if repeats else "")
        return repeats
