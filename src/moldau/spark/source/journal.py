"""Where a stream is, as Spark keeps it in its checkpoint: offsets, and the cuts of the batch that ends there.

A batch that runs again is read from these cuts alone. So it has the same tasks with the same records after a restart
with more or fewer cores, and when `latest`, a timestamp or a new partition would by now mean another start.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from moldau.client.direct.metadata import Place
from moldau.spark.link import QueryFailed
from moldau.spark.source.plan import Range

OFFSETS, CUTS, IDS = "offsets", "cuts", "topicIds"


@dataclass(frozen=True, slots=True)
class Mark:
    """`offsets` come next in each partition; `tasks` led here; an id tells a topic from a later one of its name."""

    offsets: Mapping[Place, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[Range, ...] = ()


def write(mark: Mark) -> dict[str, Any]:
    """JSON for Spark, in an order that never changes: Spark compares marks as texts."""
    cuts: dict[Place, list[int]] = {}
    for piece in sorted(mark.tasks):
        cuts.setdefault(Place(piece.topic, piece.partition), [piece.start]).append(piece.end)
    ids = {topic: mark.topic_ids[topic] for topic in sorted(mark.topic_ids)}
    return {OFFSETS: _by_topic(mark.offsets), CUTS: _by_topic(cuts), IDS: ids}


def read(document: Mapping[str, Any]) -> Mark:
    """What `write` has written; QueryFailed if it is something else."""
    try:
        offsets = {place: _offset(value) for place, value in _places(document[OFFSETS])}
        cuts = {place: [_offset(each) for each in value] for place, value in _places(document[CUTS])}
        ids = {str(topic): str(topic_id) for topic, topic_id in document[IDS].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise QueryFailed(f"the checkpoint was not written by format('moldau'): {document!r}"[:500]) from wrong
    tasks = (Range(*place, start, end) for place, marks in cuts.items() for start, end in pairwise(marks))
    return Mark(offsets, ids, tuple(tasks))


def _by_topic(values: Mapping[Place, Any]) -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = {}
    for place in sorted(values):
        document.setdefault(place.topic, {})[str(place.partition)] = values[place]
    return document


def _places(document: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[Place, Any]]:
    return ((Place(topic, int(key)), value) for topic, row in document.items() for key, value in row.items())


def _offset(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not an offset")
    return value
