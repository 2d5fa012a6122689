"""Log lines about misbehaving clients: each client and reason once a minute, and only so many lines a second."""

import logging
from dataclasses import dataclass

logger = logging.getLogger("moldau.net")

LINES_PER_SECOND = 10
REPEAT_SECONDS = 60.0  # repeats of a line are only counted for this long
REMEMBERED_LINES = 1_000


@dataclass(slots=True)
class _Repeats:
    until: float
    count: int = 0


class ThrottledLog:
    """Bounds the log: a flood of bad clients must not fill the disk. `now` is the time of the event loop."""

    def __init__(self) -> None:
        self._repeats: dict[tuple[str, str, str], _Repeats] = {}  # by event, host and reason; the oldest first
        self._second = 0
        self._lines = 0

    def write(self, level: int, event: str, client: str, reason: str, now: float) -> None:
        """Log "event client: reason", or count it if this client's host caused the same line in the last minute."""
        self._report_repeats(now)
        key = (event, _host(client), reason)
        repeats = self._repeats.get(key)
        if repeats is not None:
            repeats.count += 1
            return
        self._repeats[key] = _Repeats(now + REPEAT_SECONDS)
        self._log(level, f"{event} {client}: {reason}", now)

    def _report_repeats(self, now: float) -> None:
        """Forget lines older than a minute, and log how often each was repeated."""
        while self._repeats:
            key, oldest = next(iter(self._repeats.items()))
            if oldest.until > now and len(self._repeats) < REMEMBERED_LINES:
                return
            del self._repeats[key]
            if oldest.count:
                event, host, reason = key
                times = "time" if oldest.count == 1 else "times"
                self._log(logging.INFO, f"{event} {host}: {reason} ({oldest.count} more {times})", now)

    def _log(self, level: int, line: str, now: float) -> None:
        second = int(now)
        if second != self._second:
            if self._lines > LINES_PER_SECOND:
                logger.info("%d more lines about clients were left out", self._lines - LINES_PER_SECOND)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_PER_SECOND:
            logger.log(level, "%s", line)


def _host(client: str) -> str:
    """The address of a client as logged, without its port."""
    return client.rpartition(":")[0] or client
