"""Records that do not conform and are accepted all the same, or set aside: counted, and told at a bounded rate."""

import logging
from time import monotonic
from typing import Final

from moldau.replication.record_checks import Checked

logger: Final = logging.getLogger("moldau.broker")

TELL_S: Final = 60.0  # between two lines about the same partition
PARTITIONS_AT_MOST: Final = 1_000  # that are counted at a time


class _Counts:
    __slots__ = ("dead", "told", "warned")

    def __init__(self) -> None:
        self.dead = self.warned = 0  # since the last line
        self.told = 0.0


class Nonconforming:
    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}  # by partition

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, partition: str, checked: Checked) -> None:
        """Count the records of a batch that do not conform and are accepted all the same, or set aside."""
        if not checked.dead and not checked.warned:
            return
        now = monotonic()
        counts = self._counts.get(partition)
        if counts is None:
            if len(self._counts) >= PARTITIONS_AT_MOST:
                del self._counts[min(self._counts, key=lambda name: self._counts[name].told)]
            counts = self._counts[partition] = _Counts()
            counts.told = now - TELL_S
        counts.dead += checked.dead
        counts.warned += checked.warned
        if now - counts.told < TELL_S:
            return
        words = "%s: %d records that do not conform were accepted, %d were set aside as dead letters. %s"
        logger.warning(words, partition, counts.warned, counts.dead, checked.first)
        counts.told, counts.dead, counts.warned = now, 0, 0
