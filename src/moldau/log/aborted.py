"""Aborted transactions of a segment, the `.txnindex` file: by it readers of committed records skip the rest (KIP-98).

Kafka's form: an entry of 34 bytes for each aborted transaction whose marker lies in the segment, in the markers' order.
A file exists only where there are entries. Knows nothing of segments or producers.
"""

from struct import Struct
from typing import NamedTuple

ENTRY = Struct(">hqqqq")
ENTRY_SIZE = ENTRY.size  # 34
VERSION = 0


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # right behind the marker: what lies before it is decided

    def pack(self) -> bytes:
        return ENTRY.pack(VERSION, *self)
