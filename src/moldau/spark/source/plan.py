"""Split offset ranges into tasks, so that all cores have work. Pure: equal input gives equal tasks.

`minPartitions` and `maxRecordsPerPartition` work as in Spark's Kafka source. Without them partitions are split into
about one task per core, but not into tasks of fewer than 50,000 offsets.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

MIN_OFFSETS = 50_000  # offsets: starting a smaller task costs more than it saves
CORES = "MOLDAU_SPARK_CORES"  # environment variable of Python workers: number of tasks that run at once


class OffsetRange(NamedTuple):
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class ReadTask(NamedTuple):
    """A range, the id of its topic if known, and its number among the tasks of its partition in the batch."""

    range: OffsetRange
    topic_id: str | None
    number: int = 0


def read_tasks(pieces: Iterable[OffsetRange], topic_ids: Mapping[str, str]) -> list[ReadTask]:
    """The tasks of a batch. Their numbers are the same whenever the batch is planned from the same ranges."""
    counts: Counter[tuple[str, int]] = Counter()
    tasks = []
    for piece in pieces:
        partition = (piece.topic, piece.partition)
        tasks.append(ReadTask(piece, topic_ids.get(piece.topic), counts[partition]))
        counts[partition] += 1
    return tasks


def known_cores(environment: Mapping[str, str]) -> int:
    """Spark's parallelism, if our session set it; else the cores of this machine."""
    told = environment.get(CORES, "")
    if told.isascii() and told.isdigit() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split(
    ranges: Iterable[OffsetRange], *, cores: int, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The range of each task, ordered by topic, partition and offset."""
    pieces = sorted(each for each in ranges if each.size > 0)
    if min_partitions is None and max_records is None:
        target = max(MIN_OFFSETS, -(-sum(each.size for each in pieces) // cores))
        return [piece for each in pieces for piece in cut(each, _rounded(each.size, target))]
    if max_records is not None:
        pieces = [piece for each in pieces for piece in cut(each, -(-each.size // max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _at_least(pieces, min_partitions)
    return pieces


def cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Split into parts that differ by one offset at most; fewer parts if there are fewer offsets."""
    parts = max(1, min(parts, whole.size))
    marks = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(marks)]


def _at_least(pieces: list[OffsetRange], count: int) -> list[OffsetRange]:
    """Split large ranges by their share of the total; ranges too small to split do not count."""
    total = sum(each.size for each in pieces)
    small = {each for each in pieces if _rounded(each.size * count, total) == 1}
    large_total = total - sum(each.size for each in small)
    wanted = max(1, count - len(small))
    return [
        piece
        for each in pieces
        for piece in cut(each, 1 if each in small else _rounded(each.size * wanted, large_total))
    ]


def _rounded(size: int, unit: int) -> int:
    """How often the unit goes into the size, half of one counting as one; at least once."""
    return max(1, (2 * size + unit) // (2 * unit))
