"""The cluster as partitions see it: broker epochs, a clock, and the way to propose an ISR to the controller."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.base.ids import Epoch

if TYPE_CHECKING:
    from moldau.replication.partition import Partition


class ClusterView:
    __slots__ = ("epoch_of", "lag_ms", "node_id", "now", "propose_isr")

    def __init__(
        self,
        node_id: int,
        now: Callable[[], int],
        epoch_of: Callable[[int], Epoch | None],
        propose_isr: "Callable[[Partition], None]",
        lag_ms: int,
    ) -> None:
        self.node_id = node_id
        self.now = now
        self.epoch_of = epoch_of  # the epoch of a registered broker that is not shutting down
        self.propose_isr = propose_isr  # the partition's leader has a pending ISR
        self.lag_ms = lag_ms  # replica.lag.time.max.ms


def standalone(node_id: int, now: Callable[[], int]) -> ClusterView:
    """The view of a broker without a cluster."""
    return ClusterView(node_id, now, lambda _: None, lambda _: None, 30_000)
