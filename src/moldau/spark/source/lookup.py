"""Asks brokers what there is to read: the partitions of a query's topics, and the offsets that its limits stand for.

For the driver only: tasks are told what to read.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from moldau.base.errors import WireError
from moldau.base.settings import SettingsRefused
from moldau.client.direct.failed import Failed
from moldau.client.direct.metadata import Cluster, Place, Topic
from moldau.client.direct.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Answers, list_offsets
from moldau.spark.link import QueryFailed, open_cluster, worked
from moldau.spark.offsets import (
    Assigned,
    Everywhere,
    Limit,
    Matching,
    Offsets,
    Subscribed,
    Timestamp,
    Timestamps,
    TopicPartition,
    uncovered,
)
from moldau.spark.options import ReadOptions

LOG = logging.getLogger("moldau.spark")
NOT_FOUND = -1  # as an offset: no record is that late
ENDINGS = {Offsets: "Offsets", Timestamps: "OffsetsByTimestamp", Timestamp: "Timestamp", Everywhere: "Offsets"}


@dataclass(frozen=True, slots=True)
class Found:
    """Partitions that are there, and the ids of their topics (none on brokers that have no ids)."""

    places: tuple[Place, ...]
    topic_ids: Mapping[str, str]


class Lookup:
    """One view of the cluster for a whole query; `close` it, or let it go with its process."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._isolation = READ_COMMITTED if options.fetching.read_committed else READ_UNCOMMITTED

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = open_cluster(self._options.connection)
            if self._options.without_effect:
                LOG.warning("These options have no effect here: %s", ", ".join(self._options.without_effect))
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def partitions(self, *, missing: bool = False) -> Found:
        """What the query reads now. Topics and partitions that are named and not there fail it, unless `missing`."""
        wanted = self._options.topics
        match wanted:
            case Matching():
                topics = self._topics(None, missing=True)
                chosen = [each for each in topics if not each.internal and wanted.matches(each.name)]
                return _found(chosen, [place for each in chosen for place in each.places])
            case Subscribed():
                chosen = self._topics(wanted.topics, missing=missing)
                return _found(chosen, [place for each in chosen for place in each.places])
            case Assigned():
                chosen = self._topics(sorted({place.topic for place in wanted.partitions}), missing=missing)
                there = {place for each in chosen for place in each.places}
                gone = [str(place) for place in wanted.partitions if Place(*place) not in there]
                if gone and not missing:
                    raise QueryFailed(f"assign names partitions that do not exist: {', '.join(gone)}")
                return _found(chosen, [Place(*place) for place in wanted.partitions if Place(*place) in there])

    def _topics(self, names: Collection[str] | None, *, missing: bool) -> list[Topic]:
        described = worked(self.cluster.describe(None if names is None else list(names)))
        found = []
        for name, topic in described.items():
            if isinstance(topic, Topic):
                found.append(topic)
            elif names is not None and topic.code != WireError.UNKNOWN_TOPIC_OR_PARTITION:
                raise QueryFailed(str(topic))
            elif names is not None and not missing:
                raise QueryFailed(f"the topic {name} does not exist; create it, or correct the option that names it")
        return found

    # ── offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._ask(dict.fromkeys(places, EARLIEST))

    def latest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The ends; the last stable offsets under read_committed."""
        return self._ask(dict.fromkeys(places, LATEST))

    def _ask(self, times: Mapping[Place, int]) -> dict[Place, int]:
        """A topic that was deleted a moment ago is not in the answer."""
        found: dict[Place, int] = {}
        for place, answer in self._answers(times).items():
            if not isinstance(answer, Failed):
                found[place] = answer.offset
            elif answer.code != WireError.UNKNOWN_TOPIC_OR_PARTITION:
                raise QueryFailed(str(answer))
        return found

    def _answers(self, times: Mapping[Place, int]) -> Answers:
        return list_offsets(self.cluster, times, isolation=self._isolation, await_topics=False)

    def resolve(self, limit: Limit, places: Iterable[Place], which: str) -> dict[Place, int]:
        """The offsets that a limit stands for; `which` is starting or ending."""
        places = tuple(places)
        option = f"{which}{ENDINGS[type(limit)]}"
        wrong = uncovered(option, limit, [TopicPartition(*place) for place in places])
        if wrong is not None:
            raise SettingsRefused([wrong])
        match limit:
            case Everywhere():
                return self._ask(dict.fromkeys(places, limit.offset))
            case Offsets():
                given = {place: limit.by_partition[TopicPartition(*place)] for place in places}
                return _known(given) | self._ask({place: offset for place, offset in given.items() if offset < 0})
            case Timestamp():
                return self._at(dict.fromkeys(places, limit.ms), option, which)
            case Timestamps():
                return self._at({place: limit.by_partition[TopicPartition(*place)] for place in places}, option, which)

    def _at(self, times: Mapping[Place, int], option: str, which: str) -> dict[Place, int]:
        found = self._ask(times)
        late = [place for place, offset in found.items() if offset == NOT_FOUND]
        if late and which == "starting" and self._options.when_too_late == "error":
            names = ", ".join(f"{place.topic}-{place.partition} ({times[place]})" for place in sorted(late))
            raise QueryFailed(
                f"{option}: no record is as late as that in {names}. To start at the end there, "
                "set startingOffsetsByTimestampStrategy to latest"
            )
        return _known(found) | self.latest(late)


def _known(offsets: Mapping[Place, int]) -> dict[Place, int]:
    """Those that are offsets, and do not stand for one."""
    return {place: offset for place, offset in offsets.items() if offset >= 0}


def _found(topics: Iterable[Topic], places: Iterable[Place]) -> Found:
    ids = {topic.name: str(topic.topic_id) for topic in topics if topic.topic_id.int}
    return Found(tuple(sorted(places)), ids)
