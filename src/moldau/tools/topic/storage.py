"""How partitions are stored: directories and sizes, asked over the wire; segments and compaction, if the disk is ours.

What the protocol does not tell (segments, how much of a log is compacted) is read from the directory that the broker
names, if this machine has it. Elsewhere these stay unknown.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from moldau.base.errors import WireError
from moldau.tools.connect import Target
from moldau.tools.log.files import CorruptFile, PartitionOffset, base_offset_of, read_file
from moldau.tools.requests import open_cluster
from moldau.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

CLEANED = "cleaner-offset-checkpoint"


class Storage(NamedTuple):
    """One replica of a partition, or a copy of it on its way to another directory."""

    topic: str
    partition: int
    broker: int
    bytes: int
    segments: int | None
    dirty_ratio: float | None  # how much of what may be compacted is not
    cleaned_to: int | None  # offset
    last_clean: str | None  # when the broker last wrote down what it had compacted
    state: str  # ok, or how far a copy is behind
    directory: str


def ask(target: Target, topics: Iterable[str]) -> tuple[list[Storage], list[str]]:
    """The storage of topics, and a line about each broker or directory that it cannot be had of."""
    wanted = set(topics)
    rows: list[Storage] = []
    notes: list[str] = []
    with open_cluster(target) as cluster:
        for broker in cluster.ids:
            try:
                answer = cluster.broker(broker).ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
            except OSError as problem:
                notes.append(f"broker {broker} does not answer: {(problem.strerror or str(problem)).lower()}")
                continue
            for result in answer.results:
                if result.error_code:
                    error = WireError(result.error_code).name
                    directory = f"the log directory {result.log_dir} of broker {broker}"
                    notes.append(f"{directory} ({error}) has failed: its partitions are offline")
                rows += _rows(broker, result, wanted)
    return sorted(rows), notes


def _rows(broker: int, result: Any, wanted: set[str]) -> Iterator[Storage]:
    cleaned, when = _cleaned(Path(result.log_dir))
    for topic in result.topics:
        if topic.name not in wanted:
            continue
        for row in topic.partitions:
            name = f"{topic.name}-{row.partition_index}"
            path = Path(result.log_dir) / name
            offset = cleaned.get(name)
            segments, ratio = (None, None) if row.is_future_key else _segments(path, offset)
            state = f"a copy, {row.offset_lag} behind" if row.is_future_key else "ok"
            last_clean = when if offset is not None else None
            yield Storage(
                topic.name, row.partition_index, broker, row.partition_size, segments, ratio, offset, last_clean, state,
                result.log_dir,
            )  # fmt: skip


def _cleaned(directory: Path) -> tuple[dict[str, int], str | None]:
    path = directory / CLEANED
    try:
        entries = [entry for entry in read_file(path) if isinstance(entry, PartitionOffset)]
        when = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OSError, CorruptFile):  # another machine's, nothing compacted yet, or just being replaced
        return {}, None
    return {f"{entry.topic}-{entry.partition}": entry.offset for entry in entries}, when


def _segments(path: Path, cleaned_to: int | None) -> tuple[int | None, float | None]:
    """How many there are, and which share of the finished ones is not compacted yet."""
    try:
        sizes = {base_offset_of(each) or 0: each.stat().st_size for each in path.glob("*.log")}
    except OSError:  # one went while we looked
        return None, None
    if not sizes:
        return None, None
    active = max(sizes)
    finished = {base: size for base, size in sizes.items() if base != active}
    total = sum(finished.values())
    dirty = sum(size for base, size in finished.items() if base >= (cleaned_to or 0))
    return len(sizes), dirty / total if total and cleaned_to is not None else None
