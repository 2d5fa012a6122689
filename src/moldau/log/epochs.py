"""Leader epochs of one log: where each began. Answers how far an old epoch reached (KIP-101). Does no I/O.

The file `leader-epoch-checkpoint` is written with the log's flush: what a crash loses of it lies behind the recovery
point, where recovery reads the epochs from the batches again.
"""

from bisect import bisect_right
from collections.abc import Iterable

from moldau.base.ids import Epoch, Offset

NONE = (-1, -1)


class LeaderEpochs:
    """Epochs with their first offsets, both increasing."""

    __slots__ = ("_epochs", "_starts", "changed", "latest")

    def __init__(self, entries: Iterable[tuple[Epoch, Offset]] = ()) -> None:
        self.load(entries)
        self.changed = False  # since the file was written

    def load(self, entries: Iterable[tuple[Epoch, Offset]]) -> None:
        """Forget all, and take these."""
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        self._touch()
        for epoch, start in entries:
            self.assign(epoch, start)

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> None:
        """The epoch writes from `start` on. Entries that contradict it are older mistakes, and go."""
        if epoch == self.latest and start >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self._touch()

    def follow(self, epoch: int, start: int) -> None:
        """The leader's batch at `start` has this epoch. An entry for a later epoch that begins there is wrong."""
        if epoch < self.latest:
            self.cut_end(start)
        if epoch > self.latest:
            self.assign(epoch, start)

    def cut_end(self, end: int) -> None:
        """Forgets epochs that began at `end` or later."""
        while self._starts and self._starts[-1] >= end:
            self._epochs.pop()
            self._starts.pop()
            self._touch()

    def cut_start(self, start: int) -> None:
        """Forgets epochs that ended before `start`; the one that holds it now begins there."""
        holding = bisect_right(self._starts, start) - 1
        if holding > 0 or (holding == 0 and self._starts[0] < start):
            del self._epochs[:holding], self._starts[:holding]
            self._starts[0] = start
            self._touch()

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to `epoch`, and the offset where the next one began; (-1, -1) if unknown."""
        if epoch < 0 or epoch > self.latest:
            return NONE
        if epoch == self.latest:
            return epoch, log_end
        following = bisect_right(self._epochs, epoch)
        if following == 0:  # older than all that is left: the data is gone, reading may start where the log does
            return epoch, self._starts[0]
        return self._epochs[following - 1], self._starts[following]

    def epoch_of(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written, or -1."""
        place = bisect_right(self._starts, offset)
        return self._epochs[place - 1] if place else -1

    def _touch(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else -1
        self.changed = True
