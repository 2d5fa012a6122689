"""The `.txnindex` file: the aborted transactions of a segment, which read_committed consumers skip (KIP-98).

Kafka's format: an entry of 34 bytes for each aborted transaction with its marker in the segment, in the order of the
markers. A file exists only if there are entries. Knows nothing of segments or producers.
"""

from struct import Struct
from typing import NamedTuple

ENTRY = Struct(">hqqqq")
ENTRY_SIZE = ENTRY.size  # 34
VERSION = 0
_LAST_OFFSET = Struct(">18xq8x")

Entries = bytes | bytearray


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # just after the marker: every transaction that began before it had ended

    def pack(self) -> bytes:
        return ENTRY.pack(VERSION, *self)


def find(entries: Entries, from_offset: int, upper: int) -> tuple[list[Aborted], bool]:
    """Transactions that overlap the offsets from `from_offset` to before `upper`; and whether no later entry can."""
    found = []
    for at in range(_position(entries, from_offset), len(entries), ENTRY_SIZE):
        aborted = Aborted._make(ENTRY.unpack_from(entries, at)[1:])
        if aborted.first_offset < upper:
            found.append(aborted)
        if aborted.last_stable_offset >= upper:
            return found, True
    return found, False


def read_all(entries: Entries) -> list[Aborted]:
    return [Aborted._make(entry[1:]) for entry in ENTRY.iter_unpack(entries)]


def cut(entries: Entries, offset: int) -> bytes:
    """The entries of transactions that ended before `offset`."""
    return bytes(entries[: _position(entries, offset)])


def sound(entries: Entries, base: int) -> bool:
    """Whether a file can belong to the segment at `base`: whole entries, the last one after the first."""
    count, rest = divmod(len(entries), ENTRY_SIZE)
    if rest or not count:
        return not rest
    first, last = (ENTRY.unpack_from(entries, at) for at in (0, len(entries) - ENTRY_SIZE))
    in_order: bool = count == 1 or first[3] < last[3]
    return in_order and first[0] == last[0] == VERSION and first[3] >= base


def _position(entries: Entries, offset: int) -> int:
    """The position of the first transaction that ended at `offset` or later."""
    low, high = 0, len(entries) // ENTRY_SIZE
    while low < high:
        middle = (low + high) >> 1
        if _LAST_OFFSET.unpack_from(entries, middle * ENTRY_SIZE)[0] < offset:
            low = middle + 1
        else:
            high = middle
    return low * ENTRY_SIZE
