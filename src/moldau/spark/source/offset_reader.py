"""Asks brokers what there is to read: the partitions of a query's topics, and the offsets that its limits stand for.

For the driver only: tasks are told what to read.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.base.settings import SettingsRefused
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster, Topic
from moldau.client.direct.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, ListedOffsets, list_offsets
from moldau.spark.cluster import QueryFailed, open_cluster, unwrap
from moldau.spark.offsets import (
    Assign,
    GlobalOffset,
    GlobalTimestamp,
    OffsetRangeLimit,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
    uncovered,
)
from moldau.spark.options import ReadOptions

logger = logging.getLogger("moldau.spark")
NOT_FOUND = -1  # as an offset: no record is that late
ENDINGS = {
    SpecificOffsets: "Offsets",
    SpecificTimestamps: "OffsetsByTimestamp",
    GlobalTimestamp: "Timestamp",
    GlobalOffset: "Offsets",
}


@dataclass(frozen=True, slots=True)
class Found:
    """Partitions that are there, and the ids of their topics (none on brokers that have no ids)."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]


class OffsetReader:
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
                logger.warning("These options have no effect here: %s", ", ".join(self._options.without_effect))
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
            case SubscribePattern():
                topics = self._topics(None, missing=True)
                chosen = [each for each in topics if not each.internal and wanted.matches(each.name)]
                return _found(chosen, [tp for each in chosen for tp in each.partitions])
            case Subscribe():
                chosen = self._topics(wanted.topics, missing=missing)
                return _found(chosen, [tp for each in chosen for tp in each.partitions])
            case Assign():
                chosen = self._topics(sorted({tp.topic for tp in wanted.partitions}), missing=missing)
                there = {tp for each in chosen for tp in each.partitions}
                gone = [str(tp) for tp in wanted.partitions if TopicPartition(*tp) not in there]
                if gone and not missing:
                    raise QueryFailed(f"assign names partitions that do not exist: {', '.join(gone)}")
                return _found(chosen, [TopicPartition(*tp) for tp in wanted.partitions if TopicPartition(*tp) in there])

    def _topics(self, names: Collection[str] | None, *, missing: bool) -> list[Topic]:
        described = unwrap(self.cluster.describe(None if names is None else list(names)))
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

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends; the last stable offsets under read_committed."""
        return self._ask(dict.fromkeys(partitions, LATEST))

    def _ask(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """A topic that was deleted a moment ago is not in the answer."""
        found: dict[TopicPartition, int] = {}
        for tp, answer in self._answers(times).items():
            if not isinstance(answer, Failure):
                found[tp] = answer.offset
            elif answer.code != WireError.UNKNOWN_TOPIC_OR_PARTITION:
                raise QueryFailed(str(answer))
        return found

    def _answers(self, times: Mapping[TopicPartition, int]) -> ListedOffsets:
        return list_offsets(self.cluster, times, isolation=self._isolation, await_topics=False)

    def resolve(
        self, limit: OffsetRangeLimit, partitions: Iterable[TopicPartition], which: str
    ) -> dict[TopicPartition, int]:
        """The offsets that a limit stands for; `which` is starting or ending."""
        partitions = tuple(partitions)
        option = f"{which}{ENDINGS[type(limit)]}"
        wrong = uncovered(option, limit, [TopicPartition(*tp) for tp in partitions])
        if wrong is not None:
            raise SettingsRefused([wrong])
        match limit:
            case GlobalOffset():
                return self._ask(dict.fromkeys(partitions, limit.offset))
            case SpecificOffsets():
                given = {tp: limit.by_partition[TopicPartition(*tp)] for tp in partitions}
                return _known(given) | self._ask({tp: offset for tp, offset in given.items() if offset < 0})
            case GlobalTimestamp():
                return self._at(dict.fromkeys(partitions, limit.ms), option, which)
            case SpecificTimestamps():
                return self._at({tp: limit.by_partition[TopicPartition(*tp)] for tp in partitions}, option, which)

    def _at(self, times: Mapping[TopicPartition, int], option: str, which: str) -> dict[TopicPartition, int]:
        found = self._ask(times)
        late = [tp for tp, offset in found.items() if offset == NOT_FOUND]
        if late and which == "starting" and self._options.when_too_late == "error":
            names = ", ".join(f"{tp.topic}-{tp.partition} ({times[tp]})" for tp in sorted(late))
            raise QueryFailed(
                f"{option}: no record is as late as that in {names}. To start at the end there, "
                "set startingOffsetsByTimestampStrategy to latest"
            )
        return _known(found) | self.latest(late)


def _known(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Those that are offsets, and do not stand for one."""
    return {tp: offset for tp, offset in offsets.items() if offset >= 0}


def _found(topics: Iterable[Topic], partitions: Iterable[TopicPartition]) -> Found:
    ids = {topic.name: str(topic.topic_id) for topic in topics if topic.topic_id.int}
    return Found(tuple(sorted(partitions)), ids)
