"""Which partition a record goes to, as Java's producer decides: murmur2 of its key, or one that sticks for a while.

librdkafka's default hashes otherwise, so records of one key would lie in two places. Sends nothing.
"""

import importlib.util
import random
from collections.abc import Iterable, Sequence

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


def murmur2_of(keys: Iterable[bytes]) -> dict[bytes, int]:
    """The hash of each key; many keys of one length are hashed at once where numpy is (it comes with pandas)."""
    by_length: dict[int, list[bytes]] = {}
    for key in keys:
        by_length.setdefault(len(key), []).append(key)
    hashed: dict[bytes, int] = {}
    for length, alike in by_length.items():
        if len(alike) < WORTH_NUMPY or importlib.util.find_spec("numpy") is None:
            hashed |= {key: murmur2(key) for key in alike}
        else:
            hashed |= zip(alike, _murmur2_at_once(alike, length), strict=True)
    return hashed


def _murmur2_at_once(keys: list[bytes], length: int) -> list[int]:
    """`murmur2` in columns of unsigned 32-bit numbers, whose products wrap by themselves."""
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
    found: list[int] = (h ^ h >> np.uint32(15)).tolist()
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

    def assign(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> list[int]:
        """A partition for each record. Keys often repeat, so within a call each is hashed once."""
        if self.partitions == 1:
            return [0] * len(keys)
        hashed = murmur2_of({key for key in keys if key is not None})
        known = {key: (each & 0x7FFFFFFF) % self.partitions for key, each in hashed.items()}
        if None not in keys:
            return [known[key] for key in keys]  # type: ignore[index]
        return [self._sticky(value) if key is None else known[key] for key, value in zip(keys, values, strict=True)]

    def _sticky(self, value: bytes | None) -> int:
        chosen = self._current
        self._left -= len(value or b"") + 1
        if self._left <= 0:
            self._left = self._stick_bytes
            self._current = (chosen + self._chance.randrange(1, self.partitions)) % self.partitions
        return chosen
