"""What the roles of a partition share: the surroundings they act in, and batches that are not committed yet."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

STRETCHES_AT_MOST = 4096  # kept apart of what is not committed; beyond that the newest ones are counted as one


class Surroundings:
    """The cluster as partitions see it. A broker that is alone needs none of it."""

    __slots__ = ("ask_isr", "epoch_of", "lag_ms", "node_id", "now")

    def __init__(
        self,
        node_id: int,
        now: Callable[[], int],
        epoch_of: Callable[[int], int | None],
        ask_isr: "Callable[[Partition], None]",
        lag_ms: int,
    ) -> None:
        self.node_id = node_id
        self.now = now
        self.epoch_of = epoch_of  # of a registered broker that is not leaving
        self.ask_isr = ask_isr  # the partition wishes another ISR
        self.lag_ms = lag_ms  # replica.lag.time.max.ms


def alone(node_id: int, now: Callable[[], int]) -> Surroundings:
    """Those of a broker without a cluster."""
    return Surroundings(node_id, now, lambda _: None, lambda _: None, 30_000)


class Uncommitted:
    """How many bytes lie between the high watermark and the end of a log: who waits for records counts them."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: deque[tuple[int, int]] = deque()  # end offset and bytes

    def add(self, end: int, size: int) -> None:
        stretches = self._stretches
        if len(stretches) >= STRETCHES_AT_MOST:
            size += stretches.pop()[1]
        stretches.append((end, size))

    def take(self, high_watermark: int) -> int:
        """Bytes that are committed now and were not when this was asked last."""
        stretches = self._stretches
        total = 0
        while stretches and stretches[0][0] <= high_watermark:
            total += stretches.popleft()[1]
        return total

    def cut(self, end: int) -> None:
        while self._stretches and self._stretches[-1][0] > end:
            self._stretches.pop()
