"""Which partition a record goes to, as Java's producer decides: murmur2 of its key, or one that sticks for a while.

librdkafka's default hashes otherwise, so records of one key would lie in two places. Sends nothing.
"""

import importlib.util
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

WORTH_NUMPY = 32  # fewer keys are hashed sooner one by one

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """32-bit murmur2 with Kafka's seed, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def murmur2_of(keys: Sequence[bytes]) -> Sequence[int]:
    """The hash of each key; many are hashed at once where numpy is (it comes with pandas)."""
    if len(keys) < WORTH_NUMPY or importlib.util.find_spec("numpy") is None:
        return [murmur2(key) for key in keys]
    hashed: Sequence[int] = _murmur2_at_once(keys)
    return hashed


def _murmur2_at_once(keys: Sequence[bytes]) -> Any:
    """`murmur2` in columns of unsigned 32-bit numbers, whose products wrap by themselves.

    Keys are taken by length, the longest first, so that those that have a next word are always the first ones.
    """
    import numpy as np

    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    starts = np.cumsum(lengths) - lengths
    order = np.argsort(-lengths, kind="stable")
    common = lengths[order[WORTH_NUMPY - 1]]  # the few that are longer would make columns of few numbers
    alone, order = np.split(order, [np.count_nonzero(lengths > common)])
    data = b"".join((*keys, bytes(4)))
    words = np.ndarray(len(data) - 3, "<u4", data, strides=(1,))  # the four bytes at each position
    length, start = lengths[order], starts[order]
    m, shift = np.uint32(_M), np.uint32(24)
    h = np.uint32(_SEED) ^ length.astype(np.uint32)
    for column in range(common // 4):
        having = np.count_nonzero(length >= 4 * column + 4)
        k = words[start[:having] + 4 * column] * m
        k = (k ^ k >> shift) * m
        h[:having] = h[:having] * m ^ k
    left = np.flatnonzero(length & 3)
    masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
    h[left] = (h[left] ^ words[(start + (length & ~3))[left]] & masks[length[left] & 3]) * m
    h = (h ^ h >> np.uint32(13)) * m
    found = np.empty(len(keys), np.uint32)
    found[order] = h ^ h >> np.uint32(15)
    found[alone] = [murmur2(keys[row]) for row in alone]
    return found


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """Partitions for the records of one topic. Records without a key stay together for a batch's bytes (KIP-794)."""

    def __init__(self, partitions: int, stick_bytes: int, chance: random.Random | None = None) -> None:
        self.partitions = partitions
        self._stick_bytes = stick_bytes
        self._chance = chance or random.Random()
        self._current = self._chance.randrange(partitions)
        self._left = stick_bytes

    def assign(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Sequence[int]:
        """A partition for each record: a list, or an array where numpy is."""
        if self.partitions == 1:
            return [0] * len(keys)
        if None not in keys:
            chosen: Sequence[int] = self._hashed(keys)  # type: ignore[arg-type]
            return chosen
        hashed = iter(self._hashed([key for key in keys if key is not None]))
        stuck = self._stuck([value for key, value in zip(keys, values, strict=True) if key is None])
        return [next(stuck) if key is None else int(next(hashed)) for key in keys]

    def _hashed(self, keys: Sequence[bytes]) -> Any:
        hashed: Any = murmur2_of(keys)
        if isinstance(hashed, list):
            return [(each & 0x7FFFFFFF) % self.partitions for each in hashed]
        return (hashed & 0x7FFFFFFF) % self.partitions

    def _stuck(self, values: Sequence[bytes | None]) -> Iterator[int]:
        """For records without a key: the partition of the moment until its bytes are full, then another."""
        ends = list(accumulate((len(value or b"") + 1 for value in values), initial=0))
        row = 0
        while row < len(values):
            full = bisect_left(ends, ends[row] + self._left, row + 1)  # the first end at which nothing is left
            following = min(full, len(values))
            yield from [self._current] * (following - row)
            self._left -= ends[following] - ends[row]
            row = following
            if self._left <= 0:
                self._left = self._stick_bytes
                self._current = (self._current + self._chance.randrange(1, self.partitions)) % self.partitions


def rows_by_partition(chosen: Sequence[int]) -> dict[int, Sequence[int]]:
    """The rows of each partition, in their order."""
    if not isinstance(chosen, list):
        return _rows_at_once(chosen)
    distinct = set(chosen)
    if len(distinct) == 1:
        return {distinct.pop(): range(len(chosen))}
    rows: dict[int, list[int]] = {partition: [] for partition in sorted(distinct)}
    for row, partition in enumerate(chosen):
        rows[partition].append(row)
    return dict(rows)


def _rows_at_once(chosen: Any) -> dict[int, Sequence[int]]:
    import numpy as np

    order = np.argsort(chosen, kind="stable")
    partitions, firsts = np.unique(chosen[order], return_index=True)
    parts = np.split(order, firsts[1:])
    return {int(partition): rows.tolist() for partition, rows in zip(partitions, parts, strict=True)}
