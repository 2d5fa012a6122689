"""OffsetReader: resolves the partitions of a query and the offsets of its limits. For the driver only."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.base.settings import SettingsRefused
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster, Topic, Topics
from moldau.client.direct.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, ListedOffsets, list_offsets
from moldau.client.direct.retries import Retries
from moldau.client.direct.watch import Watch
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
AWAY = frozenset({WireError.NETWORK_EXCEPTION, WireError.REQUEST_TIMED_OUT})
NOT_FOUND = -1  # offset: no record at or after the timestamp
ENDINGS = {
    SpecificOffsets: "Offsets",
    SpecificTimestamps: "OffsetsByTimestamp",
    GlobalTimestamp: "Timestamp",
    GlobalOffset: "Offsets",
}


@dataclass(frozen=True, slots=True)
class ResolvedPartitions:
    """Existing partitions, and the ids of their topics (empty on brokers without topic ids)."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]


class OffsetReader:
    """One client for a whole query; closed by `close` or with its process."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._watch: Watch | None = None
        self._answered = False
        self._isolation = READ_COMMITTED if options.fetching.read_committed else READ_UNCOMMITTED

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = open_cluster(self._options.connection)
            if self._options.without_effect:
                logger.warning("These options have no effect: %s", ", ".join(self._options.without_effect))
        return self._cluster

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def partitions(self, *, missing: bool = False) -> ResolvedPartitions:
        """The partitions of the query now. A missing topic or partition fails it, unless `missing`."""
        wanted = self._options.topics
        match wanted:
            case SubscribePattern():
                topics = self._topics(None, missing=True)
                chosen = [each for each in topics if not each.internal and wanted.matches(each.name)]
                return _resolved(chosen, [tp for each in chosen for tp in each.partitions])
            case Subscribe():
                chosen = self._topics(wanted.topics, missing=missing)
                return _resolved(chosen, [tp for each in chosen for tp in each.partitions])
            case Assign():
                chosen = self._topics(sorted({tp.topic for tp in wanted.partitions}), missing=missing)
                there = {tp for each in chosen for tp in each.partitions}
                gone = [str(tp) for tp in wanted.partitions if TopicPartition(*tp) not in there]
                if gone and not missing:
                    raise QueryFailed(f"assign names partitions that do not exist: {', '.join(gone)}")
                return _resolved(
                    chosen, [TopicPartition(*tp) for tp in wanted.partitions if TopicPartition(*tp) in there]
                )

    def _topics(self, names: Collection[str] | None, *, missing: bool) -> list[Topic]:
        described = unwrap(self._described(None if names is None else list(names)))
        found = []
        for name, topic in described.items():
            if isinstance(topic, Topic):
                found.append(topic)
            elif names is not None and topic.code != WireError.UNKNOWN_TOPIC_OR_PARTITION:
                raise QueryFailed(str(topic))
            elif names is not None and not missing:
                raise QueryFailed(f"the topic {name} does not exist; create it, or correct the option that names it")
        return found

    def _described(self, names: list[str] | None) -> Topics | Failure:
        """Topics by name. A stream whose brokers have answered before waits for them: they may be restarted."""
        retries = Retries(self._options.offset_patience_ms / 1000 if self._answered else 0)
        while True:
            found = self.cluster.describe(names)
            if not isinstance(found, Failure):
                self._answered = True
                return found
            if found.code not in AWAY or not retries.again():
                return found

    # ── offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Log end offsets; last stable offsets under read_committed."""
        return self._ask(dict.fromkeys(partitions, LATEST))

    def wait_past(self, ends: Mapping[TopicPartition, int], seconds: float) -> None:
        """Wait until a partition may have records after its end, or for this time."""
        if seconds <= 0 or not ends:
            return
        if self._watch is None:
            self._watch = Watch(self.cluster, self._isolation)
        self._watch.wait(ends, seconds)

    def _ask(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets by partition, without topics that were just deleted."""
        found: dict[TopicPartition, int] = {}
        for tp, answer in self._answers(times).items():
            if not isinstance(answer, Failure):
                found[tp] = answer.offset
            elif answer.code != WireError.UNKNOWN_TOPIC_OR_PARTITION:
                raise QueryFailed(str(answer))
        return found

    def _answers(self, times: Mapping[TopicPartition, int]) -> ListedOffsets:
        """As for topics, a stream is patient. One failed partition is enough to ask again."""
        retries = Retries(self._options.offset_patience_ms / 1000 if self._answered else 0)
        while True:
            found = list_offsets(self.cluster, times, isolation=self._isolation, await_topics=False)
            failed = [each for each in found.values() if isinstance(each, Failure)]
            if not any(each.code in AWAY for each in failed) or not retries.again():
                return found

    def resolve(
        self, limit: OffsetRangeLimit, partitions: Iterable[TopicPartition], which: str
    ) -> dict[TopicPartition, int]:
        """The offsets of a limit; `which` is starting or ending."""
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
                f"{option}: no record is at or after the timestamp in {names}. To start at the end there, "
                "set startingOffsetsByTimestampStrategy to latest"
            )
        return _known(found) | self.latest(late)


def _known(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Offsets without the special values."""
    return {tp: offset for tp, offset in offsets.items() if offset >= 0}


def _resolved(topics: Iterable[Topic], partitions: Iterable[TopicPartition]) -> ResolvedPartitions:
    ids = {topic.name: str(topic.topic_id) for topic in topics if topic.topic_id.int}
    return ResolvedPartitions(tuple(sorted(partitions)), ids)
