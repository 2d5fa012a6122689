"""The partition of a coordinator's topic that a group or transactional id belongs to, as in Kafka."""

from functools import lru_cache
from struct import unpack

CACHED_KEYS = 10_000


@lru_cache(CACHED_KEYS)
def hash_of(key: str) -> int:
    """Java's `String.hashCode`, made non-negative as Kafka does."""
    data = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(data) // 2}H", data):
        value = (value * 31 + unit) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return 0 if signed == -(2**31) else abs(signed)


def partition_of(key: str, partitions: int) -> int:
    return hash_of(key) % partitions
