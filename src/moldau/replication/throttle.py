"""Throttles of replication (KIP-73): how much a broker may copy, or send, for the replicas that topics' settings name.

Pure arithmetic: time is an argument. Callers throttle only replicas that are not in sync: one that has caught up must
stay so.
"""

from collections.abc import Sequence

UNLIMITED = 2**63 - 1
BURST_MS = 1_000  # how much of the rate a pause saves up


def named(setting: Sequence[str], index: int, broker_id: int) -> bool:
    """Whether *.replication.throttled.replicas of a topic names this replica: `partition:broker`, or `*` for all."""
    return bool(setting) and ("*" in setting or f"{index}:{broker_id}" in setting)


class ReplicationThrottle:
    """The leader's or the follower's side of a broker. Bytes over the limit are made up for by waiting."""

    __slots__ = ("_at_ms", "_owed", "rate")

    def __init__(self, rate: int = UNLIMITED) -> None:
        self.rate = rate  # bytes per second; may be set at any time
        self._owed = 0.0  # bytes over the limit; negative: unused
        self._at_ms = 0

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes that were copied or sent for throttled replicas."""
        self._pass_time(now_ms)
        self._owed += size

    def allowance(self, now_ms: int) -> float:
        """Bytes that throttled replicas may get before the limit is exceeded; negative: it is."""
        self._pass_time(now_ms)
        return -self._owed

    def exceeded(self, now_ms: int) -> bool:
        """Whether throttled replicas have to wait."""
        return self.wait_ms(now_ms) > 0

    def wait_ms(self, now_ms: int) -> int:
        """How long throttled replicas have to wait."""
        if self.rate >= UNLIMITED:
            return 0
        self._pass_time(now_ms)
        if self._owed <= 0:
            return 0
        return int(self._owed * 1000 / self.rate) + 1 if self.rate > 0 else BURST_MS

    def _pass_time(self, now_ms: int) -> None:
        passed_ms = max(now_ms - self._at_ms, 0)  # a clock that is set back gives nothing
        self._at_ms = now_ms
        saved = self.rate * BURST_MS / 1000
        self._owed = max(self._owed - self.rate * passed_ms / 1000, -saved)
