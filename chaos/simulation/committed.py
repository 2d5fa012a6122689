"""Committed batches of a simulated cluster: every batch below any replica's high watermark must keep its offset.

A batch is identified by its checksum, which does not cover its offset. Knows nothing of brokers or of time.
"""

from collections.abc import Iterable
from typing import NamedTuple

from moldau.log.log import Log
from moldau.replication.partition import Partition
from moldau.wire.batch import BatchHeader


class Broken(AssertionError):
    """A guarantee did not hold."""


class Batch(NamedTuple):
    last_offset: int
    crc: int


class Committed:
    """The committed batches of one partition, recorded when the first high watermark passes them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.end = 0
        self._batches: dict[int, Batch] = {}  # by first offset
        self._acknowledged: dict[int, int] = {}  # first offset and checksum of batches not seen yet

    def acknowledged(self, base_offset: int, crc: int) -> None:
        self._acknowledged[base_offset] = crc

    def look(self, broker: str, partition: Partition, start: int) -> int:
        """Compare a replica's log from an offset to its high watermark, which is returned."""
        high_watermark = partition.high_watermark
        if start >= high_watermark:
            return high_watermark
        for header in partition.log.read_headers(max(start, partition.log.start_offset)):
            if header.base_offset >= high_watermark:
                break
            self._see(broker, header, partition.log)
        if self.end < high_watermark:
            raise Broken(f"{broker}: {self.name} is committed to {high_watermark}, and has nothing from {self.end} on")
        return high_watermark

    def _see(self, broker: str, header: BatchHeader, log: Log) -> None:
        base, found = header.base_offset, Batch(header.last_offset, header.crc)
        if base >= self.end:
            if base > self.end and base != log.start_offset:
                raise Broken(f"{broker}: {self.name} lacks committed records from {self.end} to {base}")
            self._batches[base] = found
            self.end = header.last_offset + 1
        elif self._batches.get(base) != found:
            raise Broken(f"{broker}: {self.name} has another batch at {base} than was committed there")

    def check_acknowledged(self, *, all_of_them: bool = False) -> None:
        """Check that acknowledged batches are committed. `all_of_them`: all committed batches have been seen."""
        for base, crc in list(self._acknowledged.items()):
            found = self._batches.get(base)
            if found is None and (all_of_them or base < self.end):
                raise Broken(f"{self.name}: acknowledged at {base}, and nothing is there")
            if found is not None:
                if found.crc != crc:
                    raise Broken(f"{self.name}: acknowledged at {base}, and something else is there")
                del self._acknowledged[base]


def same(name: str, replicas: Iterable[tuple[int, Partition]]) -> None:
    """Check that all replicas are identical, with epochs; their log start offsets may differ."""
    logs = [(broker, partition) for broker, partition in replicas]
    start = max(partition.log.start_offset for _, partition in logs)
    contents = [
        [(each.base_offset, each.leader_epoch, each.crc) for each in partition.log.read_headers(start)]
        for _, partition in logs
    ]
    for (broker, partition), content in zip(logs, contents, strict=True):
        if content != contents[0]:
            raise Broken(f"{name}: the logs of brokers {logs[0][0]} and {broker} differ")
        if partition.high_watermark != partition.log.end_offset:
            raise Broken(f"{name}: broker {broker} does not know that all is committed")
