"""KeyMap: the last offset of each key in the dirty part of a log. Bounded in memory; reads no files.

Keys are stored themselves, long ones as a digest of 64 bytes, so two keys are never confused. A Python dictionary of
short bytes takes more memory than Kafka's table of hashes, and is several times faster than such a table in Python.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

ENTRY_BYTES = 145  # of an entry without its key: both objects and the dictionary's share, at most


class KeyMap:
    __slots__ = ("_memory", "_used", "end", "keyless", "offsets", "tombstoned")

    def __init__(self, memory: int) -> None:
        """`memory`: the bound in bytes. It is checked before a batch is added, so one batch may exceed it."""
        self._memory = memory
        self._used = 0
        self.offsets: dict[bytes, int] = {}
        self.end = 0  # the map is complete up to this offset
        self.keyless = 0  # records without a key
        self.tombstoned = array("q")  # base offsets of batches that have a tombstone, ascending

    @property
    def full(self) -> bool:
        return self._used >= self._memory

    def add(self, keys: Sequence[bytes | None], offsets: Iterable[int]) -> None:
        """Add the keys of a batch; later offsets replace earlier ones. Records without a key are only counted."""
        known = self.offsets
        before = len(known)
        known.update(zip(keys, offsets, strict=True))  # type: ignore[arg-type]  # None is removed below
        if known.pop(None, None) is not None:  # type: ignore[call-overload]
            self.keyless += keys.count(None)
            keys = [key for key in keys if key is not None]
        new = len(known) - before
        if new:
            self._used += new * (ENTRY_BYTES + sum(map(len, keys)) // len(keys))  # type: ignore[arg-type]

    def note_tombstones(self, base_offset: int) -> None:
        self.tombstoned.append(base_offset)
        self._used += self.tombstoned.itemsize

    def has_tombstones(self, base_offset: int) -> bool:
        """Whether an added batch has tombstones."""
        place = bisect_left(self.tombstoned, base_offset)
        return place < len(self.tombstoned) and self.tombstoned[place] == base_offset
