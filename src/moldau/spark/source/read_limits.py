"""Limits of a micro-batch: minOffsetsPerTrigger, maxTriggerDelay and maxOffsetsPerTrigger. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.base.ids import TopicPartition


@dataclass(slots=True)
class TriggerDelay:
    """Decides whether a batch waits for more records. The first one never waits, and none longer than `max_s`."""

    least: int
    max_s: float
    last_s: float | None = None  # start of the last batch

    def should_wait(self, available: int, now_s: float) -> bool:
        late = self.last_s is None or now_s - self.last_s >= self.max_s
        if available >= self.least or late:
            self.last_s = now_s
            return False
        return True


def limit_offsets(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """End offsets within the limit: each partition gets its share, and at least one offset if it has any."""
    sizes = {tp: end - starts[tp] for tp, end in ends.items() if end > starts[tp]}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    nearer = {tp: starts[tp] + min(size, max(1, limit * size // total)) for tp, size in sizes.items()}
    return {**ends, **nearer}
