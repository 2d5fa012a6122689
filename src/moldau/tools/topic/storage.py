"""Storage of partitions: directories and sizes from DescribeLogDirs; segments and compaction from a local disk.

The protocol has neither segments nor the compacted share of a log. They are read from the directory that the broker
names, if this machine has it; else they stay unknown.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from moldau.client.admin.cluster import open_cluster
from moldau.client.admin.log_dirs import LogDir, read_log_dirs
from moldau.client.admin.target import Target
from moldau.tools.log.files import CorruptFile, PartitionOffset, base_offset_of, read_file

CLEANED = "cleaner-offset-checkpoint"


class Storage(NamedTuple):
    """One replica of a partition, or a future replica in another directory."""

    topic: str
    partition: int
    broker: int
    bytes: int
    segments: int | None
    dirty_ratio: float | None  # share of the cleanable log that is not compacted
    cleaned_to: int | None  # offset
    last_clean: str | None  # when the cleaner checkpoint was last written
    state: str  # ok, or how far a copy is behind
    directory: str


def read_storage(target: Target, topics: Iterable[str]) -> tuple[list[Storage], list[str]]:
    """The storage of topics, and a line for each broker that does not answer and each directory that is offline."""
    with open_cluster(target) as cluster:
        found = read_log_dirs(cluster, topics)
    notes = [f"broker {broker} does not answer: {reason}" for broker, reason in found.unreachable.items()]
    notes += [
        f"log directory {each.path} of broker {each.broker} is offline ({each.error}), and so are its partitions"
        for each in found.directories
        if each.error
    ]
    return sorted(row for each in found.directories for row in _rows(each)), notes


def _rows(directory: LogDir) -> Iterator[Storage]:
    cleaned, when = _cleaned(Path(directory.path))
    for replica in directory.replicas:
        topic, partition = replica.partition
        offset = cleaned.get(str(replica.partition))
        path = Path(directory.path) / str(replica.partition)
        segments, ratio = (None, None) if replica.is_future else _segments(path, offset)
        state = f"a copy, {replica.offset_lag} behind" if replica.is_future else "ok"
        last_clean = when if offset is not None else None
        yield Storage(
            topic, partition, directory.broker, replica.size, segments, ratio, offset, last_clean, state, directory.path
        )


def _cleaned(directory: Path) -> tuple[dict[str, int], str | None]:
    path = directory / CLEANED
    try:
        entries = [entry for entry in read_file(path) if isinstance(entry, PartitionOffset)]
        when = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OSError, CorruptFile):  # on another machine, nothing compacted yet, or just being replaced
        return {}, None
    return {f"{entry.topic}-{entry.partition}": entry.offset for entry in entries}, when


def _segments(path: Path, cleaned_to: int | None) -> tuple[int | None, float | None]:
    """The number of segments, and the dirty share of all but the active one."""
    try:
        sizes = {base_offset_of(each) or 0: each.stat().st_size for each in path.glob("*.log")}
    except OSError:  # deleted meanwhile
        return None, None
    if not sizes:
        return None, None
    active = max(sizes)
    finished = {base: size for base, size in sizes.items() if base != active}
    total = sum(finished.values())
    dirty = sum(size for base, size in finished.items() if base >= (cleaned_to or 0))
    return len(sizes), dirty / total if total and cleaned_to is not None else None
