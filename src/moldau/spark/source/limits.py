"""How much one batch of a stream takes: minOffsetsPerTrigger, maxTriggerDelay, maxOffsetsPerTrigger. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.client.direct.metadata import Place


@dataclass(slots=True)
class Waiting:
    """Whether a batch waits for more records. The first never does, and none longer than `longest_s`."""

    least: int
    longest_s: float
    last_s: float | None = None  # when a batch last began

    def waits(self, available: int, now_s: float) -> bool:
        late = self.last_s is None or now_s - self.last_s >= self.longest_s
        if available >= self.least or late:
            self.last_s = now_s
            return False
        return True


def at_most(limit: int, starts: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
    """Ends that are nearer: each partition gets its share of the limit, and at least one offset if it has any."""
    sizes = {place: end - starts[place] for place, end in ends.items() if end > starts[place]}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    nearer = {place: starts[place] + min(size, max(1, limit * size // total)) for place, size in sizes.items()}
    return {**ends, **nearer}
