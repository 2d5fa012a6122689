"""Transactions of a log that is being cleaned: which data is aborted, which markers are useless. Does no I/O (KIP-98).

A marker is useless when a pass has found no batch of its transaction; until then consumers need it.
"""

from collections.abc import Iterable

from moldau.log.aborted import Aborted
from moldau.log.markers import read_marker
from moldau.log.segment import CorruptLogError
from moldau.wire.batch import TRANSACTIONAL, BatchHeader


class Transactions:
    """Gets every batch of the log, in order, from `from_offset` on."""

    __slots__ = ("_aborted", "_coming", "_committed", "needed")

    def __init__(self, aborted: Iterable[Aborted], from_offset: int = 0) -> None:
        """`aborted`: the aborted transactions of the log; earlier ones are ignored."""
        overlapping = [each for each in aborted if each.last_offset >= from_offset]
        self._coming = sorted(overlapping, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, tuple[Aborted, bool]] = {}  # producer id → its current one, and whether it has data
        self._committed: set[int] = set()  # producers in a transaction that is not aborted
        self.needed: list[Aborted] = []  # transactions with marker and data left, for read_committed consumers

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data is part of an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.attributes & TRANSACTIONAL:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = found[0], True
        return True

    def is_useless(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a control batch is empty, or ends a transaction without data."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True
        marker = read_marker(bytes(batch))
        if marker is None:
            return False
        if marker.commit:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not met
        aborted, met = self._aborted.pop(header.producer_id, (None, False))
        if aborted is None and header.producer_id in self._committed:  # its data counts as committed
            raise CorruptLogError(f"the transaction aborted at offset {header.base_offset} is in no transaction index")
        if aborted is not None and met:
            self.needed.append(aborted)
        return not met

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            self._aborted.setdefault(aborted.producer_id, (aborted, False))
