"""StreamOffset: the offset of a stream in Spark's checkpoint, with the task boundaries of the batch that ends there.

A replayed batch is planned from these boundaries alone. So it has the same tasks with the same records after a restart
with another number of cores, and when `latest`, a timestamp or a new partition would now give another start.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.base.settings import shortened
from moldau.spark.cluster import QueryFailed
from moldau.spark.source.plan import OffsetRange

OFFSETS, CUTS, IDS = "offsets", "cuts", "topicIds"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Next offset of each partition, topic ids (they change when a topic is recreated), and the batch's tasks."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[OffsetRange, ...] = ()


def write(mark: StreamOffset) -> dict[str, Any]:
    """JSON for Spark, in a stable order: Spark compares offsets as text."""
    cuts: dict[TopicPartition, list[int]] = {}
    for piece in sorted(mark.tasks):
        cuts.setdefault(TopicPartition(piece.topic, piece.partition), [piece.start]).append(piece.end)
    ids = {topic: mark.topic_ids[topic] for topic in sorted(mark.topic_ids)}
    return {OFFSETS: _by_topic(mark.offsets), CUTS: _by_topic(cuts), IDS: ids}


def read(document: Mapping[str, Any]) -> StreamOffset:
    """Parse the JSON of `write`; raises QueryFailed for anything else."""
    try:
        offsets = {tp: _offset(value) for tp, value in _partitions(document[OFFSETS])}
        cuts = {tp: [_offset(each) for each in value] for tp, value in _partitions(document[CUTS])}
        ids = {str(topic): str(topic_id) for topic, topic_id in document[IDS].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise QueryFailed(_foreign(document)) from wrong
    tasks = (OffsetRange(*tp, start, end) for tp, marks in cuts.items() for start, end in pairwise(marks))
    return StreamOffset(offsets, ids, tuple(tasks))


def read_kafka(document: Any) -> dict[TopicPartition, int] | None:
    """Offsets as Spark's Kafka source writes them, such as {"orders": {"0": 23}}; None for anything else."""
    if not isinstance(document, Mapping) or not document:
        return None
    try:
        return {tp: _offset(value) for tp, value in _partitions(document)}
    except (AttributeError, TypeError, ValueError):
        return None


def _foreign(document: Any) -> str:
    """The error for an offset of another source."""
    kafka = read_kafka(document)
    if kafka:
        topics = shortened(", ".join(sorted({tp.topic for tp in kafka})))
        remedy = "Take it over with: moldau pipeline adopt CHECKPOINT"
        return f"the checkpoint was written by format('kafka'), for {topics}. {remedy}"
    return f"the checkpoint was not written by format('moldau') but by another query: {shortened(str(document))}"


def _by_topic(values: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = {}
    for tp in sorted(values):
        document.setdefault(tp.topic, {})[str(tp.partition)] = values[tp]
    return document


def _partitions(document: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[TopicPartition, Any]]:
    return ((TopicPartition(topic, int(key)), value) for topic, row in document.items() for key, value in row.items())


def _offset(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not an offset")
    return value
