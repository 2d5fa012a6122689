"""LeaderEpochs: the first offset of each leader epoch of a log, as Kafka's LeaderEpochFileCache (KIP-101). Does no I/O.

The file `leader-epoch-checkpoint` is written with the log's flush. Epochs that a crash loses are after the recovery
point, where recovery reads them from the batches again.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from moldau.base.ids import Epoch, Offset

NONE: Final = (-1, -1)


class LeaderEpochs:
    """Epochs with their first offsets, both increasing."""

    __slots__ = ("_epochs", "_starts", "changed", "latest")

    def __init__(self, entries: Iterable[tuple[Epoch, Offset]] = ()) -> None:
        self.load(entries)
        self.changed = False  # since the file was written

    def load(self, entries: Iterable[tuple[Epoch, Offset]]) -> None:
        """Replace all entries."""
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        self._touch()
        for epoch, start in entries:
            self.assign(epoch, start)

    def entries(self) -> list[tuple[Epoch, Offset]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: Epoch, start: Offset) -> None:
        """Add an epoch that begins at `start`; removes entries that contradict it."""
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
        """Remove epochs that began at `end` or later."""
        while self._starts and self._starts[-1] >= end:
            self._epochs.pop()
            self._starts.pop()
            self._touch()

    def cut_start(self, start: int) -> None:
        """Remove epochs that ended before `start`; the present one begins there."""
        holding = bisect_right(self._starts, start) - 1
        if holding > 0 or (holding == 0 and self._starts[0] < start):
            del self._epochs[:holding], self._starts[:holding]
            self._starts[0] = start
            self._touch()

    def end_offset_for(self, epoch: Epoch, log_end: Offset) -> tuple[Epoch, Offset]:
        """The largest epoch up to `epoch`, and the first offset of the next one; (-1, -1) if unknown."""
        if epoch < 0 or epoch > self.latest:
            return NONE
        if epoch == self.latest:
            return epoch, log_end
        following = bisect_right(self._epochs, epoch)
        if following == 0:  # older than all entries: its records are deleted; the log starts here
            return epoch, self._starts[0]
        return self._epochs[following - 1], self._starts[following]

    def epoch_of(self, offset: Offset) -> Epoch:
        """The leader epoch of the record at `offset`, or -1."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else -1

    def _touch(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else -1
        self.changed = True
