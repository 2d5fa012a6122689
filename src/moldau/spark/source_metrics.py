"""Topics and lag of the sources in a StreamingQueryProgress, with the names of Spark's Kafka source.

Spark has no way for a Python source to report metrics or a description: `lastProgress.sources[].metrics` is empty, and
the description is that of Spark's own class. But Spark reports the offsets, and these have it all.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OffsetsByPartition = dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """One source: `description` names its topics; `metrics` has offsets behind the latest, at the end of the batch."""

    description: str
    metrics: Mapping[str, int | float]


def source_metrics(progress: Mapping[str, Any]) -> list[SourceMetrics]:
    """One for each source of a `query.lastProgress`, in its order; without metrics for a source without topics."""
    return [_of(each) for each in progress.get("sources") or []]


def offsets_behind(source: Mapping[str, Any]) -> list[int] | None:
    """Offsets behind the latest, per partition; None for a source that does not report offsets of partitions."""
    ends, latest = _by_partition(source.get("endOffset")), _by_partition(source.get("latestOffset"))
    return [max(0, offset - ends.get(partition, 0)) for partition, offset in latest.items()] if latest else None


def _of(source: Mapping[str, Any]) -> SourceMetrics:
    behind = offsets_behind(source)
    if behind is None:
        return SourceMetrics(str(source.get("description", "")), {})
    both = {**_by_partition(source.get("endOffset")), **_by_partition(source.get("latestOffset"))}
    topics = ", ".join(sorted({topic for topic, _ in both}))
    return SourceMetrics(
        f"moldau[{topics}]",
        {
            "minOffsetsBehindLatest": min(behind),
            "maxOffsetsBehindLatest": max(behind),
            "avgOffsetsBehindLatest": sum(behind) / len(behind),
        },
    )


def _by_partition(offsets: Any) -> OffsetsByPartition:
    """Offsets by topic and partition: the form of Spark's Kafka source and of ours."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except ValueError:
            return {}
    if not isinstance(offsets, Mapping):
        return {}
    offsets = offsets.get("offsets", offsets) if "cuts" in offsets else offsets  # only our source has "cuts"
    found = {}
    for topic, partitions in offsets.items():
        if isinstance(partitions, Mapping):
            found.update({(topic, each): offset for each, offset in partitions.items() if isinstance(offset, int)})
    return found
