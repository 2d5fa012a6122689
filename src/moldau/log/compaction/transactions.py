"""Transactions as a cleaner reads a log: removes aborted data, and markers after their data. Does no I/O (KIP-98).

A marker is removed once a pass saw no batch of its transaction; until then consumers need it.
"""

from collections.abc import Iterable

from moldau.log.aborted import Aborted
from moldau.log.markers import read_marker
from moldau.log.segment import CorruptLogError
from moldau.wire.batch import TRANSACTIONAL, BatchHeader


class Transactions:
    """Told of every batch, in order, from the beginning of the walk."""

    __slots__ = ("_aborted", "_coming", "_committed", "needed")

    def __init__(self, aborted: Iterable[Aborted], from_offset: int = 0) -> None:
        """`aborted`: those of the log; the walk begins at `from_offset`."""
        overlapping = [each for each in aborted if each.last_offset >= from_offset]
        self._coming = sorted(overlapping, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, tuple[Aborted, bool]] = {}  # producer id → the one it is in, and whether data was met
        self._committed: set[int] = set()  # producers in a transaction that is not an aborted one
        self.needed: list[Aborted] = []  # with their marker seen and data left: read_committed consumers need them

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
        """Whether a control batch ends a transaction of which nothing is left, or is empty itself."""
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
        if aborted is None and header.producer_id in self._committed:  # its data was taken for committed
            raise CorruptLogError(f"the transaction aborted at offset {header.base_offset} is in no transaction index")
        if aborted is not None and met:
            self.needed.append(aborted)
        return not met

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            self._aborted.setdefault(aborted.producer_id, (aborted, False))
