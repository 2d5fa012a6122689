"""Partitioner of Java's producer: murmur2 of the key, or a sticky partition for records without key.

librdkafka's default hash differs, and would put records of one key into two partitions.
"""

import importlib.util
import random
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

Column: TypeAlias = Sequence[bytes | None]

WORTH_NUMPY = 32  # fewer keys are faster one by one
SMALL = 2**15  # partition numbers below fit into two bytes

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """32-bit murmur2 with Kafka's seed, unsigned."""
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


def murmur2_of(keys: Iterable[bytes]) -> dict[bytes, int]:
    """The hash of each key; many keys of one length are hashed at once if numpy is installed."""
    by_length: dict[int, list[bytes]] = {}
    for key in keys:
        by_length.setdefault(len(key), []).append(key)
    hashed: dict[bytes, int] = {}
    for length, alike in by_length.items():
        if len(alike) < WORTH_NUMPY or importlib.util.find_spec("numpy") is None:
            hashed |= {key: murmur2(key) for key in alike}
        else:
            hashed |= zip(alike, _murmur2_at_once(alike, length).tolist(), strict=True)
    return hashed


def _murmur2_at_once(keys: Sequence[bytes], length: int) -> Any:
    """`murmur2` over columns of unsigned 32-bit numbers, which wrap on overflow."""
    import numpy as np

    whole = length & ~3
    padded = np.zeros((len(keys), whole + 4), np.uint8)
    if length:
        padded[:, :length] = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), length)
    words = padded.view("<u4")
    m = np.uint32(_M)
    h = np.full(len(keys), _SEED ^ length, np.uint32)
    for column in range(whole // 4):
        k = words[:, column] * m
        k = (k ^ k >> np.uint32(24)) * m
        h = h * m ^ k
    if whole < length:
        h = (h ^ words[:, -1]) * m
    h = (h ^ h >> np.uint32(13)) * m
    return h ^ h >> np.uint32(15)


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """Partitions for the records of one topic. Records without key stick to one for a batch's bytes (KIP-794)."""

    def __init__(self, partitions: int, stick_bytes: int, chance: random.Random | None = None) -> None:
        self.partitions = partitions
        self._stick_bytes = stick_bytes
        self._chance = chance or random.Random()
        self._current = self._chance.randrange(partitions)
        self._left = stick_bytes

    def assign(self, keys: Column, values: Column) -> list[int]:
        """The partition of each record."""
        found = [0] * len(keys)
        for partition, rows in self.rows(keys, values).items():
            for row in rows:
                found[row] = partition
        return found

    def rows(self, keys: Column, values: Column) -> dict[int, Sequence[int]]:
        """The row numbers of each partition, in order."""
        if self.partitions == 1:
            return {0: range(len(keys))}
        without = keys.count(None)
        if without == len(keys):
            return self._runs(values)
        if not without and len(keys) >= WORTH_NUMPY and importlib.util.find_spec("numpy") is not None:
            return _rows_at_once(keys, self.partitions)  # type: ignore[arg-type]
        hashed = murmur2_of({key for key in keys if key is not None})
        known = {key: (each & 0x7FFFFFFF) % self.partitions for key, each in hashed.items()}
        return by_partition(
            [self._sticky(value) if key is None else known[key] for key, value in zip(keys, values, strict=True)]
        )

    def _runs(self, values: Column) -> dict[int, Sequence[int]]:
        """As `_sticky` for each row, without a loop over rows."""
        ends = list(accumulate(1 if value is None else len(value) + 1 for value in values))
        rows: dict[int, Sequence[int]] = {}
        start = sent = 0
        while start < len(values):
            stop = bisect_left(ends, sent + self._left, start) + 1
            chosen, last = self._current, min(stop, len(values))
            run = range(start, last)
            rows[chosen] = [*rows[chosen], *run] if chosen in rows else run
            if stop <= len(values):
                self._move_on()
            else:
                self._left -= ends[-1] - sent
            start, sent = last, ends[last - 1]
        return rows

    def _move_on(self) -> None:
        self._left = self._stick_bytes
        self._current = (self._current + self._chance.randrange(1, self.partitions)) % self.partitions

    def _sticky(self, value: bytes | None) -> int:
        chosen = self._current
        self._left -= len(value or b"") + 1
        if self._left <= 0:
            self._move_on()
        return chosen


def by_partition(chosen: Sequence[int]) -> dict[int, Sequence[int]]:
    """The row numbers of each partition, in order."""
    distinct = set(chosen)
    if len(distinct) == 1:
        return {distinct.pop(): range(len(chosen))}
    rows: dict[int, list[int]] = {partition: [] for partition in sorted(distinct)}
    for row, partition in enumerate(chosen):
        rows[partition].append(row)
    return dict(rows)


def _rows_at_once(keys: Sequence[bytes], partitions: int) -> dict[int, Sequence[int]]:
    import numpy as np

    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    hashed = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        if len(alike) == len(keys):
            hashed = _murmur2_at_once(keys, length)
        elif len(alike) < WORTH_NUMPY:
            hashed[alike] = [murmur2(keys[row]) for row in alike.tolist()]
        else:
            hashed[alike] = _murmur2_at_once([keys[row] for row in alike.tolist()], length)
    chosen = ((hashed & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    if partitions <= SMALL:
        chosen = chosen.astype(np.int16)  # numpy sorts these in one pass
    order = np.argsort(chosen, kind="stable")
    counts = np.bincount(chosen)
    found = [rows.tolist() for rows in np.split(order, np.cumsum(counts)[:-1])]
    return {partition: rows for partition, rows in enumerate(found) if rows}
