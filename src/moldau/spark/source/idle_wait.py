"""IdleWait: how long a stream's reader may wait for new records inside a call of Spark. Pure.

Spark asks a source without new records again after 10 ms, at a cost of 1.6 ms of CPU. If the reader waits inside the
call instead, an idle query costs little, and a record is seen at once. But Spark asks the sources of a query one after
the other, so records of another source wait too: the wait stays short, and it starts again at the shortest whenever
Spark has been away for longer than its pause, because it then had something else to do.
"""

FIRST_S = 0.01
LONGEST_S = 0.1
AWAY_S = 0.05  # Spark's pause is 10 ms (spark.sql.streaming.pollingDelay)


class IdleWait:
    def __init__(self) -> None:
        self._next_s = FIRST_S
        self._returned: float | None = None  # when the last call without new records returned

    def seconds(self, now: float) -> float:
        """How long this call may wait; 0 unless the call before it found nothing."""
        if self._returned is None:
            return 0.0
        away = now - self._returned > AWAY_S
        wait_s = FIRST_S if away else self._next_s
        self._next_s = min(LONGEST_S, 2 * wait_s)
        return wait_s

    def returns(self, now: float, *, empty: bool) -> None:
        """A call returns, with a new batch or without one."""
        self._returned = now if empty else None
        if not empty:
            self._next_s = FIRST_S
