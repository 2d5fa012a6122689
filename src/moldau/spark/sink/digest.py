"""Digest of a task's rows that does not depend on their order: their number, and the sum of their hashes.

A task that runs again may get its rows in another order, but they must be the same rows. The hashes are pandas'
(SipHash with a fixed key): equal in every process, and computed by column. They detect mistakes, not forgery.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import pandas as pd

from moldau.spark.sink.rows import Rows
from moldau.wire.records import Header

NULL = np.uint64(0x9E3779B97F4A7C15)  # hash of null
FACTOR = np.uint64(0xD6E8FEB86659FD93)
MASK = (1 << 64) - 1

_LENGTHS = Struct(">qq")


@dataclass(slots=True)
class Digest:
    rows: int = 0
    total: int = 0

    def add(self, rows: Rows, topic: str | None) -> None:
        """Add rows; `topic` is the topic of all rows, unless they have a topic column."""
        if not len(rows):
            return
        hashes = row_hashes(rows, topic)
        self.rows += len(rows)
        self.total = (self.total + int(hashes.sum(dtype=np.uint64))) & MASK

    def __str__(self) -> str:
        return f"{self.total:016x}"


def row_hashes(rows: Rows, topic: str | None) -> Any:
    """A hash per row, over all columns that become part of the record."""
    count = len(rows)
    partitions = [-1 if each is None else each for each in rows.partitions or [-1] * count]
    columns = (
        _hashed(rows.keys),
        _hashed(rows.values),
        _hashed(rows.topics) if topic is None else _alike(topic, count),
        np.array(partitions, np.int64).view(np.uint64),
        _alike(b"", count) if rows.headers is None else _hashed(_packed(rows.headers)),
    )
    mixed = np.zeros(count, np.uint64)
    for column in columns:
        mixed = _mixed(mixed * FACTOR + column)
    return mixed


def _hashed(column: Any) -> Any:
    hashes = pd.util.hash_array(column, categorize=False)
    hashes[pd.isna(column)] = NULL
    return hashes


def _alike(value: str | bytes, count: int) -> Any:
    """Hashes of a constant column."""
    return np.full(count, _hashed(np.array([value], object))[0])


def _packed(headers: Any) -> Any:
    """Headers as bytes with lengths; empty for a row without headers."""
    packed = np.empty(len(headers), object)
    packed[:] = [b"".join(map(_pack, row)) for row in headers]
    return packed


def _pack(header: Header) -> bytes:
    name, content = header
    named = name.encode("utf-8", "surrogateescape")
    return _LENGTHS.pack(len(named), -1 if content is None else len(content)) + named + (content or b"")


def _mixed(column: Any) -> Any:
    """Mix all bits, so that sums of similar rows differ (finalizer of 64-bit murmur3)."""
    column = (column ^ column >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD)
    column = (column ^ column >> np.uint64(33)) * np.uint64(0xC4CEB9FE1A85EC53)
    return column ^ column >> np.uint64(33)
